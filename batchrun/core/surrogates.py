"""Halves of surrogate pairs: JSON can write them (as an escape), UTF-8 cannot, so they are replaced by U+FFFD."""

import re
from collections.abc import Mapping
from typing import Any

_DEEPEST = 200  # levels; what the JSON parser allows
FLATTEN = "flatten it, or write its inner part as a string"  # what to do about a value that is nested deeper
_HALF = re.compile(r"[\ud800-\udfff]")


class TooDeep(ValueError):
    """A JSON value that is nested more than 200 levels deep."""


def mend(value: Any) -> tuple[Any, int]:
    """Replace every lone surrogate in the strings of a JSON value; return the copy and how many there were.

    Raises:
        TooDeep: when the value is nested more than 200 levels deep.
    """
    return _mended(value, 0)


def mended_text(text: str) -> str:
    """Return the text with every lone surrogate replaced."""
    return _HALF.sub("\ufffd", text)


def _mended(value: Any, depth: int) -> tuple[Any, int]:
    if isinstance(value, str):
        return _HALF.subn("\ufffd", value)
    if not isinstance(value, list | Mapping):
        return value, 0
    if depth >= _DEEPEST:
        raise TooDeep(f"is nested more than {_DEEPEST} levels deep")
    if isinstance(value, Mapping):
        return _mended_fields(value, depth)
    parts = [_mended(part, depth + 1) for part in value]
    return [part for part, _ in parts], sum(count for _, count in parts)


def _mended_fields(fields: Mapping[str, Any], depth: int) -> tuple[dict[str, Any], int]:
    whole: dict[str, Any] = {}
    total = 0
    for name, value in fields.items():
        new_name, in_name = _HALF.subn("\ufffd", name)
        while in_name and (new_name in fields or new_name in whole):
            new_name += "\ufffd"  # two names may become one; neither field may be lost
        whole[new_name], in_value = _mended(value, depth + 1)
        total += in_name + in_value
    return whole, total
