"""`batchrun validate`."""

from pathlib import Path

import click

from batchrun.cli.context import Context
from batchrun.cli.context import command as make_command
from batchrun.cli.say import emit


@make_command("batchrun validate jobs/job.json")
@click.argument("spec", type=click.Path(path_type=Path))
@click.option(
    "--max-errors", default=20, show_default=True, type=click.IntRange(1), metavar="N", help="Input faults to list."
)
def command(context: Context, spec: Path, max_errors: int) -> int:
    """Check a spec and its whole input, without network: all faults at once, with their lines."""
    from batchrun.runner.check import check

    checked = check(spec, max_faults=max_errors)
    seen = checked.survey
    if context.json:
        values = {"spec": str(spec), "items": seen.items, "bytes": seen.size_bytes, "input_digest": seen.sha256}
        emit("validation", values)
        return 0
    click.echo(f"ok  spec   {spec}")
    click.echo(f"ok  input  {seen.items:,} items, ids unique, {_size(seen.size_bytes)}")
    click.echo(f"next:  batchrun submit {spec}")
    return 0


def _size(size_bytes: int) -> str:
    return f"{size_bytes / 1e6:,.1f} MB" if size_bytes >= 1e6 else f"{size_bytes / 1e3:,.1f} kB"
