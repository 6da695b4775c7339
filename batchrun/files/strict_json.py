"""Strict JSON, a line at a time."""

import json
import re
from typing import Any, NoReturn

from pydantic_core import from_json

from batchrun.files.json_faults import explained

_SURROGATE_ESCAPE = re.compile(rb"\\u[dD][89a-fA-F]")


def parse_line(raw: bytes) -> Any:
    """Parse one line of strict JSON. Lone surrogates are kept for `core.request` to replace.

    Raises:
        LineFault: in words that a user can act on, with the byte column. Nothing else for any bytes.
    """
    try:
        return from_json(raw, allow_inf_nan=False)
    except ValueError as error:
        fault = explained(raw, str(error))
    if _SURROGATE_ESCAPE.search(raw):  # the one thing that the fast parser refuses and we take
        try:
            return json.loads(raw.decode(), parse_constant=_refuse_constant)
        except (ValueError, RecursionError):
            pass
    raise fault


def repeated_name(raw: bytes) -> str | None:
    """Return a name that stands twice in the line's object or in its `body`. The line must have been parsed before."""
    line = json.loads(raw.decode(), object_pairs_hook=_Fields)
    for fields in (line, line.get("body")):
        if isinstance(fields, _Fields) and fields.repeated is not None:
            return fields.repeated
    return None


def is_strict_json(raw: bytes) -> bool:
    """Say whether these bytes are one value of strict JSON (RFC 8259)."""
    try:
        from_json(raw, allow_inf_nan=False)
    except ValueError:
        try:
            json.loads(raw.decode(), parse_constant=_refuse_constant)
        except (ValueError, RecursionError):
            return False
    return True


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


class _Fields(dict[str, Any]):
    """An object that knows which of its names stood twice."""

    def __init__(self, pairs: list[tuple[str, Any]]) -> None:
        super().__init__()
        self.repeated: str | None = None
        for name, value in pairs:
            if name in self and self.repeated is None:
                self.repeated = name
            self[name] = value
