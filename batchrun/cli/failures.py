"""`batchrun failures`."""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import click

from batchrun.cli.context import JOB, Context
from batchrun.cli.context import command as make_command
from batchrun.cli.say import emit, next_lines, put
from batchrun.core.printable import one_line
from batchrun.core.wording import several

if TYPE_CHECKING:
    from batchrun.runner.failures import FailureGroup, Failures


@make_command("batchrun failures batch-001")
@click.argument("job", type=JOB)
@click.option("--cause", "causes", multiple=True, help="Only this cause; may be given several times.")
@click.option("--items", "list_items", is_flag=True, help="One line an item instead of one a cause.")
def command(context: Context, job: str, causes: tuple[str, ...], list_items: bool) -> int:
    """Group what failed or is in doubt by cause: how many, a sample, what kind, and what to do about it."""
    from batchrun.runner.failures import group_failures, list_failures

    with context.ledger() as ledger:
        if list_items:
            return _print_items(context, list_failures(ledger, job, causes=causes))
        found = group_failures(ledger, job, causes=causes)
    if context.json:
        emit("failures", {"job_id": job, "causes": [group.__dict__ for group in found.groups]})
        return 0
    for line in _failures_text(found, causes):
        put(line)
    return 0


def _failures_text(found: "Failures", causes: tuple[str, ...]) -> Iterator[str]:
    job = found.job.task_id
    if not found.groups:
        which = f" for {' or '.join(causes)}" if causes else ""
        yield f"{job}: nothing failed{which} and nothing is in doubt"
        return
    yield _head(found)
    for group in found.groups:
        yield from _group_text(group)
    listed = "".join(f" --cause {cause}" for cause in causes)
    sample = one_line(found.groups[0].sample_item)
    yield from next_lines([f"batchrun show {job} {_typed(sample)}", f"batchrun failures {job} --items{listed}"])


def _head(found: "Failures") -> str:
    from batchrun.core.states import ItemState

    stopped = (ItemState.FAILED, ItemState.IN_DOUBT, ItemState.REJECTED)
    counts = [f"{found.counts[state]:,} {state.value.replace('_', ' ')}" for state in stopped if found.counts[state]]
    purged = ", contents purged" if found.job.is_purged else ""
    return f"{found.job.task_id}: {', '.join(counts)} of {several(found.job.total, 'item')}{purged}"


def _group_text(group: "FailureGroup") -> Iterator[str]:
    state = group.state.replace("_", " ")
    kind = "" if group.kind == "doubtful" else f", {group.kind}"
    yield f"{group.count:>7,}  {group.cause}  ({state}{kind})"
    words = one_line(group.sample_message) if group.sample_message else "(no words)"
    yield f"         sample  {one_line(group.sample_item)} (line {group.sample_line_no:,}): {words}"
    yield f"         do      {group.hint}"
    for number, step in enumerate(group.next_command.split(" && ")):
        yield f"         {'then' if number == 0 else '':<4}    {step}"


def _typed(name: str) -> str:
    import shlex

    return shlex.quote(name)


def _print_items(context: Context, listed: Iterable[dict[str, Any]]) -> int:
    for item in listed:
        if context.json:
            emit("failure", item)
        else:
            message = one_line(item["message"] or "(no words)")
            name, state = one_line(item["custom_id"]), item["state"].replace("_", " ")
            put(f"{name}  line {item['line_no']:,}  {state}  {item['cause']}: {message}")
    return 0
