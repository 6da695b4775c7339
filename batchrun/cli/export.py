"""`batchrun export`."""

from pathlib import Path

import click

from batchrun.cli.context import Context
from batchrun.cli.context import command as make_command
from batchrun.cli.say import emit, put
from batchrun.cli.standing import short
from batchrun.errors import UsageFault


@make_command("batchrun export batch-001 -o results.jsonl")
@click.argument("job")
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write here (default: the job's files).",
)
def command(context: Context, job: str, output: Path | None) -> int:
    """Write output and error file anew from the ledger, at any time: it knows every answer."""
    from batchrun.runner.export import export_job

    if output is not None and output.suffix.lower() in (".csv", ".parquet"):
        raise UsageFault(f"{output.suffix!r} is not available in this release", hint="name a .jsonl file")

    with context.ledger() as ledger:
        written = export_job(ledger, job, output=output.absolute() if output else None)
    if context.json:
        values = {"output_file": str(written.output), "output_lines": written.output_lines}
        emit("export", {"job_id": job, **values, "error_file": str(written.errors), "error_lines": written.error_lines})
        return 0
    put(f"  output  {short(written.output)} ({written.output_lines:,} lines)")
    put(f"  errors  {short(written.errors)} ({written.error_lines:,} lines)")
    return 0
