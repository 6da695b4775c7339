"""`batchrun export`."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from batchrun.cli.context import JOB, Context
from batchrun.cli.context import command as make_command
from batchrun.cli.say import emit, put
from batchrun.cli.standing import short
from batchrun.core.wording import several
from batchrun.errors import UsageFault

if TYPE_CHECKING:
    from batchrun.runner.export_job import Exported


@make_command("batchrun export batch-001 -o results.csv")
@click.argument("job", type=JOB)
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write here (default for jsonl: the job's files).",
)
@click.option(
    "--format",
    "format_",
    type=click.Choice(["jsonl", "csv", "parquet"]),
    help="Default: as FILE is named; JSONL otherwise.",
)
@click.option(
    "--order",
    type=click.Choice(["input", "finish"]),
    default="input",
    show_default=True,
    help="Of the input's lines, or as the answers came.",
)
@click.option("--join-input", is_flag=True, help="What was asked beside each answer, and the input's own columns.")
@click.option("--join-prompt", is_flag=True, help="What was asked, without the input's columns: needs no input file.")
@click.option("--spreadsheet-safe", is_flag=True, help="CSV: no text that a spreadsheet would compute as a formula.")
def command(
    context: Context,
    job: str,
    output: Path | None,
    format_: Any,
    order: Any,
    join_input: bool,
    join_prompt: bool,
    spreadsheet_safe: bool,
) -> int:
    """Write a job's answers anew from the ledger, at any time: it knows every one.

    JSONL gives an output and an error file as at a job's end. CSV and Parquet give one table with all items, failed
    ones too, a row for each choice of an answer.
    """
    from batchrun.runner.export_job import Wish, export_job

    if join_input and join_prompt:
        raise UsageFault("--join-input joins what --join-prompt does, and more", hint="choose one of them")
    wish = Wish(
        output=output.absolute() if output else None,
        format=format_,
        order=order,
        join="input" if join_input else "prompt" if join_prompt else None,
        spreadsheet_safe=spreadsheet_safe,
    )
    with context.ledger() as ledger:
        written = export_job(ledger, job, wish)
    if context.json:
        emit("export", _json(job, written))
        return 0
    for line in _lines(written):
        put(line)
    return 0


def _lines(written: "Exported") -> list[str]:
    if written.errors is None:
        lines = [
            f"  output  {short(written.output)} ({several(written.count, 'row')} of {several(written.items, 'item')})"
        ]
    else:
        lines = [
            f"  output  {short(written.output)} ({several(written.count, 'line')})",
            f"  errors  {short(written.errors)} ({several(written.error_count, 'line')})",
        ]
    if written.left:
        lines.append(f"  left    {several(written.left, 'item')} not ended yet, and not in it")
    return lines


def _json(job: str, written: "Exported") -> dict[str, Any]:
    return {
        "job_id": job,
        "format": written.format,
        "output_file": str(written.output),
        "output_lines": written.count,
        "error_file": None if written.errors is None else str(written.errors),
        "error_lines": written.error_count,
        "items": written.items,
        "left": written.left,
    }
