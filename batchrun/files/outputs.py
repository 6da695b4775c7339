"""Output lines in OpenAI Batch's format: what the ledger knows of one item, as one line of strict JSON."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

from pydantic_core import PydanticSerializationError, to_json

from batchrun.core.outcome import INVALID_ANSWER
from batchrun.core.quick import quick
from batchrun.core.states import ItemState
from batchrun.core.surrogates import mend
from batchrun.files.derived import DerivedFile, PartialFile
from batchrun.files.strict_json import is_strict_json

__all__ = [
    "Asked",
    "DerivedFile",
    "OutputItem",
    "PartialFile",
    "answer_line",
    "error_code",
    "error_line",
    "error_words",
]

_SMALL_BODY_BYTES = 16_384  # of a body that an error line repeats
_MESSAGE_CHARS = 2_000
_MESSAGES = {
    ItemState.FAILED: "failed for a reason that was not recorded",
    ItemState.IN_DOUBT: "a request was sent, or may have been, and no answer is known",
    ItemState.REJECTED: "the input line is faulty and was never sent",
    ItemState.CANCELLED: "cancelled before it was sent",
}


@quick
@dataclass(frozen=True, slots=True)
class OutputItem:
    """What an output line says of one item; the figures are those of its last attempt. None is "not known"."""

    custom_id: str
    state: ItemState
    attempts: int  # requests made or begun
    attempt_id: str | None
    status: int | None  # HTTP status
    request_id: str | None  # the endpoint's x-request-id
    response_id: str | None  # `id` of the answer
    raw: bytes | None = field(repr=False)  # the endpoint's JSON as it came
    finish_reason: str | None
    warning: str | None
    prompt_tokens: int | None
    completion_tokens: int | None
    cost_usd: str | None  # decimal string
    endpoint: str | None
    model: str | None
    sent_at: float | None  # UTC unix seconds
    duration_s: float | None
    cause: str | None  # a word of `core.outcome.CAUSES`
    message: str | None
    possible_cost_usd: str | None  # decimal string; the most that a doubt may have cost
    cached_from: str | None = None  # the attempt of another item whose answer this is
    asked: "Asked | None" = field(default=None, repr=False)  # what is joined to it from the input


@dataclass(frozen=True, slots=True)
class Asked:
    """An item's request, and the row of data that it was made of. A faulty line has no request."""

    path: str | None
    body: bytes | None = field(repr=False)  # JSON on one line
    row: Mapping[str, Any] | None = field(default=None, repr=False)  # None: the line was a request already


def error_code(item: OutputItem) -> str:
    """Return why an item has no answer, as a word for scripts."""
    return item.cause or item.state.value


def error_words(item: OutputItem) -> str:
    """Return the same for people, cut to a bearable length."""
    return (item.message or _MESSAGES.get(item.state, f"is {item.state}"))[:_MESSAGE_CHARS]


def answer_line(item: OutputItem) -> bytes:
    """Return the line of a completed item, newline included. Equal items give equal bytes."""
    return _line(item, response=_response(item, _body(item.raw)), error=b"null")


def error_line(item: OutputItem) -> bytes:
    """Return the line of an item that failed, newline included: with an invalid answer, or a small JSON body."""
    body = _body(item.raw) if item.raw is not None and _is_shown(item, item.raw) else b"null"
    error = {"code": error_code(item), "message": error_words(item)}
    return _line(item, response=b"null" if item.status is None else _response(item, body), error=_json(error))


def _is_shown(item: OutputItem, raw: bytes) -> bool:
    is_small = len(raw) <= _SMALL_BODY_BYTES and is_strict_json(raw)
    return is_small or item.cause == INVALID_ANSWER


def _line(item: OutputItem, *, response: bytes, error: bytes) -> bytes:
    head = _json({"id": item.attempt_id, "custom_id": item.custom_id})[:-1]
    account = _with_input(_json(_account(item)), item.asked)
    return b"".join((head, b',"response":', response, b',"error":', error, b',"batchrun":', account, b"}\n"))


def _response(item: OutputItem, body: bytes) -> bytes:
    head = _json({"status_code": item.status, "request_id": item.request_id})[:-1]
    return b"".join((head, b',"body":', body, b"}"))


def _body(raw: bytes | None) -> bytes:
    """Return the endpoint's JSON as it came, but for line ends between its tokens; what is no JSON as a string.

    Strict JSON has no raw CR or LF within a string, so every one stands between tokens.
    """
    if raw is None:
        return b"null"
    if not is_strict_json(raw):
        return _json(raw.decode("utf-8", "replace"))
    return raw.replace(b"\n", b"").replace(b"\r", b"")


def _account(item: OutputItem) -> dict[str, Any]:
    """Return the `batchrun` object: what this item took, in our own terms."""
    return {
        "attempts": item.attempts,
        "attempt_id": item.attempt_id,
        "state": item.state.value,
        "timings": {"sent_at": _rfc3339(item.sent_at), "duration_s": _rounded(item.duration_s)},
        "usage": {"prompt_tokens": item.prompt_tokens, "completion_tokens": item.completion_tokens},
        "cost_usd": item.cost_usd,
        "possible_cost_usd": item.possible_cost_usd,
        "endpoint": item.endpoint,
        "model": item.model,
        "response_id": item.response_id,
        "finish_reason": item.finish_reason,
        "warning": item.warning,
        "cached_from": item.cached_from,
    }


def _with_input(account: bytes, asked: Asked | None) -> bytes:
    """Put the request that was sent, and its row, into the account."""
    if asked is None:
        return account
    row = b"" if asked.row is None else b',"row":' + _json(asked.row)
    joined = b'{"path":' + _json(asked.path) + b',"body":' + (asked.body or b"null") + row + b"}"
    return account[:-1] + b',"input":' + joined + b"}"


def _rfc3339(unix_s: float | None) -> str | None:
    """Write UTC unix seconds as 2026-01-02T03:04:05.678Z."""
    if unix_s is None:
        return None
    second, millisecond = divmod(round(unix_s * 1e6) // 1000, 1000)
    return f"{_second(second)}.{millisecond:03d}Z"


@lru_cache(maxsize=64)
def _second(unix_s: int) -> str:
    return datetime.fromtimestamp(unix_s, UTC).strftime("%Y-%m-%dT%H:%M:%S")


def _rounded(duration_s: float | None) -> float | None:
    return None if duration_s is None else round(duration_s, 6)


def _json(value: Any) -> bytes:
    try:
        return to_json(value)
    except PydanticSerializationError:  # half of a surrogate pair in an endpoint's own words
        return to_json(mend(value)[0])
