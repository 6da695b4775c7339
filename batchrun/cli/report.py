"""`batchrun report`."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from batchrun.cli.context import Context
from batchrun.cli.context import command as make_command
from batchrun.cli.say import emit, next_lines, put
from batchrun.cli.subjects import SUBJECT
from batchrun.errors import UsageFault

if TYPE_CHECKING:
    from batchrun.bench.report.content import Report
    from batchrun.bench.subject import Subject

FORMATS = {".html": "html", ".htm": "html", ".md": "md", ".csv": "csv", ".json": "json"}


@make_command("batchrun report batch-001")
@click.argument("subject", metavar="RESULT|JOB", type=SUBJECT)
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write here (default for html: NAME.report.html; for the others: stdout).",
)
@click.option(
    "--format",
    "format_",
    type=click.Choice(["html", "md", "json", "csv"]),
    help="Default: as FILE is named; HTML otherwise.",
)
def command(context: Context, subject: str, output: Path | None, format_: str | None) -> int:
    """Write a report: of a measurement's result file, or of any job in the ledger.

    HTML is one file that opens without network, in light and dark: verdict, setup, loads, charts, diagnosis, where the
    time goes, failures, server and GPU, cost, and what every figure means. CSV has one line a load.
    """
    from batchrun.bench.report.build import build_report
    from batchrun.bench.subject import read_subject

    read = read_subject(subject, context.ledger)
    report = build_report(read.measurement, read.facts)
    form = format_ or ("json" if context.json and output is None else format_of(output))
    if form == "html" and output is None:
        output = Path(f"{Path(read.name).stem if Path(read.name).is_file() else read.name}.report.html")
    if output is not None:
        write(output, _text(form, read, report))
    if context.json or (form == "json" and output is None):
        from batchrun.bench.report.data import to_values

        emit("report", to_values(read, report) | {"file": None if output is None else str(output)})
    elif output is None:
        click.echo(_text(form, read, report), nl=False)
    else:
        _tell(read, report, output)
    return 0


def format_of(output: Path | None) -> str:
    """Return the form that a file's name asks for."""
    return "html" if output is None else FORMATS.get(output.suffix.lower(), "html")


def _text(form: str, read: "Subject", report: "Report") -> str:
    if form == "html":
        from batchrun.bench.report.page import to_html

        return to_html(report)
    if form == "md":
        from batchrun.bench.report.markdown import to_markdown

        return to_markdown(report)
    from batchrun.bench.report.data import to_csv, to_values

    if form == "csv":
        return to_csv(read)
    import json

    return (
        json.dumps({"schema": "batchrun/1", "kind": "report", **to_values(read, report), "file": None}, indent=2) + "\n"
    )


def write(path: Path, text: str) -> None:
    """Write a report to a file.

    Raises:
        UsageFault: it cannot be written.
    """
    try:
        path.write_text(text, encoding="utf-8", errors="backslashreplace")
    except OSError as error:
        raise UsageFault(
            f"{str(path)!r} cannot be written: {error.strerror}", hint="name another FILE with -o"
        ) from error


def _tell(read: "Subject", report: "Report", output: Path) -> None:
    put(report.verdict)
    for warning in report.warnings:
        put(f"  warning  {warning}")
    put(f"  report   {output}")
    for line in next_lines([f"batchrun diagnose {read.name}"]):
        put(line)
