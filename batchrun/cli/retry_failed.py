"""`batchrun retry-failed`."""

from typing import TYPE_CHECKING

import click

from batchrun.cli.context import JOB, Context
from batchrun.cli.context import command as make_command
from batchrun.cli.performing import perform, show_arrival
from batchrun.cli.say import ask, dollars, emit, put, say
from batchrun.core.wording import several

if TYPE_CHECKING:
    from batchrun.runner.retry import RetryPlan


@make_command("batchrun retry-failed batch-001 --cause rate_limited")
@click.argument("job", type=JOB)
@click.option("--cause", "causes", multiple=True, help="Only this cause; may be given several times.")
@click.option("--item", "items", multiple=True, help="Only this item; may be given several times.")
@click.option("--all", "everything", is_flag=True, help="Permanent failures and given-up items too.")
@click.option("--no-run", is_flag=True, help="Only put them back; `resume` runs them.")
@click.option("--dry-run", is_flag=True, help="Say what would be sent again.")
def command(
    context: Context,
    job: str,
    causes: tuple[str, ...],
    items: tuple[str, ...],
    everything: bool,
    no_run: bool,
    dry_run: bool,
) -> int:
    """Send failed items again, to the end. Permanent failures and items in doubt are left alone, and it says so."""
    from batchrun.runner.hold import working
    from batchrun.runner.resume import change_of_mind
    from batchrun.runner.retry import plan_retry, send_again

    with context.house() as house:
        plan = plan_retry(house.ledger, job, causes=causes, custom_ids=items, include_permanent=everything)
        if dry_run or not plan.chosen:
            return _show_plan(context, plan, dry_run=dry_run)
        say(context, _plan_text(plan))
        if (plan.greatest_pusd is not None or plan.billed) and not ask(context, _question(plan)):
            say(context, "nothing was sent")
            return 0
        moved = send_again(house.ledger, plan.job, plan.chosen)
        if no_run:
            return _show_plan(context, plan, moved=moved)
        gear = house.gear()
        with working(house.ledger, gear, concurrency=plan.job.allowed.high) as worker:
            arrival = perform(context, house, job, worker=worker, prepare=change_of_mind(house.ledger))
    return show_arrival(context, arrival)


def _question(plan: "RetryPlan") -> str:
    cost = "" if plan.greatest_pusd is None else f" for at most {dollars(plan.greatest_pusd)}"
    return f"send {several(len(plan.chosen), 'item')} again{cost}?"


def _plan_text(plan: "RetryPlan") -> str:
    by_cause: dict[str, int] = {}
    for one in plan.chosen:
        by_cause[one.cause or "unknown"] = by_cause.get(one.cause or "unknown", 0) + 1
    parts = ", ".join(f"{cause} {count:,}" for cause, count in sorted(by_cause.items()))
    noun = "1 failed item" if len(plan.chosen) == 1 else f"{len(plan.chosen):,} failed items"
    left = []
    if plan.permanent:
        left.append(f"{plan.permanent:,} permanent (--all)")
    if plan.in_doubt:
        left.append(f"{plan.in_doubt:,} in doubt (batchrun reconcile {plan.job.task_id})")
    if plan.billed:
        parts += f". Billed once already, or perhaps: {plan.billed:,}"
    tail = f". Not sent again: {', '.join(left)}" if left else ""
    return f"{noun} to send again{f': {parts}' if parts else ''}{tail}"


def _show_plan(context: Context, plan: "RetryPlan", *, dry_run: bool = False, moved: int = 0) -> int:
    if context.json:
        emit(
            "retry",
            {
                "job_id": plan.job.task_id,
                "items": len(plan.chosen),
                "permanent": plan.permanent,
                "in_doubt": plan.in_doubt,
                "possibly_billed": plan.billed,
                "applied": moved > 0,
                "dry_run": dry_run,
            },
        )
    else:
        put(("would be: " if dry_run else "") + _plan_text(plan))
        if moved:
            put(f"next:  batchrun resume {plan.job.task_id}")
    return 0
