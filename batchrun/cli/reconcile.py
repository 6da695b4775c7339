"""`batchrun reconcile`."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from batchrun.cli.context import JOB, Context
from batchrun.cli.context import command as make_command
from batchrun.cli.performing import perform, show_arrival
from batchrun.cli.say import ask, dollars, emit, next_lines, put, rfc3339, say
from batchrun.core.wording import several
from batchrun.errors import UsageFault

if TYPE_CHECKING:
    from batchrun.ledger.jobs import Job
    from batchrun.ledger.liveness import Worker
    from batchrun.runner.reconcile import Doubt
    from batchrun.wiring import House

LISTED = 20


@make_command("batchrun reconcile batch-001 --retry")
@click.argument("job", type=JOB)
@click.option("--lookup", is_flag=True, help="Ask the endpoint what became of them; free.")
@click.option(
    "--import",
    "import_file",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Take answers from a file: batch output lines, or ids with responses.",
)
@click.option(
    "--replay", is_flag=True, help="Ask again under the same idempotency key, where it is honoured; one bill."
)
@click.option("--retry", is_flag=True, help="Send them again: each may be billed a second time.")
@click.option("--fail", is_flag=True, help="Give them up.")
@click.option("--item", "items", multiple=True, help="Only this item; may be given several times.")
@click.option("--no-run", is_flag=True, help="Only put them back; `resume` runs them.")
@click.option("--dry-run", is_flag=True, help="Say what would happen.")
def command(
    context: Context,
    job: str,
    lookup: bool,
    import_file: Path | None,
    replay: bool,
    retry: bool,
    fail: bool,
    items: tuple[str, ...],
    no_run: bool,
    dry_run: bool,
) -> int:
    """Settle items in doubt: their requests left, or may have, and no answer is known. Without a flag: list them."""
    from batchrun.cli.settling import show_import, show_lookup, show_replay
    from batchrun.runner.control import close_if_over
    from batchrun.runner.hold import sweep_all, working
    from batchrun.runner.imports import import_answers
    from batchrun.runner.lookup import look_up_doubts, means_of
    from batchrun.runner.purged import SEND, refuse_purged
    from batchrun.runner.reconcile import list_doubts
    from batchrun.runner.replay import replay_doubts
    from batchrun.runner.standing import read_standing

    _refuse_two_ways(lookup=lookup, **{"import": import_file is not None}, replay=replay, retry=retry, fail=fail)
    with context.house() as house:
        gear = house.gear()
        concurrency = read_standing(house.ledger, job).job.allowed.high
        with working(house.ledger, gear, concurrency=concurrency) as worker:
            # What dead workers had received settles doubts for nothing.
            if any(sweep_all(house.ledger, gear, worker).adopted.values()):
                close_if_over(house.ledger, job, worker, gear)
            found, doubts = list_doubts(house.ledger, job, custom_ids=items)
            if lookup:
                means = means_of(found)
                looked = look_up_doubts(house.ledger, found, doubts, gear=gear, is_dry=dry_run)
                if not dry_run:
                    close_if_over(house.ledger, job, worker, gear)
                return show_lookup(context, looked, read_standing(house.ledger, job), means=means, is_dry=dry_run)
            if import_file is not None:
                brought = import_answers(house.ledger, found, import_file, gear=gear, custom_ids=items, is_dry=dry_run)
                if not dry_run:
                    close_if_over(house.ledger, job, worker, gear)
                return show_import(context, brought, read_standing(house.ledger, job), path=import_file, is_dry=dry_run)
            if retry or replay:
                refuse_purged(found, SEND)
            if replay:
                again = replay_doubts(house.ledger, found, doubts, gear=gear, worker=worker, is_dry=dry_run)
                if not dry_run:
                    close_if_over(house.ledger, job, worker, gear)
                return show_replay(context, again, read_standing(house.ledger, job), is_dry=dry_run)
            if doubts and not dry_run and (retry or fail):
                return _decide(context, house, worker, found, doubts, is_retry=retry, no_run=no_run)
    return _report(context, found, doubts, applied=0, dry_run=dry_run)


def _refuse_two_ways(**ways: bool) -> None:
    chosen = [f"--{name}" for name, is_chosen in ways.items() if is_chosen]
    if len(chosen) > 1:
        raise UsageFault(
            f"{' and '.join(chosen)} exclude each other: a doubt is settled in one way", hint="choose one of them"
        )


def _decide(
    context: Context,
    house: "House",
    worker: "Worker",
    found: "Job",
    doubts: "Sequence[Doubt]",
    *,
    is_retry: bool,
    no_run: bool,
) -> int:
    """Send doubts again or give them up, as the user says, and take the job to its end."""
    from batchrun.runner.reconcile import fail_doubts
    from batchrun.runner.resume import change_of_mind
    from batchrun.runner.retry import greatest_cost, send_again

    for line in _doubt_lines(doubts):
        say(context, line)
    chosen = [doubt.item for doubt in doubts]
    if is_retry:
        most = greatest_cost(chosen)
        cost = "" if most is None else f" (at most {dollars(most)})"
        if not ask(context, f"send {several(len(chosen), 'item')} again? each may be billed a second time{cost}"):
            say(context, "nothing was sent")
            return 6
        applied = send_again(house.ledger, found, chosen)
    else:
        applied = fail_doubts(house.ledger, found, doubts)
    if not applied or (is_retry and no_run):
        return _report(context, found, doubts, applied=applied, dry_run=False)
    return show_arrival(
        context, perform(context, house, found.task_id, worker=worker, prepare=change_of_mind(house.ledger))
    )


def _doubt_lines(doubts: "Sequence[Doubt]") -> list[str]:
    """Return the doubts under what is known of each: when it was sent, under which attempt id, its greatest cost."""
    groups: dict[str, list[str]] = {}
    for doubt in doubts[:LISTED]:
        at = f"sent {rfc3339(doubt.sent_at)}" if doubt.sent_at else "not known whether sent"
        cost = "" if doubt.possible_pusd is None else f"  at most {dollars(doubt.possible_pusd)}"
        if doubt.is_charged:
            cost = "  billed for certain" + ("" if doubt.cost_pusd is None else f" {dollars(doubt.cost_pusd)}")
        line = f"    {doubt.item.custom_id}  {doubt.attempt_id}  {at}{cost}"
        known = f"  {doubt.item.cause}" + (f": {doubt.item.message}" if doubt.item.message else "")
        groups.setdefault(known, []).append(line)
    lines = [line for known, listed in groups.items() for line in (known, *listed)]
    if len(doubts) > LISTED:
        lines.append(f"    ... and {len(doubts) - LISTED:,} more (--json lists all)")
    return lines


def _report(context: Context, found: "Job", doubts: "Sequence[Doubt]", *, applied: int, dry_run: bool) -> int:
    job = found.task_id
    if context.json:
        listed = [
            {
                "custom_id": doubt.item.custom_id,
                "attempt_id": doubt.attempt_id,
                "sent_at": rfc3339(doubt.sent_at),
                "endpoint": doubt.endpoint,
                "cause": doubt.item.cause,
                "message": doubt.item.message,
                "billed": "yes" if doubt.is_charged else "perhaps",
                "host": doubt.host,
                "folder": doubt.folder,
            }
            for doubt in doubts
        ]
        emit("doubts", {"job_id": job, "in_doubt": listed, "applied": applied > 0, "dry_run": dry_run})
        return 0
    if not doubts:
        click.echo(f"{job}: nothing is in doubt")
        return 0
    noun = "1 item" if len(doubts) == 1 else f"{len(doubts):,} items"
    put(f"{noun} in doubt: a request left, or may have, and no answer is known")
    for line in _doubt_lines(doubts):
        put(line)
    following = [f"batchrun reconcile {job} --lookup (free)"] if found.spec.get("lookup") else []
    following += [f"batchrun reconcile {job} --replay (one bill)"] if found.spec.get("idempotency_header") else []
    following += [] if found.is_purged else [f"batchrun reconcile {job} --retry (may bill twice)"]
    following.append(f"batchrun reconcile {job} --fail")
    for line in next_lines([f"batchrun resume {job}"] if applied else following):
        put(line)
    return 0
