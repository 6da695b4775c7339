"""Items as rows of a table, for CSV and Parquet: the columns, and what stands in each."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from enum import Enum, auto
from typing import Any

from pydantic_core import to_json

from batchrun.core.outcome import INVALID_ANSWER
from batchrun.core.states import ItemState
from batchrun.core.surrogates import mend, mended_text
from batchrun.files.answer_rows import AnswerRow, answer_rows, prompt_for, prompts_of
from batchrun.files.outputs import OutputItem, error_code, error_words

Cell = str | int | float | Decimal | Sequence[float] | None
Row = list[Cell]
MOST_COLUMNS = 1_000  # of an input that are joined


class Kind(Enum):
    """What a column holds."""

    TEXT = auto()
    COUNT = auto()  # whole numbers
    SECONDS = auto()
    MONEY = auto()  # decimals, USD
    VECTOR = auto()


@dataclass(frozen=True, slots=True)
class Column:
    """One column of the table."""

    name: str
    kind: Kind


@dataclass(frozen=True, slots=True)
class Layout:
    """Which columns the table has."""

    vectors: bool = False  # some requests ask for embeddings
    prompts: bool = False  # what was asked stands beside the answer
    inputs: tuple[str, ...] = ()  # columns of the input that stand beside the answer too

    @property
    def columns(self) -> tuple[Column, ...]:
        """The columns, from left to right. Those of the input have a dot in their names, and can hide none of ours."""
        vector = [Column("embedding", Kind.VECTOR)] if self.vectors else []
        prompts = [Column("prompt", Kind.TEXT), Column("request", Kind.TEXT)] if self.prompts else []
        inputs = [Column(f"input.{name}", Kind.TEXT) for name in self.inputs]
        return (*_ITEM, *_ANSWER, *vector, *_FIGURES, *_ERROR, *prompts, *inputs)


_ITEM = (Column("custom_id", Kind.TEXT), Column("state", Kind.TEXT), Column("choice", Kind.COUNT))
_ANSWER = (Column("finish_reason", Kind.TEXT), Column("text", Kind.TEXT), Column("tool_calls", Kind.TEXT))
_FIGURES = (
    Column("model", Kind.TEXT),
    Column("prompt_tokens", Kind.COUNT),
    Column("completion_tokens", Kind.COUNT),
    Column("attempts", Kind.COUNT),
    Column("duration_s", Kind.SECONDS),
    Column("cost_usd", Kind.MONEY),
)
_ERROR = (Column("error_cause", Kind.TEXT), Column("error_message", Kind.TEXT))


def table_rows(item: OutputItem, layout: Layout) -> Iterator[Row]:
    """Yield an item's rows: one for each choice or vector of its answer, or one without.

    The figures are the request's: they stand in its first row only, so that a column's sum is right.
    """
    is_done = item.state is ItemState.COMPLETED
    has_answer = is_done or item.cause == INVALID_ANSWER
    answers = answer_rows(item.raw) if has_answer and item.raw is not None else [AnswerRow(0)] if is_done else []
    asked = item.asked
    body = asked.body if asked else None
    prompts = prompts_of(body) if body and layout.prompts else []
    told: list[AnswerRow | None] = [*answers] or [None]
    for answer in told:
        head: Row = [item.custom_id, item.state.value, answer.choice if answer else None, *_said(item, answer, layout)]
        figures = _figures(item) if answer is None or answer.choice == 0 else [item.model, *[None] * 5]
        error: Row = [None, None] if is_done else [error_code(item), _text(error_words(item))]
        joined: Row = []
        if layout.prompts:
            prompt = prompt_for(prompts, choice=answer.choice if answer else None, choices=len(answers))
            joined = [_text(prompt), body.decode() if body else None]
        row = (asked.row if asked else None) or {}
        yield [*head, *figures, *error, *joined, *(_given(row, name) for name in layout.inputs)]


def _said(item: OutputItem, answer: AnswerRow | None, layout: Layout) -> Row:
    if answer is None:
        return [None] * (4 if layout.vectors else 3)
    said: Row = [_text(answer.finish_reason or item.finish_reason), _text(answer.text), _text(answer.tool_calls)]
    return [*said, answer.vector] if layout.vectors else said


def _figures(item: OutputItem) -> Row:
    seconds = None if item.duration_s is None else round(item.duration_s, 6)
    cost = None if item.cost_usd is None else Decimal(item.cost_usd)
    return [item.model, item.prompt_tokens, item.completion_tokens, item.attempts, seconds, cost]


def _given(row: Mapping[str, Any], name: str) -> str | None:
    """Return a value of the input as text: texts as they are, all else as JSON."""
    value = row.get(name)
    if value is None or isinstance(value, str):
        return _text(value)
    return to_json(mend(value)[0]).decode()


def _text(text: str | None) -> str | None:
    """Return a text as UTF-8 can write it."""
    return text if text is None or text.isascii() else mended_text(text)
