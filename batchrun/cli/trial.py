"""`batchrun trial`."""

from pathlib import Path
from typing import Any

import click

from batchrun.cli.at_once import AtOnce
from batchrun.cli.context import Context
from batchrun.cli.context import command as make_command
from batchrun.cli.submit import submit


@make_command("batchrun trial jobs/job.json -n 10")
@click.argument("specs", metavar="SPEC...", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("-n", "size", type=click.IntRange(1, 10_000), metavar="N", help="Items to try (default: 10).")
@click.option(
    "--sample",
    type=click.Choice(["stratified", "head", "random"]),
    help="Which items: by length (the default), the first, any.",
)
@click.option("--seed", type=click.IntRange(0), metavar="N", help="Seed of the draw.")
@click.option("--skip-invalid", is_flag=True, help="Record faulty lines as rejected and try among the rest.")
@click.option("--on-unknown", type=click.Choice(["hold", "retry"]), help="What to do when a request's fate is unknown.")
@click.option("-c", "--concurrency", type=AtOnce(), metavar="N", help="Requests in flight at once; or auto, or 4-64.")
def command(
    context: Context, specs: tuple[Path, ...], size: int | None, sample: str | None, seed: int | None, **flags: Any
) -> int:
    """Try a few items for real: what they cost, how long they take, what fails.

    The results are kept: a later submit does not send these items again.
    """
    from batchrun.cli.registering import Wish
    from batchrun.runner.gear import Scope

    changes = {name: value for name, value in (("sample", sample), ("seed", seed)) if value is not None}
    return submit(context, specs, Wish(Scope.TRIAL, trial_size=size, trial_changes=changes, **flags))
