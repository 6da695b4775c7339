"""A report as Markdown: the tables and words; charts are for the page."""

import re

from batchrun.bench.report.content import Report, Section, Table
from batchrun.core.printable import one_line

_SPECIAL = re.compile(r"([\\`*_{}\[\]<>#|~])")


def to_markdown(report: Report) -> str:
    """Write a report as Markdown that shows texts of others as they are, and obeys nothing in them."""
    parts = [f"# {_plain(report.title)}", f"**{_plain(report.verdict)}**"]
    parts += [f"> warning: {_plain(warning)}" for warning in report.warnings]
    parts += [part for section in report.sections for part in _section(section)]
    return "\n\n".join([*parts, f"Made by {_plain(report.made_by)}."]) + "\n"


def _section(section: Section) -> list[str]:
    parts = [f"## {_plain(section.title)}", *map(_plain, section.words)]
    if section.facts:
        parts.append("\n".join(f"- {_plain(name)}: {_plain(value)}" for name, value in section.facts))
    parts += [_table(one) for one in section.tables]
    if section.definitions:
        parts.append("\n".join(f"- **{_plain(name)}**: {_plain(words)}" for name, words in section.definitions))
    return parts


def _table(shown: Table) -> str:
    lines = [f"### {_plain(shown.title)}", "", _row(shown.columns)]
    lines.append("|" + "|".join("---:" if at in shown.numbers else "---" for at in range(len(shown.columns))) + "|")
    lines += [_row(row) for row in shown.rows]
    return "\n".join(lines + (["", _plain(shown.note)] if shown.note else []))


def _row(cells: tuple[str, ...]) -> str:
    return "| " + " | ".join(map(_plain, cells)) + " |"


def _plain(text: str) -> str:
    return _SPECIAL.sub(r"\\\1", one_line(text))
