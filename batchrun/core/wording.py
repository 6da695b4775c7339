"""How messages speak of what a user wrote: by JSON type, by name, and never more than 60 characters of a value."""

import json

_SHOWN_CHARS = 60
_KINDS: dict[type, str] = {
    dict: "an object",
    list: "an array",
    str: "a string",
    bool: "true or false",
    int: "a number",
    float: "a number",
}


def kind(value: object) -> str:
    """Name the JSON type of `value`, with its article."""
    return _KINDS.get(type(value), "null")


def shown(value: object) -> str:
    """Write a scalar as JSON, at most 60 characters of it, and anything else as its type."""
    if isinstance(value, dict | list):
        return kind(value)
    head = value[: _SHOWN_CHARS + 1] if isinstance(value, str) else value
    return clipped(json.dumps(head, ensure_ascii=False))


def quoted(name: str) -> str:
    """Write a name in single quotes, at most 60 characters of it."""
    return f"'{clipped(json.dumps(name[: _SHOWN_CHARS + 1], ensure_ascii=False)[1:-1])}'"


def clipped(text: str) -> str:
    """Cut a text down to 60 characters that any terminal takes."""
    printable = text.encode("utf-8", "replace").decode()
    return printable if len(printable) <= _SHOWN_CHARS else printable[: _SHOWN_CHARS - 3] + "..."


def several(count: int, noun: str) -> str:
    """Write a count with its noun: "1 item", "1,200 items"."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"
