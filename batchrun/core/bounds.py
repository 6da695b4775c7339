"""What bounds a request's cost: its text, or, where it asks for more than its text, only what the user says."""

import re
from collections.abc import Iterator
from typing import Any

from batchrun.core.loose_json import objects_in, read_json
from batchrun.core.prices import Price, worst_cost_pusd
from batchrun.core.printable import clip

LONGEST = 60  # characters of a name that a message repeats
# Kinds of parts and entries that are text, written out in the request.
_TEXT = frozenset(
    {"text", "input_text", "output_text", "refusal", "summary_text", "reasoning_text", "reasoning", "thinking"}
    | {"message", "function_call", "function_call_output", "custom_tool_call", "custom_tool_call_output"}
)
# Run by whoever asks; any other tool is the provider's, and reads what it likes.
_OWN_TOOLS = frozenset({"function", "custom"})
# Fields that bring in what is stored elsewhere, let a tool read, or write the prompt anew from what stands there.
_ELSEWHERE = ("previous_response_id", "conversation", "web_search_options", "plugins", "chat_template")
# A body that asks for any of it holds one of these. Most hold none, and need not be read. Bodies are written compactly.
_MARKS = re.compile(
    rb'"(?:audio|type|tools|prompt":\{|(?:content|input|output)":\[|' + "|".join(_ELSEWHERE).encode() + rb")"
)


def beyond_text(body: bytes) -> str | None:
    """Name the first thing in a request whose tokens its text does not bound; None where there is none.

    Args:
        body: as it is sent, compact JSON.
    """
    if not _MARKS.search(body):
        return None
    request = read_json(body)
    return next(_beyond(request), None) if isinstance(request, dict) else None


def _beyond(request: dict[str, Any]) -> Iterator[str]:
    yield from (repr(name) for name in _ELSEWHERE if request.get(name))
    if isinstance(request.get("prompt"), dict):
        yield "a stored 'prompt'"
    yield from (
        f"the tool {_kind(tool)}"
        for tool in objects_in(request.get("tools"))
        if not _is_of(_OWN_TOOLS, tool.get("type"))
    )
    for entry in (*objects_in(request.get("messages")), *objects_in(request.get("input"))):
        if isinstance(entry.get("audio"), dict):
            yield "the sound of an earlier answer"
        if not _is_of(_TEXT, entry.get("type", "message")):
            yield _kind(entry)
        for name in ("content", "output"):
            yield from (_kind(part) for part in objects_in(entry.get(name)) if not _is_text(part))


def _is_of(kinds: frozenset[str], kind: object) -> bool:
    return isinstance(kind, str) and kind in kinds


def _is_text(part: dict[str, Any]) -> bool:
    """Say whether a part is text: by its type, or, where it has none, by having nothing else in it."""
    return _is_of(_TEXT, part["type"]) if "type" in part else part.keys() <= {"text"}


def _kind(thing: dict[str, Any]) -> str:
    """Name what a part or tool is, by its type or else by what stands in it."""
    told = thing.get("type") or next((name for name in thing if name != "text"), "something without a type")
    return clip(repr(told), LONGEST)


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
