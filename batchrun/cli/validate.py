"""`batchrun validate`."""

import shlex
from functools import partial
from pathlib import Path

import click

from batchrun.cli.context import Context
from batchrun.cli.context import command as make_command
from batchrun.cli.live import Live, show_checking
from batchrun.cli.say import emit


@make_command("batchrun validate jobs/job.json")
@click.argument("specs", metavar="SPEC...", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "--max-errors", default=20, show_default=True, type=click.IntRange(1), metavar="N", help="Input faults to list."
)
def command(context: Context, specs: tuple[Path, ...], max_errors: int) -> int:
    """Check a spec and its whole input, without network: all faults at once, with their lines.

    Several specs, or a .jsonl with one a line, are checked together, as `submit` takes them.
    """
    from batchrun.runner.specs import check_specs

    with Live(context) as live:
        found = check_specs(specs, max_faults=max_errors, watch=partial(show_checking, live))
    for spec in found:
        seen = spec.checked.survey
        if context.json:
            values = {"spec": spec.where, "items": seen.items, "bytes": seen.size_bytes, "input_digest": seen.sha256}
            emit("validation", values)
            continue
        click.echo(f"ok  spec   {spec.where}")
        click.echo(f"ok  input  {seen.items:,} items, ids unique, {_size(seen.size_bytes)}")
    if not context.json:
        click.echo(f"next:  batchrun submit {shlex.join(map(str, specs))}")
    return 0


def _size(size_bytes: int) -> str:
    return f"{size_bytes / 1e6:,.1f} MB" if size_bytes >= 1e6 else f"{size_bytes / 1e3:,.1f} kB"
