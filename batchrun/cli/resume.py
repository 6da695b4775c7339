"""`batchrun resume`."""

from dataclasses import asdict
from decimal import Decimal
from typing import TYPE_CHECKING

import click

from batchrun.cli.at_once import AtOnce
from batchrun.cli.context import JOB, Context
from batchrun.cli.context import command as make_command
from batchrun.cli.money import Money
from batchrun.cli.performing import perform, show_arrival
from batchrun.cli.registering import take_changes
from batchrun.cli.say import emit, next_lines, put, say
from batchrun.cli.standing import counts_text
from batchrun.core.wording import several

if TYPE_CHECKING:
    from batchrun.core.concurrency import Concurrency
    from batchrun.runner.resume import ResumePlan
    from batchrun.runner.standing import Standing


@make_command("batchrun resume batch-001")
@click.argument("job", type=JOB)
@click.option("--on-unknown", type=click.Choice(["hold", "retry"]), help="What to do when a request's fate is unknown.")
@click.option("--cancelled", is_flag=True, help="Cancelled items too.")
@click.option("--max-cost", type=Money(), help="A new limit on the job's cost.")
@click.option("-c", "--concurrency", type=AtOnce(), metavar="N", help="Requests in flight at once; or auto, or 4-64.")
@click.option("--accept-changes", is_flag=True, help="Go on with the input file as it is now.")
@click.option("--keep-input", is_flag=True, help="Go on with the input as it was registered, whatever the file holds.")
@click.option("--no-wait", is_flag=True, help="If another process performs the job, exit 9 instead of following it.")
@click.option("--dry-run", is_flag=True, help="Say what would be sent; nothing is written.")
def command(
    context: Context,
    job: str,
    on_unknown: str | None,
    cancelled: bool,
    max_cost: Decimal | None,
    concurrency: "Concurrency | None",
    accept_changes: bool,
    keep_input: bool,
    no_wait: bool,
    dry_run: bool,
) -> int:
    """Go on after any interruption, pause or gate stop.

    Answers are kept. Items in doubt stay so under `hold`; under `retry` they are sent again.
    """
    from batchrun.core.prices import to_pusd
    from batchrun.runner.check import check_again, has_other_input
    from batchrun.runner.hold import working
    from batchrun.runner.resume import change_of_mind, plan_resume, spoken_for
    from batchrun.runner.standing import read_standing
    from batchrun.runner.submit import is_unfinished

    with context.house() as house:
        before = read_standing(house.ledger, job)
        is_changed = not keep_input and not is_unfinished(before.job) and has_other_input(before.job)
        policy = on_unknown or spoken_for(before.job, house.settings.on_unknown)
        if dry_run:
            plan = plan_resume(house.ledger, before, on_unknown=policy, cancelled=cancelled)
            return _show_plan(context, before, plan, is_changed=is_changed)
        say(context, f"resume {job}: {counts_text(before)}")
        gear = house.gear()
        step = change_of_mind(
            house.ledger,
            on_unknown=policy,
            concurrency=concurrency,
            max_cost_pusd=to_pusd(max_cost),
            cancelled=cancelled,
            gate="past",
        )
        with working(house.ledger, gear, concurrency=(concurrency or before.job.allowed).high) as worker:
            if is_changed:
                take_changes(
                    context,
                    house,
                    check_again(before.job),
                    before.job,
                    worker=worker,
                    spec=dict(before.job.spec),
                    is_accepted=accept_changes,
                    command=f"batchrun resume {job}",
                    otherwise="--keep-input to go on with the input as it was registered",
                )
            arrival = perform(context, house, job, worker=worker, wait=not no_wait, prepare=step)
    return show_arrival(context, arrival)


def _show_plan(context: Context, before: "Standing", plan: "ResumePlan", *, is_changed: bool) -> int:
    job = before.job.task_id
    if context.json:
        values = {
            "job_id": job,
            "state": before.job.state,
            "reason": before.job.reason,
            **asdict(plan),
            "holder": before.holder and {**before.holder, "has_died": before.has_died},
            "input_changed": is_changed,
            "dry_run": True,
        }
        emit("resume", values)
        return 0
    put(f"would resume {job}: {several(plan.to_send, 'item')} to send, {several(plan.kept, 'answer')} kept")
    if before.is_worked_on:
        put(f"  {before.performer} performs it: this would follow")
    if plan.unsettled:
        put(f"  {plan.unsettled:,} in flight: of a process that died they become answers, doubts, or unsent again")
    if plan.to_send_again:
        put(f"  {plan.to_send_again:,} in doubt would be sent again, and may be billed a second time")
    if plan.in_doubt:
        put(f"  {plan.in_doubt:,} in doubt stay so: batchrun reconcile {job}")
    if is_changed:
        put("  the input file has changed: it would be compared first, and refused without --accept-changes")
    for line in next_lines([f"batchrun resume {job}"]):
        put(line)
    return 0
