"""`batchrun submit`."""

from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from batchrun.cli.context import Context
from batchrun.cli.context import command as make_command
from batchrun.cli.performing import perform, show_arrival
from batchrun.cli.say import ask, emit, say
from batchrun.errors import BadInput, Fault

if TYPE_CHECKING:
    from batchrun.ledger.jobs import Job
    from batchrun.ledger.liveness import Worker
    from batchrun.runner.check import Checked
    from batchrun.runner.gear import Scope
    from batchrun.runner.submit import Overrides
    from batchrun.wiring import House


class Money(click.ParamType[Decimal]):
    """A positive amount of USD."""

    name = "usd"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Decimal:
        try:
            amount = Decimal(str(value).removeprefix("$"))
        except ArithmeticError:
            self.fail(f"{value!r} is not an amount of money", param, ctx)
        if not amount.is_finite() or amount <= 0:
            self.fail(f"{value!r} must be above 0", param, ctx)
        return amount


@make_command("batchrun submit jobs/job.json")
@click.argument("spec", type=click.Path(path_type=Path))
@click.option(
    "--trial", "trial_size", type=click.IntRange(0, 10_000), metavar="N", help="Items to try first (default: 10)."
)
@click.option("--no-trial", is_flag=True, help="Start the full run at once.")
@click.option("--on-unknown", type=click.Choice(["hold", "retry"]), help="What to do when a request's fate is unknown.")
@click.option("--max-cost", type=Money(), help="No send that could take the job above this.")
@click.option("--skip-invalid", is_flag=True, help="Record faulty lines as rejected and run the rest.")
@click.option("--accept-changes", is_flag=True, help="Go on with a changed input or changed parameters.")
@click.option("--dry-run", is_flag=True, help="Check everything and say what would happen.")
@click.option("--no-wait", is_flag=True, help="If another process performs the job, exit 9 instead of following it.")
@click.option("-c", "--concurrency", type=click.IntRange(1, 10_000), metavar="N", help="Requests in flight at once.")
def command(context: Context, spec: Path, **flags: Any) -> int:
    """Register a job, try a few items, and run it to the end with live progress.

    The trial's results are kept: each item is sent once. Submitting the same job again goes on where it stands.
    """
    from batchrun.runner.gear import Scope

    return submit(context, spec, scope=Scope.WHOLE, **flags)


def submit(
    context: Context,
    spec: Path,
    *,
    scope: "Scope",
    trial_size: int | None = None,
    no_trial: bool = False,
    on_unknown: str | None = None,
    max_cost: Decimal | None = None,
    skip_invalid: bool = False,
    accept_changes: bool = False,
    dry_run: bool = False,
    no_wait: bool = False,
    concurrency: int | None = None,
    trial_changes: dict[str, Any] | None = None,
) -> int:
    """Check, register or find, and drive as far as `scope`."""
    from batchrun.runner.check import check
    from batchrun.runner.gear import Scope
    from batchrun.runner.hold import working
    from batchrun.runner.submit import Overrides, effective_spec
    from batchrun.wiring import refuse_broker, resolve_api_key, resolve_base_url

    checked = check(spec, skip_invalid=skip_invalid)
    if max_cost is not None and checked.spec.price is None:
        raise BadInput([Fault(str(spec), "--max-cost needs a 'price' in the spec", "add price")])
    settings = context.settings()
    overrides = Overrides(
        on_unknown=on_unknown or checked.spec.on_unknown or settings.on_unknown,
        on_unknown_is_said=(on_unknown or checked.spec.on_unknown) is not None,
        concurrency=concurrency,
        max_cost_usd=max_cost,
        trial_size=0 if no_trial else trial_size,
    )
    if dry_run:
        return _dry_run(context, checked)
    # What is missing for the start is said before anything is written.
    refuse_broker(settings)
    base_url = resolve_base_url(settings, checked.spec.base_url)
    resolve_api_key(settings, base_url, checked.spec.api_key_env)
    with context.house(makes_ledger=True) as house:
        gear = house.gear()
        plan = effective_spec(checked, overrides) | {"resolved_base_url": base_url}
        plan["trial"] |= trial_changes or {}
        with working(house.ledger, gear, concurrency=int(plan["concurrency"])) as worker:
            try:
                job = _registered(
                    context,
                    house,
                    checked,
                    plan,
                    worker,
                    is_trial=scope is Scope.TRIAL,
                    accept_changes=accept_changes,
                    wait=not no_wait,
                )
            except KeyboardInterrupt:
                say(context, f"stopped before the job was registered; nothing was sent\nnext:  batchrun submit {spec}")
                raise
            arrival = perform(
                context,
                house,
                job.task_id,
                worker=worker,
                scope=scope,
                wait=not no_wait,
                prepare=_going_on(house, overrides, plan),
            )
    return show_arrival(context, arrival)


