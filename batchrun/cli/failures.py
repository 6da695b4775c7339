"""`batchrun failures`."""

from typing import TYPE_CHECKING, Any

import click

from batchrun.cli.context import Context
from batchrun.cli.context import command as make_command
from batchrun.cli.say import emit, next_lines, put

if TYPE_CHECKING:
    from batchrun.runner.failures import FailureGroup


@make_command("batchrun failures batch-001")
@click.argument("job")
@click.option("--cause", "causes", multiple=True, help="Only this cause; may be given several times.")
@click.option("--items", "list_items", is_flag=True, help="One line an item instead of one a cause.")
def command(context: Context, job: str, causes: tuple[str, ...], list_items: bool) -> int:
    """Group what failed or is in doubt by cause: how many, a sample, and what to do about it."""
    from batchrun.runner.failures import group_failures, list_failures

    with context.ledger() as ledger:
        if list_items:
            return _print_items(context, list_failures(ledger, job, causes=causes))
        groups = [group for group in group_failures(ledger, job) if not causes or group.cause in causes]
    if context.json:
        emit("failures", {"job_id": job, "causes": [group.__dict__ for group in groups]})
        return 0
    if not groups:
        click.echo(f"{job}: nothing failed and nothing is in doubt")
        return 0
    for group in groups:
        state = group.state.replace("_", " ")
        put(f"{group.count:>7,}  {group.cause}  ({state if state == group.kind else f'{state}, {group.kind}'})")
        put(f"         sample  {group.sample_item}: {group.sample_message}")
        put(f"         do      {group.hint}")
    for line in next_lines(_next_commands(job, groups)):
        put(line)
    return 0


def _next_commands(job: str, groups: "list[FailureGroup]") -> list[str]:
    states = {group.state for group in groups}
    following = [f"batchrun show {job} {groups[0].sample_item}"]
    if "failed" in states:
        following.append(f"batchrun retry-failed {job}")
    if "in_doubt" in states:
        following.append(f"batchrun reconcile {job}")
    return following


def _print_items(context: Context, listed: list[dict[str, Any]]) -> int:
    for item in listed:
        if context.json:
            emit("failure", item)
        else:
            put(f"{item['custom_id']}  {item['state'].replace('_', ' ')}  {item['cause']}: {item['message']}")
    return 0
