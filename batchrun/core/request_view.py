"""What a person sees of a request: the prompt that it sends, and the limits that it asks for."""

from typing import Any

from batchrun.core.line import TOKEN_LIMITS
from batchrun.core.loose_json import read_json

SHOWN_FIELDS = (*TOKEN_LIMITS, "temperature", "n", "seed")


def read_request(body: bytes) -> dict[str, Any]:
    """Read a request's body; an empty one where it is gone, or is no object."""
    value = read_json(body)
    return value if isinstance(value, dict) else {}


def prompt_words(request: dict[str, Any]) -> str:
    """Return what the request asks last: the last message with its role, or the prompt, or the input; "" of nothing."""
    if last := _last_message(request):
        count = len(request.get("messages", request.get("input", ()))) - 1
        before = f" (and {count} before)" if count else ""
        return f"{last.get('role') or last.get('type') or 'message'}{before}: {asked_words(request)}"
    return asked_words(request)


def asked_words(request: dict[str, Any]) -> str:
    """Return the same without the role."""
    if last := _last_message(request):
        return _words(last.get("content"))
    return _words(request.get("prompt", request.get("input")))


def _last_message(request: dict[str, Any]) -> dict[str, Any] | None:
    messages = request.get("messages", request.get("input"))
    if not isinstance(messages, list) or not messages or not isinstance(messages[-1], dict):
        return None
    return messages[-1]


def limits_words(request: dict[str, Any]) -> str:
    """Return the fields that bound or steer an answer, such as "max_tokens 256, temperature 0"."""
    given = ((name, request.get(name)) for name in SHOWN_FIELDS)
    return ", ".join(f"{name} {value}" for name, value in given if isinstance(value, int | float))


def _words(content: object) -> str:
    """Return a content's text; of a list, all of its texts, and the kinds of what is no text."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return ""
    if all(isinstance(part, int) for part in content):
        return f"({len(content):,} tokens)"
    return " ".join(filter(None, map(_part, content)))


def _part(part: object) -> str:
    if isinstance(part, str):
        return part
    if not isinstance(part, dict):
        return ""
    text = part.get("text")
    return text if isinstance(text, str) else f"({part.get('type') or 'part'})"
