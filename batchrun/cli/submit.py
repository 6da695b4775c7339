"""`batchrun submit`."""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from batchrun.cli.at_once import AtOnce
from batchrun.cli.context import Context
from batchrun.cli.context import command as make_command
from batchrun.cli.live import Live, show_checking
from batchrun.cli.money import Money
from batchrun.cli.performing import perform, show_arrival, warn_of_models
from batchrun.cli.say import emit, say
from batchrun.core.wording import several
from batchrun.errors import UsageFault

if TYPE_CHECKING:
    from collections.abc import Sequence

    from batchrun.cli.registering import Ready, Wish
    from batchrun.runner.check import Checked


@make_command("batchrun submit jobs/job.json")
@click.argument("specs", metavar="SPEC...", nargs=-1, required=True, type=click.Path(path_type=Path))
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
@click.option("--detach", is_flag=True, help="With a broker: leave the job to the workers and return.")
@click.option("-c", "--concurrency", type=AtOnce(), metavar="N", help="Requests in flight at once; or auto, or 4-64.")
def command(context: Context, specs: tuple[Path, ...], **flags: Any) -> int:
    """Register a job, try a few items, and run it to the end with live progress.

    The trial's results are kept: each item is sent once. Submitting the same job again goes on where it stands.
    Several specs, or a .jsonl with one a line, are checked and registered together, then run in turn.
    """
    from batchrun.cli.registering import Wish
    from batchrun.runner.gear import Scope

    return submit(context, specs, Wish(Scope.WHOLE, **flags))


def submit(context: Context, specs: "Sequence[Path]", wish: "Wish") -> int:
    """Check the specs with their inputs, register or find their jobs, and drive each as far as is wished."""
    from batchrun.cli.registering import make_ready, priced, refuse_limit, say_prices
    from batchrun.cli.series import run_in_turn
    from batchrun.runner.specs import check_specs
    from batchrun.wiring import check_broker

    with Live(context) as live:
        found = check_specs(specs, skip_invalid=wish.skip_invalid, watch=partial(show_checking, live))
    for warning in (warning for spec in found for warning in spec.checked.warnings):
        say(context, f"warn  {warning}\n      hint: {warning.hint}")
    if wish.max_cost is not None:
        refuse_limit(found)
    settings = context.settings()
    found = [priced(settings, spec) for spec in found]
    say_prices(context, found)
    if wish.dry_run:
        for spec in found:
            _say_dry_run(context, spec.checked)
        return 0
    # What is missing for the start is said before anything is written.
    check_broker(settings)
    if wish.detach and settings.broker is None:
        raise UsageFault(
            "--detach needs a broker: without workers the job runs in this very process",
            hint="export BATCHRUN_BROKER=redis://127.0.0.1:6379/0, and start `batchrun worker`",
        )
    ready = [make_ready(settings, spec, wish) for spec in found]
    return run_alone(context, ready[0], wish) if len(ready) == 1 else run_in_turn(context, ready, wish)


def run_alone(context: Context, ready: "Ready", wish: "Wish") -> int:
    """Register one job and drive it, held by this process from the first moment to the last."""
    from batchrun.cli.registering import going_on, registered
    from batchrun.runner.hold import working

    with (
        context.house(makes_ledger=True) as house,
        working(house.ledger, house.gear(), concurrency=ready.concurrency.high) as worker,
    ):
        try:
            job = registered(context, house, ready, wish, worker)
        except KeyboardInterrupt:
            again = f"batchrun submit {ready.where.partition(' line ')[0]}"
            say(context, f"stopped before the job was registered; nothing was sent\nnext:  {again}")
            raise
        warn_of_models(context, house, job)
        arrival = perform(
            context,
            house,
            job.task_id,
            worker=worker,
            scope=wish.scope,
            wait=not wish.no_wait,
            prepare=going_on(house, ready),
            is_followed=not wish.detach,
        )
    return show_arrival(context, arrival)


def _say_dry_run(context: Context, checked: "Checked") -> None:
    values = {"job_id": checked.spec.task_id, "items": checked.survey.items, "dry_run": True, "applied": False}
    if context.json:
        emit("submit", values)
    else:
        click.echo(
            f"would submit {checked.spec.task_id}: {several(checked.survey.items, 'item')}; nothing was written or sent"
        )
