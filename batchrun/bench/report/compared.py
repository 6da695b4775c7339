"""A comparison as a report: verdict, figures side by side, answers, the table of the field."""

from collections.abc import Sequence

from batchrun import __version__
from batchrun.bench.comparing import Comparison
from batchrun.bench.report.content import NOTHING, Report, Section, Table, table
from batchrun.bench.report.numbers import over_rounds, share, three_digits
from batchrun.core.measuring.comparison import FigurePair, Side
from batchrun.core.measuring.ladder import FEWEST_ROUNDS, Range
from batchrun.core.printable import clip, one_line

SHARES = ("success_rate", "attainment", "failed_share")
ANSWER_COLUMNS = 300
OVERLAP = "no clear difference"


def figure_words(figure: str, found: Range | None) -> str:
    """Write a figure's median and range in its own unit."""
    write = share if figure in SHARES else three_digits
    if figure == "cost_usd":
        return NOTHING if found is None else f"${found.median:.6g}"
    return over_rounds(found, write)


def change_words(pair: FigurePair) -> str:
    """Say how B stands to A: by how much, and whether that is clear."""
    found = pair.difference
    if found is None:
        return "one side has none"
    is_same = pair.a is not None and pair.b is not None and pair.a.median == pair.b.median
    change = "same" if is_same else "" if found.change is None else f"{found.change:+.1%}"
    if min(pair.a.rounds if pair.a else 0, pair.b.rounds if pair.b else 0) < FEWEST_ROUNDS:
        return change or "new"
    if not found.is_clear:
        return OVERLAP
    return f"{change} {'better' if pair.is_better else 'worse'}".strip()


def verdict(found: Comparison) -> str:
    """Say in one sentence what came of it."""
    names = f"{one_line(found.a.name)} and {one_line(found.b.name)}"
    if found.broken:
        return f"A limit is broken: {'; '.join(one.words for one in found.broken)}."
    words = ""
    if found.rounds < FEWEST_ROUNDS:
        words = (
            f"{names} were measured {found.rounds} time{'' if found.rounds == 1 else 's'}: what differs may be chance"
        )
    else:
        better = [pair for pair in found.pairs if pair.is_better is True]
        worse = [pair for pair in found.pairs if pair.is_better is False]
        a, b = one_line(found.a.name), one_line(found.b.name)
        words = f"Of {len(found.pairs)} figures of {b}, {len(better)} are clearly better than those of {a} "
        words += f"and {len(worse)} clearly worse"
        if not better and not worse:
            words = f"There is no clear difference between {names}"
    if (tally := found.answers) is not None:
        both = tally.equal + tally.different
        words += f"; of {both:,} answers that both have, {tally.equal:,} say the same"
    return f"{words}."


def compare_report(found: Comparison, experiments: Sequence[Table]) -> Report:
    """Make the report of a comparison."""
    sections = [
        Section(
            "Sides",
            "sides",
            facts=tuple(
                (label, f"{side.name}: {side.group.model} at {side.group.base_url}") for label, side in _named(found)
            ),
        ),
        Section("Figures", "figures", tables=tuple(figure_tables(found))),
    ]
    if found.answers is not None:
        sections.append(_answers(found))
    sections.append(Section("Experiments", "experiments", tables=tuple(experiments)))
    warnings = [f"they were not asked the same: {words}" for words in found.differences]
    return Report(
        title=f"{found.a.name} and {found.b.name}",
        verdict=verdict(found),
        is_good=False if found.broken else None,
        warnings=tuple(warnings),
        sections=tuple(sections),
        made_by=f"batchrun {__version__}",
    )


def figure_tables(found: Comparison) -> list[Table]:
    """Return one table for each load: figure, A, B, and how B stands to A."""
    tables = []
    for level, limit in dict.fromkeys((pair.level, pair.max_tokens) for pair in found.pairs):
        rows = [
            (pair.figure, figure_words(pair.figure, pair.a), figure_words(pair.figure, pair.b), change_words(pair))
            for pair in found.pairs
            if (pair.level, pair.max_tokens) == (level, limit) and (pair.a or pair.b)
        ]
        title = f"At {level:g}" + (f", max_tokens {limit}" if limit else "")
        tables.append(table(title, ("figure", "A", "B", "B against A"), rows))
    return tables


def _named(found: Comparison) -> list[tuple[str, Side]]:
    return [("A", found.a), ("B", found.b)]


def _answers(found: Comparison) -> Section:
    tally = found.answers
    assert tally is not None
    counts = [
        ("equal", f"{tally.equal:,}"),
        ("different", f"{tally.different:,}"),
        ("only in A", f"{tally.only_a:,}"),
        ("only in B", f"{tally.only_b:,}"),
    ]
    rows = [
        (clip(one_line(one.custom_id), 60), *(clip(one_line(side or ""), ANSWER_COLUMNS) for side in (one.a, one.b)))
        for one in tally.samples
    ]
    tables = [table("Answers", ("answers", "items"), counts)]
    tables += [table("The first that differ", ("item", "A", "B"), rows, words=3)] if rows else []
    return Section("Answers", "answers", tables=tuple(tables))
