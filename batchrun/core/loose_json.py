"""JSON that others have written, and that was taken from them as it came."""

import json
from typing import Any

from pydantic_core import from_json


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
