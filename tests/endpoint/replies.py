"""Replies for the tests of `classify`, and a short way to write the evidence made of them."""

import json
from typing import Any

from batchrun.core.outcome import Break, Evidence, Reply, Timing
from batchrun.endpoint.classify import Profile, classify
from batchrun.endpoint.mask import Mask

CHAT = "/v1/chat/completions"
TIMING = Timing(sent_at=1_700_000_000.0, first_byte_at=1_700_000_001.0, ended_at=1_700_000_002.0, duration_s=2.0)
KEY = "sk-SECRET-7f3a9-and-more"
MASK = Mask(KEY)
USAGE = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
PAGE = "<!DOCTYPE html><html><head><title>502 Bad gateway</title></head><body><h1>Oops</h1></body></html>"


def chat(
    content: object = "hello", *, finish: object = "stop", usage: object = USAGE, **message: Any
) -> dict[str, Any]:
    """Write a chat answer."""
    choice = {"index": 0, "message": {"role": "assistant", "content": content, **message}, "finish_reason": finish}
    return {"id": "c-1", "object": "chat.completion", "choices": [choice], "usage": usage}


def error(message: str = "boom", *, code: object = None, kind: object = None, **more: Any) -> dict[str, Any]:
    """Write OpenAI's nested error."""
    return {"error": {"message": message, "type": kind, "param": None, "code": code, **more}}


def flat(message: str, *, code: object = 400, kind: str = "BadRequestError") -> dict[str, Any]:
    """Write the flat error of older vLLM servers."""
    return {"object": "error", "message": message, "type": kind, "param": None, "code": code}


def reply(status: int, body: object, **headers: str) -> Reply:
    """Write a reply; a body that is neither bytes nor text becomes JSON, and `_` in a header's name becomes `-`."""
    raw = body if isinstance(body, bytes) else body.encode() if isinstance(body, str) else json.dumps(body).encode()
    names = {name if name.startswith("llm_") else name.replace("_", "-"): value for name, value in headers.items()}
    return Reply(status, names, raw, TIMING)


def evidence(exchange: Reply | Break, *, path: str = CHAT, **profile: frozenset[int]) -> Evidence:
    """Classify."""
    return classify(exchange, path=path, profile=Profile(**profile), mask=MASK)


def row(found: Evidence) -> str:
    """Write the decisive part of evidence on one line."""
    wait = "" if found.retry_after_s is None else f" after {found.retry_after_s:g} s"
    return f"{found.outcome} {found.cause or '-'} {found.scope} {found.charge}{wait}"
