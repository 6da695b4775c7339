"""`batchrun resume`."""

from decimal import Decimal
from typing import TYPE_CHECKING

import click

from batchrun.cli.at_once import AtOnce
from batchrun.cli.context import JOB, Context
from batchrun.cli.context import command as make_command
from batchrun.cli.money import Money
from batchrun.cli.performing import perform, show_arrival
from batchrun.cli.registering import take_changes
from batchrun.cli.say import say
from batchrun.cli.standing import counts_text

if TYPE_CHECKING:
    from batchrun.core.concurrency import Concurrency


@make_command("batchrun resume batch-001")
@click.argument("job", type=JOB)
@click.option("--on-unknown", type=click.Choice(["hold", "retry"]), help="What to do when a request's fate is unknown.")
@click.option("--cancelled", is_flag=True, help="Cancelled items too.")
@click.option("--max-cost", type=Money(), help="A new limit on the job's cost.")
@click.option("-c", "--concurrency", type=AtOnce(), metavar="N", help="Requests in flight at once; or auto, or 4-64.")
@click.option("--accept-changes", is_flag=True, help="Go on with the input file as it is now.")
@click.option("--keep-input", is_flag=True, help="Go on with the input as it was registered, whatever the file holds.")
@click.option("--no-wait", is_flag=True, help="If another process performs the job, exit 9 instead of following it.")
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
) -> int:
    """Go on after any interruption, pause or gate stop.

    Answers are kept. Items in doubt stay so under `hold`; under `retry` they are sent again.
    """
    from batchrun.core.prices import to_pusd
    from batchrun.runner.check import check_again, has_other_input
    from batchrun.runner.hold import working
    from batchrun.runner.resume import change_of_mind, spoken_for
    from batchrun.runner.standing import read_standing
    from batchrun.runner.submit import is_unfinished

    with context.house() as house:
        before = read_standing(house.ledger, job)
        say(context, f"resume {job}: {counts_text(before)}")
        is_changed = not keep_input and not is_unfinished(before.job) and has_other_input(before.job)
        gear = house.gear()
        step = change_of_mind(
            house.ledger,
            on_unknown=on_unknown or spoken_for(before.job, house.settings.on_unknown),
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