def _registered(
    context: Context,
    house: "House",
    checked: "Checked",
    plan: dict[str, Any],
    worker: "Worker",
    *,
    is_trial: bool,
    accept_changes: bool,
    wait: bool,
) -> "Job":
    """Register the job, or find it, or take a changed input for it."""
    from batchrun.core.states import FINAL_JOB_STATES
    from batchrun.ledger.liveness import Observer
    from batchrun.runner import submit as verbs

    ledger = house.ledger
    job = verbs.find(ledger, checked.spec.task_id)
    if job is None:
        say(context, f"{checked.spec.task_id}: {checked.survey.items:,} items -> {plan['resolved_base_url']}")
        job = verbs.register(ledger, checked, spec=plan, worker_id=worker.id, is_trial=is_trial)
        if job is not None:
            return job
        job = verbs.find(ledger, checked.spec.task_id)
        assert job is not None
    if verbs.is_unfinished(job):
        observer = Observer(ledger, dead_after_s=house.settings.dead_after_s)
        taken = verbs.take_over_registration(
            ledger,
            checked,
            job,
            worker_id=worker.id,
            observer=observer,
            wait=wait,
            say=lambda text: say(context, text),
        )
        if taken is not None:
            return taken
        job = verbs.find(ledger, checked.spec.task_id)
        assert job is not None
    if verbs.is_same(job, checked):
        does = "nothing is left to do" if job.state in FINAL_JOB_STATES else "going on with it"
        say(context, f"{job.task_id} stands in the ledger already ({job.state.value.replace('_', ' ')}); {does}")
        return job
    return take_changes(
        context,
        house,
        checked,
        job,
        worker=worker,
        spec=plan,
        is_accepted=accept_changes,
        otherwise="use another task_id",
    )


def take_changes(
    context: Context,
    house: "House",
    checked: "Checked",
    job: "Job",
    *,
    worker: "Worker",
    spec: dict[str, Any],
    is_accepted: bool,
    otherwise: str,
) -> "Job":
    """Explain what is different in a changed input or in changed parameters, and take it over where that is accepted.

    Lines that were only written differently, or stand in another order, need no consent. The job is held meanwhile:
    the lines that are compared must be the ones that are taken.
    """
    from batchrun.runner import submit as verbs
    from batchrun.runner.hold import holding, sweep_all

    gear = house.gear()
    with holding(house.ledger, job, worker, gear):
        sweep_all(house.ledger, gear, worker)
        changes = verbs.explain_changes(house.ledger, checked, job)
        question = f"{changes.answered:,} changed items have answers that were paid for: send, and pay, them again?"
        is_wanted = changes.is_none or (is_accepted and (not changes.answered or ask(context, question)))
        if not is_wanted:
            raise verbs.refuse_changes(house.ledger, changes, job, otherwise=otherwise)
        job, changes = verbs.accept_changes(house.ledger, checked, job, spec=spec)
    restored = f", {changes.restored:,} back from before" if changes.restored else ""
    say(
        context,
        f"{job.task_id}: {changes.unchanged:,} items unchanged and kept, {changes.changed:,} changed, "
        f"{changes.new:,} new{restored}, {changes.removed:,} removed",
    )
    return job


def _going_on(house: "House", overrides: "Overrides", plan: dict[str, Any]) -> "Any":
    """Make the step that takes over what the spec says now of everything that is no part of the job's identity."""
    from batchrun.core.prices import to_pusd
    from batchrun.runner import submit as verbs
    from batchrun.runner.resume import change_of_mind

    return change_of_mind(
        house.ledger,
        on_unknown=overrides.on_unknown,
        concurrency=plan["concurrency"],
        retry_times=plan["retry_times"],
        max_cost_pusd=to_pusd(plan["max_cost_usd"]),
        spec_of=lambda job: verbs.without_identity(job, plan),
        gate="stop",
    )


def _dry_run(context: Context, checked: "Checked") -> int:
    values = {"job_id": checked.spec.task_id, "items": checked.survey.items, "dry_run": True, "applied": False}
    if context.json:
        emit("submit", values)
    else:
        click.echo(f"would submit {checked.spec.task_id}: {checked.survey.items:,} items; nothing was written or sent")
    return 0
