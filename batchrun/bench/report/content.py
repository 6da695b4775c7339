"""What a report consists of, before it is written in any form: sections of facts, tables and pictures."""

from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Table:
    """A table of words. Columns that hold numbers stand on the right."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    numbers: frozenset[int] = frozenset()  # which columns hold numbers
    note: str | None = None


@dataclass(frozen=True, slots=True)
class Picture:
    """A chart as SVG text; its words are escaped."""

    title: str
    svg: str


@dataclass(frozen=True, slots=True)
class Section:
    """A part of a report under one heading."""

    title: str
    id: str
    words: tuple[str, ...] = ()
    facts: tuple[tuple[str, str], ...] = ()
    tables: tuple[Table, ...] = ()
    pictures: tuple[Picture, ...] = ()
    definitions: tuple[tuple[str, str], ...] = ()

    @property
    def is_empty(self) -> bool:
        return not (self.words or self.facts or self.tables or self.pictures or self.definitions)


@dataclass(frozen=True, slots=True)
class Report:
    """A whole report."""

    title: str
    verdict: str  # one sentence
    is_good: bool | None  # None: there is nothing to be good or bad at
    warnings: tuple[str, ...]
    sections: tuple[Section, ...]
    made_by: str
    next_commands: tuple[str, ...] = field(default=())


def table(
    title: str, columns: Sequence[str], rows: Sequence[Sequence[str]], *, words: int = 1, note: str | None = None
) -> Table:
    """Make a table whose first `words` columns are words, and the rest numbers. Columns of nothing are left out."""
    kept = [at for at in range(len(columns)) if at < words or any(row[at] != NOTHING for row in rows)]
    return Table(
        title,
        tuple(columns[at] for at in kept),
        tuple(tuple(row[at] for at in kept) for row in rows),
        frozenset(place for place, at in enumerate(kept) if at >= words),
        note,
    )


NOTHING = "-"
