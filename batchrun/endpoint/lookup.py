"""Asking an endpoint what became of a request: by stored completions (OpenAI, Azure), by a spend log (LiteLLM).

All of it is free and can be repeated. It proves presence only: what is not found may have been done all the same.
"""

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Literal, Protocol
from urllib.parse import quote, urlencode

from batchrun.core.line import CHAT
from batchrun.core.loose_json import objects_in
from batchrun.core.marks import METADATA_KEY
from batchrun.core.outcome import NO_USAGE, Break, Reply, Timing, Usage
from batchrun.endpoint.body import Form, read_json
from batchrun.endpoint.retry_after import retry_after_s
from batchrun.endpoint.usage import COST_HEADER, read_usage, reported_pusd
from batchrun.endpoint.wording import status_words

Means = Literal["openai", "litellm"]
LIMIT_S = 20.0  # of one question
SPEND_LOGS = "/spend/logs"
# LiteLLM cuts long texts of its log and can black them out: such an answer is none.
NOT_WHOLE = ("litellm_truncated", "redacted-by-lite", "redacted_by_lite")


class Found(StrEnum):
    """What a look-up came to."""

    ANSWER = "answer"  # the answer itself
    CHARGE = "charge"  # the work was done and charged; its answer is not kept there
    NOTHING = "nothing"  # no trace, which proves nothing
    NO_WORD = "no_word"  # the endpoint could not be asked


@dataclass(frozen=True, slots=True)
class Finding:
    """What one attempt's look-up brought."""

    what: Found
    note: str | None = None  # in words a user can act on
    reply: Reply | None = None  # of ANSWER: as a reply to the request itself
    usage: Usage = NO_USAGE  # of CHARGE
    reported_pusd: int | None = None  # of CHARGE: what the gateway says that it cost
    wait_s: float | None = None  # of NO_WORD: asking again, after this long, may help; None: it does not


class Asked(Protocol):
    """An endpoint that can be asked."""

    async def get(self, path: str, *, limit_s: float) -> Reply | Break: ...


async def look_up(endpoint: Asked, means: Means, ids: Sequence[str]) -> Finding:
    """Ask about one attempt; never raises for what the server says.

    Args:
        ids: the attempt's id, and where the endpoint has given the request an id of its own, that.
    """
    try:
        return await (_stored_completion(endpoint, ids[0]) if means == "openai" else _spend_log(endpoint, ids))
    except _NoWord as reason:
        return reason.finding


class _NoWord(Exception):
    """A question that was not answered."""

    def __init__(self, note: str, wait_s: float | None = None) -> None:
        super().__init__(note)
        self.finding = Finding(Found.NO_WORD, note, wait_s=wait_s)


async def _ask(endpoint: Asked, path: str) -> tuple[Reply, Any]:
    """Return the reply to a question and its JSON."""
    reply = await endpoint.get(path, limit_s=LIMIT_S)
    if isinstance(reply, Break):
        raise _NoWord(reply.detail, wait_s=0.0)
    if reply.status != 200:
        passes = reply.status in (408, 429) or reply.status >= 500
        wait_s = retry_after_s(reply.headers, now=reply.timing.ended_at) or 0.0
        raise _NoWord(f"{path.partition('?')[0]}: {status_words(reply.status)}", wait_s if passes else None)
    body = read_json(reply.body)
    if body.form is not Form.JSON:
        raise _NoWord(f"{path.partition('?')[0]} answers with something else than JSON: {body.fault}")
    return reply, body.value


# -- stored completions -----------------------------------------------------------------------------------------------


