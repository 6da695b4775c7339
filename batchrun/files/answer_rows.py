"""An answer as rows of a table: one for each choice, output or vector, of whichever of the four endpoints it is."""

import base64
import binascii
import json
import sys
from array import array
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from pydantic_core import from_json, to_json


class AnswerRow(NamedTuple):
    """One choice of an answer, or one vector of it."""

    choice: int  # from 0, in the answer's order
    text: str | None = None  # what was said; of a refusal, its words
    tool_calls: str | None = None  # as JSON
    finish_reason: str | None = None  # of this choice; None where the endpoint gives none
    vector: Sequence[float] | None = None


def answer_rows(raw: bytes) -> list[AnswerRow]:
    """Read the body of an answer. One of another shape is one row with the body as its text. Never raises."""
    body = _parsed(raw)
    if isinstance(body, dict):
        if isinstance(choices := body.get("choices"), list) and choices:
            return [_choice(number, choice) for number, choice in enumerate(choices)]
        if isinstance(output := body.get("output"), list) and output:
            return [_response(output)]
        if isinstance(data := body.get("data"), list) and data:
            return [AnswerRow(number, vector=_vector(element)) for number, element in enumerate(data)]
    return [AnswerRow(0, raw.decode("utf-8", "replace"))]


def prompts_of(body: bytes) -> list[str]:
    """Return what a request asks, as texts: the last thing the user says, or each prompt or input of a list of them."""
    request = _parsed(body)
    if not isinstance(request, dict):
        return []
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


def _parsed(raw: bytes) -> Any:
    try:
        return from_json(raw)
    except ValueError:
        pass
    try:
        return json.loads(raw)  # halves of surrogate pairs, which the fast parser refuses
    except (ValueError, RecursionError):
        return None


def _json(value: Any) -> str:
    try:
        return to_json(value).decode()
    except ValueError:
        return json.dumps(value)


def _choice(number: int, choice: object) -> AnswerRow:
    if not isinstance(choice, dict):
        return AnswerRow(number)
    finish = choice.get("finish_reason")
    message = choice.get("message")
    if not isinstance(message, dict):
        text = choice.get("text")
        return AnswerRow(number, text if isinstance(text, str) else None, None, _word(finish))
    calls = message.get("tool_calls") or message.get("function_call")
    said = _said(message.get("content"))
    refusal = message.get("refusal")
    text = refusal if not said and isinstance(refusal, str) else said
    return AnswerRow(number, text, _json(calls) if calls else None, _word(finish))


def _response(output: list[Any]) -> AnswerRow:
    parts = [part for part in output if isinstance(part, dict)]
    said = [_said(part.get("content")) for part in parts if part.get("type", "message") == "message"]
    calls = [part for part in parts if str(part.get("type")).endswith("_call")]
    texts = [text for text in said if text is not None]
    return AnswerRow(0, "".join(texts) if texts else None, _json(calls) if calls else None)


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


def _vector(element: object) -> Sequence[float] | None:
    vector = element.get("embedding") if isinstance(element, dict) else None
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


def _word(value: object) -> str | None:
    return value if isinstance(value, str) else None
