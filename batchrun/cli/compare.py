"""`batchrun compare`."""

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from batchrun.cli.context import Context
from batchrun.cli.context import command as make_command
from batchrun.cli.report import format_of, write
from batchrun.cli.say import emit, put
from batchrun.cli.shadow import FINISHED, Second, send_both, shadow_options
from batchrun.cli.subjects import SUBJECT
from batchrun.core.printable import columns_taken
from batchrun.errors import UsageFault

if TYPE_CHECKING:
    from batchrun.bench.comparing import Comparison
    from batchrun.bench.report.content import Report, Table
    from batchrun.cli.shadow import Sent
    from batchrun.core.measuring.answers import AnswerPair
    from batchrun.core.measuring.comparison import Limit


@make_command("batchrun compare batch-001 batch-002 --fail-if 'p95_e2el>+10%'")
@click.argument("a", metavar="A", type=SUBJECT)
@click.argument("b", metavar="[B]", type=SUBJECT, required=False)
@click.option(
    "--fail-if",
    "limits",
    metavar="LIMIT",
    multiple=True,
    help="Exit with 7 where B is so much worse, such as 'p95_e2el>+10%'; may be given several times.",
)
@click.option("--force", is_flag=True, help="Compare them though model, input, seed or parameters differ.")
@click.option(
    "--answers",
    metavar="FILE",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write the answers of two jobs here side by side, as JSONL.",
)
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write the comparison as a report: FILE.html or FILE.md.",
)
@shadow_options
def command(
    context: Context,
    a: str,
    b: str | None,
    limits: Sequence[str],
    force: bool,
    answers: Path | None,
    output: Path | None,
    shadow: str | None,
    **about: Any,
) -> int:
    """Put two results or two jobs side by side: latency, errors, cost, answers.

    A and B are result files or jobs; without B, the two groups of one result. Where the ranges of three rounds or more
    overlap there is no clear difference. Answers of two jobs are compared by their items' ids.

    With --shadow, A is a spec: a share of its input is sent to its endpoint and to URL, as two jobs like any other. The
    same command again goes on where they stand.
    """
    wanted = _limits(limits)
    sent = None
    if shadow is not None:
        if b is not None:
            raise UsageFault("--shadow compares a spec with itself, elsewhere", hint=f"leave out {b!r}")
        sent = send_both(context, a, Second(shadow, **about))
        if not sent.is_over:
            return sent.exit_code
        a, b, force = f"{sent.name}-a", f"{sent.name}-b", force or sent.has_other_model
    code = _compare(context, a, b, wanted, is_forced=force, answers=answers, output=output, sent=sent)
    if sent is None or (code and sent.exit_code in FINISHED):
        return code
    return sent.exit_code


def _compare(
    context: Context,
    a: str,
    b: str | None,
    wanted: "Sequence[Limit]",
    *,
    is_forced: bool,
    answers: Path | None,
    output: Path | None,
    sent: "Sent | None",
) -> int:
    from batchrun.bench.comparing import compare
    from batchrun.bench.report.compared import compare_report
    from batchrun.bench.report.loads import field_table
    from batchrun.bench.subject import read_subject

    first = read_subject(a, context.ledger)
    second = None if b is None else read_subject(b, context.ledger)
    with ExitStack() as stack:
        are_jobs = bool(first.facts and second and second.facts)
        if answers is not None and not are_jobs:
            raise UsageFault("only two jobs have answers to compare", hint="name two jobs of this ledger")
        ledger = stack.enter_context(context.ledger()) if are_jobs else None
        each = _writer(stack, answers) if answers is not None else _nothing
        found = compare(first, second, limits=wanted, is_forced=is_forced, ledger=ledger, each=each)
    experiments = [field_table(one.measurement) for one in (first, second) if one is not None]
    report = compare_report(found, experiments)
    if output is not None:
        write(output, _text(format_of(output), report))
    if context.json:
        emit("comparison", _json(found, report, sent))
    else:
        for line in _lines(found, report, experiments):
            put(line)
    return 7 if found.broken else 0


def _limits(texts: Sequence[str]) -> "list[Limit]":
    from batchrun.bench.comparing import JOB_FIGURES
    from batchrun.core.measuring.comparison import Limit

    try:
        return [Limit.parse(text, also=JOB_FIGURES) for text in texts]
    except ValueError as error:
        raise UsageFault(str(error), hint="batchrun compare A B --fail-if 'p95_e2el>+10%'") from None


def _nothing(pair: "AnswerPair") -> None:
    """Keep no answer."""


def _writer(stack: ExitStack, path: Path) -> "Callable[[AnswerPair], None]":
    try:
        file = stack.enter_context(path.open("w", encoding="utf-8", errors="backslashreplace"))
    except OSError as error:
        raise UsageFault(f"{str(path)!r} cannot be written: {error.strerror}", hint="name another FILE") from error

    def put_pair(pair: "AnswerPair") -> None:
        values = {"custom_id": pair.custom_id, "verdict": pair.verdict, "a": pair.a, "b": pair.b}
        file.write(json.dumps(values, ensure_ascii=False) + "\n")

    return put_pair


def _text(form: str, report: "Report") -> str:
    if form == "html":
        from batchrun.bench.report.page import to_html

        return to_html(report)
    if form == "md":
        from batchrun.bench.report.markdown import to_markdown

        return to_markdown(report)
    raise UsageFault("a comparison is written as HTML or Markdown", hint="-o FILE.html, or --json for programs")


def _lines(found: "Comparison", report: "Report", experiments: "Sequence[Table]") -> Iterator[str]:
    yield report.verdict
    for warning in report.warnings:
        yield f"  warning  {warning}"
    for section in report.sections[:-1]:
        for name, value in section.facts:
            yield f"  {name}  {value}"
        for shown in section.tables:
            yield ""
            yield f"{shown.title}"
            yield from _table(shown)
    yield ""
    yield "Experiments"
    for shown in experiments:
        yield from _table(shown)


def _table(shown: "Table") -> Iterator[str]:
    """Write a table in columns as wide as their widest cell; the last one may run on."""
    rows = [shown.columns, *shown.rows]
    widths = [max(columns_taken(row[at]) for row in rows) for at in range(len(shown.columns))]
    for row in rows:
        cells = []
        for at, cell in enumerate(row):
            blank = " " * (widths[at] - columns_taken(cell))
            last = at == len(row) - 1
            cells.append(blank + cell if at in shown.numbers and not last else cell + ("" if last else blank))
        yield f"  {'  '.join(cells)}"


def _json(found: "Comparison", report: "Report", sent: "Sent | None") -> dict[str, Any]:
    from dataclasses import asdict

    from batchrun.bench.report.compared import change_words

    tally = found.answers
    return {
        "a": found.a.name,
        "b": found.b.name,
        "verdict": report.verdict,
        "differences": list(found.differences),
        "figures": [
            {
                "level": pair.level,
                "max_tokens": pair.max_tokens,
                "figure": pair.figure,
                "a": None if pair.a is None else asdict(pair.a),
                "b": None if pair.b is None else asdict(pair.b),
                "change": None if pair.difference is None else pair.difference.change,
                "is_clear": False if pair.difference is None else pair.difference.is_clear,
                "is_better": pair.is_better,
                "words": change_words(pair),
            }
            for pair in found.pairs
        ],
        "answers": None
        if tally is None
        else {
            "equal": tally.equal,
            "different": tally.different,
            "only_a": tally.only_a,
            "only_b": tally.only_b,
            "samples": [{"custom_id": one.custom_id, "a": one.a, "b": one.b} for one in tally.samples],
        },
        "broken": [{"limit": one.limit.text, "words": one.words} for one in found.broken],
        "shadow": None if sent is None else {"items": sent.items, "share": sent.share, "seed": sent.seed},
    }
