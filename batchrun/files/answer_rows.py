"""An answer as rows of a table: one for each choice, output or vector, of whichever of the four endpoints it is."""

import base64
import binascii
import json
import sys
from array import array
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from pydantic_core import to_json

from batchrun.core.answer_view import Choice, view_answer
from batchrun.core.request_view import read_request


class AnswerRow(NamedTuple):
    """One choice of an answer, or one vector of it."""

    choice: int  # from 0, in the answer's order
    text: str | None = None  # what was said; of a refusal, its words; None where a call or a vector stands in its place
    tool_calls: str | None = None  # as a JSON array
    finish_reason: str | None = None  # of this choice; None where the endpoint gives none
    vector: Sequence[float] | None = None


def answer_rows(raw: bytes) -> list[AnswerRow]:
    """Read the body of an answer. One of another shape is one row with the body as its text. Never raises."""
    view = view_answer(raw)
    if view is not None and view.choices:
        return [_row(number, choice) for number, choice in enumerate(view.choices)]
    if view is not None and view.vectors:
        return [AnswerRow(number, vector=_numbers(vector)) for number, vector in enumerate(view.vectors)]
    return [AnswerRow(0, raw.decode("utf-8", "replace"))]


def _row(number: int, choice: Choice) -> AnswerRow:
    text = choice.said or (None if choice.calls or choice.other else "")
    return AnswerRow(number, text, _json(choice.calls) if choice.calls else None, choice.finish_reason)


def prompts_of(body: bytes) -> list[str]:
    """Return what a request asks, as texts: the last thing the user says, or each prompt or input of a list of them."""
    request = read_request(body)
    if isinstance(messages := request.get("messages"), list):
        return [_last_said(messages)]
    asked = request.get("prompt", request.get("input"))
    if isinstance(asked, str):
        return [asked]
    if not isinstance(asked, list):
        return []
    if all(isinstance(one, str) for one in asked):
        return asked
    if any(isinstance(one, dict) for one in asked):  # messages of /v1/responses
        return [_last_said(asked)]
    return [_json(one) for one in asked] if all(isinstance(one, list) for one in asked) else [_json(asked)]


def prompt_for(prompts: Sequence[str], *, choice: int | None, choices: int) -> str | None:
    """Return which of a request's prompts one of its choices answers: of several, each has as many choices."""
    if len(prompts) > 1 and choice is not None and choices and choices % len(prompts) == 0:
        return prompts[choice // (choices // len(prompts))]
    return _json(prompts) if len(prompts) > 1 else next(iter(prompts), None)


def _json(value: Any) -> str:
    try:
        return to_json(value).decode()
    except ValueError:
        return json.dumps(value)


def _said(content: object) -> str | None:
    """Return a content's text: whole, or put together of its parts; None where there is none."""
    if isinstance(content, str):
        return content
    texts = list(_texts(content)) if isinstance(content, list) else []
    return "".join(texts) if texts else None


def _texts(parts: list[Any]) -> Iterator[str]:
    for part in parts:
        for name in ("text", "refusal") if isinstance(part, dict) else ():
            if isinstance(part.get(name), str):
                yield part[name]


def _last_said(messages: list[Any]) -> str:
    """Return what the user said last; where only others speak, what was said last at all."""
    told = [one for one in messages if isinstance(one, dict) and "content" in one]
    by_user = [one for one in told if one.get("role") == "user"]
    last = (by_user or told or [{}])[-1].get("content")
    said = _said(last)
    return said if said is not None else "" if last is None else _json(last)


def _numbers(vector: object) -> Sequence[float] | None:
    if isinstance(vector, str):
        return _unpacked(vector)
    if not isinstance(vector, list) or not all(type(number) in (float, int) for number in vector):
        return None
    return vector


def _unpacked(text: str) -> Sequence[float] | None:
    """Read a vector in base64: 32-bit floats, the lowest byte first."""
    numbers = array("f")
    try:
        numbers.frombytes(base64.b64decode(text, validate=True))
    except (ValueError, binascii.Error):
        return None
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers
