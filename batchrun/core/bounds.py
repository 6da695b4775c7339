"""What bounds a request's cost: its text, or, where it asks for more than its text, only what the user says."""

import re
from collections.abc import Iterator
from typing import Any

from batchrun.core.loose_json import read_json
from batchrun.core.prices import Price, worst_cost_pusd

# Kinds of parts and entries that are text, written out in the request.
_TEXT = frozenset(
    {"text", "input_text", "output_text", "refusal", "summary_text", "reasoning_text", "reasoning", "thinking"}
    | {"message", "function_call", "function_call_output", "custom_tool_call", "custom_tool_call_output"}
)
_OWN_TOOLS = frozenset(
    {"function", "custom"}
)  # run by whoever asks; any other is the provider's, and reads what it likes
# Fields that bring in what is stored elsewhere, let a tool read, or write the prompt anew from what stands there.
_ELSEWHERE = ("previous_response_id", "conversation", "web_search_options", "plugins", "chat_template")
# What a body must hold for any of it; most bodies hold none, and need not be read. Bodies are written compactly.
_KINDS = re.compile(rb'"type":"([^"\\]*)"')
_OF_SCHEMAS = frozenset({b"string", b"number", b"integer", b"boolean", b"object", b"array", b"null"})
_PLAIN = frozenset(
    {kind.encode() for kind in _TEXT | _OWN_TOOLS} | _OF_SCHEMAS | {b"json_object", b"json_schema", b"grammar"}
)
_MARKS = re.compile(rb'"(?:audio|prompt":\{|' + "|".join(_ELSEWHERE).encode() + rb")")


def beyond_text(body: bytes) -> str | None:
    """Name the first thing in a request whose tokens its text does not bound; None where there is none.

    Args:
        body: as it is sent, compact JSON.
    """
    if not _MARKS.search(body) and all(kind in _PLAIN for kind in _KINDS.findall(body)):
        return None
    request = read_json(body)
    return next(_beyond(request), None) if isinstance(request, dict) else None


def _beyond(request: dict[str, Any]) -> Iterator[str]:
    yield from (repr(name) for name in _ELSEWHERE if request.get(name))
    if isinstance(request.get("prompt"), dict):
        yield "a stored 'prompt'"
    for tool in _objects(request.get("tools")):
        if tool.get("type") not in _OWN_TOOLS:
            yield f"the tool {tool.get('type')!r}"
    for entry in (*_objects(request.get("messages")), *_objects(request.get("input"))):
        if isinstance(entry.get("audio"), dict):
            yield "the sound of an earlier answer"
        if entry.get("type", "message") not in _TEXT:
            yield f"{entry.get('type')!r}"
        for name in ("content", "output"):
            yield from (f"{part.get('type')!r}" for part in _objects(entry.get(name)) if part.get("type") not in _TEXT)


def _objects(value: object) -> Iterator[dict[str, Any]]:
    return (one for one in value if isinstance(one, dict)) if isinstance(value, list) else iter(())


def most_pusd(price: Price | None, *, body: bytes, max_output_tokens: int, max_prompt_tokens: int | None) -> int | None:
    """Return the most that one attempt of a request can cost; None where nothing tells.

    Args:
        max_prompt_tokens: of prompts that are more than text, by the user's word; None: not said.
    """
    if price is None:
        return None
    if price.is_free or beyond_text(body) is None:
        return worst_cost_pusd(price, prompt_tokens=len(body), max_output_tokens=max_output_tokens)
    if max_prompt_tokens is None:
        return None
    return worst_cost_pusd(price, prompt_tokens=max_prompt_tokens, max_output_tokens=max_output_tokens)
