"""JSON that others have written, and that was taken from them as it came; and what is written of it."""

import json
from typing import Any

from pydantic_core import PydanticSerializationError, from_json, to_json


def read_json(raw: bytes) -> Any:
    """Parse the bytes; None where they are no JSON. NaN and halves of surrogate pairs are let through. Never raises."""
    try:
        return from_json(raw)
    except ValueError:
        pass
    try:
        return json.loads(raw)  # halves of surrogate pairs, which the fast parser refuses
    except (ValueError, RecursionError):
        return None


def objects_in(value: object) -> list[dict[str, Any]]:
    """Return the objects of a list, in its order; of anything else there are none."""
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def write_json(value: Any) -> bytes:
    """Write a value without spaces; halves of surrogate pairs are kept, as escapes."""
    try:
        return to_json(value)
    except PydanticSerializationError:
        return json.dumps(value, separators=(",", ":")).encode()
