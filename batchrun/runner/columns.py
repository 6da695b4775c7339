"""A first look at somebody's data: are its lines requests already, and if not, which column is the prompt?"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any

from batchrun.core.line import CHAT, LineFault, own_path, read_call
from batchrun.core.variables import IDS, variable
from batchrun.errors import BadInput, Fault
from batchrun.files.sources import peek

LOOKED_AT = 20  # rows
_TABLES = (".csv", ".tsv", ".parquet")
# What columns that hold a prompt are called, the likeliest first, and what those are called that hold an answer.
_PROMPTS = ("prompt", "question", "instruction", "text", "input", "content", "query", "message", "body", "description")
_ANSWERS = ("answer", "output", "response", "completion", "label", "target", "reference", "expected", "category")


@dataclass(frozen=True, slots=True)
class Look:
    """What the first rows of a file say of it."""

    columns: list[str]  # of rows of data; none where the lines are requests
    column: str | None = None  # the one that holds the prompt
    endpoint: str = CHAT
    model: str | None = None  # that the first request names

    @property
    def prompt_template(self) -> str | None:
        """The template that makes a prompt of the column; None where the lines are requests."""
        return None if self.column is None else variable(self.column)


def look_at(path: Path) -> Look:
    """Look at the first rows of an input file of any format.

    Raises:
        BadInput: it cannot be read, is empty, or holds nothing that a prompt could be made of.
    """
    rows = peek(path, count=LOOKED_AT)
    if not rows:
        raise BadInput([Fault(f"'{path}'", "is empty: no rows", "write one request or one row a line")])
    suffixes = [suffix.lower() for suffix in PurePath(path.name).suffixes]
    is_table = _is_parquet(path) or any(suffix in _TABLES for suffix in suffixes[-2:])
    endpoint = None if is_table else own_path(rows[0])
    if endpoint is not None:
        body = rows[0]["body"] if isinstance(rows[0].get("body"), dict) else rows[0]
        model = body.get("model")
        return Look([], endpoint=endpoint, model=model if isinstance(model, str) and model else None)
    columns = list(dict.fromkeys(name for row in rows for name in row if name not in IDS))
    column = likeliest(columns, rows)
    if column is None:
        raise BadInput([_nothing_to_ask(path, rows[0], columns)])
    return Look(columns, column)


def _is_parquet(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(4) == b"PAR1"


def likeliest(columns: Sequence[str], rows: Sequence[dict[str, Any]]) -> str | None:
    """Return the column that holds the prompt: by its name, else by the length of its texts; None where none has any.

    A column that is empty somewhere among the first rows comes after all that are not.
    """
    texts = {name: [row[name] for row in rows if _is_text(row.get(name))] for name in columns}

    def order(name: str) -> tuple[bool, int, bool, float]:
        words = _words(name)
        rank = next((number for number, word in enumerate(_PROMPTS) if word in words), len(_PROMPTS))
        length = sum(map(len, texts[name])) / len(texts[name])
        return not words.isdisjoint(_ANSWERS), rank, len(texts[name]) < len(rows), -length

    return min((name for name in columns if texts[name]), key=order, default=None)


def _is_text(value: object) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _words(name: str) -> set[str]:
    """Return the words of a column's name: "user_questions" and "userQuestion" both have "question"."""
    return {word.lower().removesuffix("s") for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+", name)}


def _nothing_to_ask(path: Path, row: dict[str, Any], columns: Sequence[str]) -> Fault:
    try:
        read_call(row, endpoint=CHAT)
    except LineFault as fault:  # it knows other vendors' formats
        if columns and any(isinstance(value, dict) for value in row.values()):
            return Fault(f"'{path}' line 1", fault.what, fault.hint)
    return Fault(f"'{path}'", f"has no column with text (columns: {', '.join(columns) or 'none'})", "add one")