async def _stored_completion(endpoint: Asked, attempt_id: str) -> Finding:
    query = urlencode({f"metadata[{METADATA_KEY}]": attempt_id, "limit": 2})
    _, value = await _ask(endpoint, f"{CHAT}?{query}")
    if not isinstance(value, dict) or not isinstance(value.get("data"), list):
        raise _NoWord(f"{CHAT} gives no list of stored completions")
    # A server that does not know the filter lists what is somebody else's.
    listed = objects_in(value["data"])
    mine = [one for one in listed if _has_mark(one, attempt_id) and isinstance(one.get("id"), str)]
    if not mine:
        note = "it lists completions without asking for their metadata" if listed else None
        return Finding(Found.NOTHING, note)
    name = mine[0]["id"]
    reply, completion = await _ask(endpoint, f"{CHAT}/{quote(name, safe='')}")
    if not isinstance(completion, dict) or completion.get("id") != name:
        raise _NoWord(f"{CHAT}/{name} is not the completion that was listed")
    note = "it was done more than once under one request: something on the way sends again" if mine[1:] else None
    request_id = mine[0].get("request_id")
    headers = {"x-request-id": request_id} if isinstance(request_id, str) else {}
    return Finding(Found.ANSWER, note, reply=_as_reply(reply.body, headers))


def _has_mark(completion: dict[str, Any], attempt_id: str) -> bool:
    metadata = completion.get("metadata")
    return isinstance(metadata, dict) and metadata.get(METADATA_KEY) == attempt_id


def _as_reply(body: bytes, headers: dict[str, str]) -> Reply:
    now = time.time()
    return Reply(200, {"content-type": "application/json", **headers}, body, Timing(now, now, now, 0.0))


# -- a gateway's spend log --------------------------------------------------------------------------------------------


async def _spend_log(endpoint: Asked, ids: Sequence[str]) -> Finding:
    note = None
    for call_id in ids:
        _, value = await _ask(endpoint, f"{SPEND_LOGS}?{urlencode({'request_id': call_id})}")
        if not isinstance(value, list):
            raise _NoWord(f"{SPEND_LOGS} gives no list")
        mine = [row for row in objects_in(value) if call_id in _names(row)]
        paid = [row for row in mine if _is_paid(row)]
        if paid:
            return _of_row(paid)
        if mine:
            note = "the gateway's log has it as failed; its provider may have done the work"
    return Finding(Found.NOTHING, note)


def _names(row: dict[str, Any]) -> set[str]:
    metadata = row.get("metadata")
    inner = metadata.get("litellm_call_id") if isinstance(metadata, dict) else None
    return {name for name in (row.get("request_id"), row.get("litellm_call_id"), inner) if isinstance(name, str)}


def _is_paid(row: dict[str, Any]) -> bool:
    usage = _row_usage(row)
    shows_work = usage.completion_tokens or usage.prompt_tokens or row.get("spend") or _answer(row.get("response"))
    return row.get("status") != "failure" and bool(shows_work)


def _row_usage(row: dict[str, Any]) -> Usage:
    return read_usage({"usage": row})


def _of_row(paid: Sequence[dict[str, Any]]) -> Finding:
    note = "the gateway's log has it more than once: something on the way sends again" if paid[1:] else None
    for row in paid:
        if (body := _answer(row.get("response"))) is not None:
            return Finding(Found.ANSWER, note, reply=_as_reply(body, _cost_of(row)))
    usage, cost = _row_usage(paid[0]), reported_pusd(_cost_of(paid[0]))
    note = note or "the gateway's log has it as paid, without the answer"
    return Finding(Found.CHARGE, note, usage=usage if usage.is_known else NO_USAGE, reported_pusd=cost)


def _cost_of(row: dict[str, Any]) -> dict[str, str]:
    """Return a row's cost where a reply through the gateway would have it."""
    return {COST_HEADER: str(row["spend"])} if row.get("spend") else {}


def _answer(response: Any) -> bytes | None:
    """Return the answer that a row holds, as JSON; None where it holds none, or not all of it."""
    text = response if isinstance(response, str) else json.dumps(response, ensure_ascii=False, separators=(",", ":"))
    if any(mark in text.lower() for mark in NOT_WHOLE):
        return None
    body = read_json(text.encode("utf-8", "surrogatepass"))
    if not isinstance(body.value, dict) or not any(name in body.value for name in ("choices", "output", "data")):
        return None
    return text.encode("utf-8", "surrogatepass")
