"""`batchrun validate`."""

import shlex
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from batchrun.cli.context import Context
from batchrun.cli.context import command as make_command
from batchrun.cli.live import Live, show_checking
from batchrun.cli.say import columns_of, emit, put
from batchrun.core.printable import clip, one_line
from batchrun.core.wording import several

if TYPE_CHECKING:
    from batchrun.runner.specs import Found

COLUMNS = 100  # of a prompt, where no terminal says how wide it is


@make_command("batchrun validate jobs/job.json")
@click.argument("specs", metavar="SPEC...", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "--max-errors", default=20, show_default=True, type=click.IntRange(1), metavar="N", help="Input faults to list."
)
def command(context: Context, specs: tuple[Path, ...], max_errors: int) -> int:
    """Check a spec and its whole input, without network: all faults at once, with their lines.

    Several specs, or a .jsonl with one a line, are checked together, as `submit` takes them.
    """
    from batchrun.cli.registering import priced
    from batchrun.runner.specs import check_specs

    with Live(context) as live:
        found = check_specs(specs, max_faults=max_errors, watch=partial(show_checking, live))
    if any(spec.checked.spec.price_from for spec in found):
        found = [priced(context.settings(), spec) for spec in found]
    for spec in found:
        if context.json:
            emit("validation", _json(spec))
            continue
        for line in _lines(spec, columns=columns_of(sys.stdout) or COLUMNS):
            put(line)
    if not context.json:
        put(f"next:  batchrun submit {shlex.join(map(str, specs))}")
    return 0


def _lines(spec: "Found", *, columns: int) -> Iterator[str]:
    from batchrun.cli.registering import looked_up

    seen = spec.checked.survey
    yield f"ok  spec   {spec.where}"
    yield f"ok  input  {several(seen.items, 'item')}, ids unique, {_size(seen.size_bytes)}"
    if seen.first is not None:
        head = f"    asks   line {seen.first.line_no}: "
        yield head + clip(one_line(seen.first.words) or "(nothing that can be shown)", columns - len(head))
    for price in looked_up(spec):
        yield f"ok  price  {price}"
    for warning in spec.checked.warnings:
        yield f"warn  {warning}"
        yield f"      hint: {warning.hint}"


def _json(spec: "Found") -> dict[str, Any]:
    seen = spec.checked.survey
    values = {"spec": spec.where, "items": seen.items, "bytes": seen.size_bytes, "input_digest": seen.sha256}
    first = None if seen.first is None else {"line_no": seen.first.line_no, "prompt": seen.first.words}
    warnings = [{"where": one.where, "what": one.what, "hint": one.hint} for one in spec.checked.warnings]
    return {**values, "first": first, "warnings": warnings}


def _size(size_bytes: int) -> str:
    return f"{size_bytes / 1e6:,.1f} MB" if size_bytes >= 1e6 else f"{size_bytes / 1e3:,.1f} kB"
