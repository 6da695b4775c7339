"""A reply's body, read as JSON, with the reason where it is none."""

import json
import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NoReturn

from pydantic_core import from_json

from batchrun.core.quick import quick

BOM = b"\xef\xbb\xbf"
CUT_WORDS = "EOF while parsing"
SURROGATE_ESCAPE = re.compile(r"\\u[dD][89a-fA-F][0-9a-fA-F]{2}")


class Form(StrEnum):
    """What a body turned out to be."""

    JSON = "json"
    CUT = "cut"  # JSON that ends too early, or nothing at all
    BAD = "bad"  # complete, but not JSON


@quick
@dataclass(frozen=True, slots=True)
class Body:
    """A body that was read."""

    form: Form
    value: Any = None  # of JSON; may be null itself
    fault: str = ""  # why it is not JSON


def read_json(raw: bytes) -> Body:
    """Read strict JSON in UTF-8 (NaN refused). Lone surrogates and a byte order mark pass: they are paid for."""
    raw = raw.removeprefix(BOM)
    try:
        return Body(Form.JSON, from_json(raw, allow_inf_nan=False))
    except ValueError as error:
        return _cut(raw) if CUT_WORDS in str(error) else _read_leniently(raw)


def _read_leniently(raw: bytes) -> Body:
    try:
        text = raw.decode("utf-8", "surrogatepass")
        return Body(Form.JSON, json.loads(text, parse_constant=_refuse))
    except UnicodeDecodeError as error:
        is_cut = error.reason == "unexpected end of data"
        return _cut(raw) if is_cut else Body(Form.BAD, fault=f"it is not UTF-8 (byte {error.start})")
    except json.JSONDecodeError as error:
        return _cut(raw) if _breaks_off(text) else Body(Form.BAD, fault=f"{error.msg} (character {error.pos})")
    except RecursionError:
        return Body(Form.BAD, fault="it is nested too deeply")
    except ValueError as error:
        return Body(Form.BAD, fault=str(error))


def _breaks_off(text: str) -> bool:
    """Say whether it is only the end that is missing, once the surrogates the strict reader stumbles over are gone."""
    try:
        from_json(SURROGATE_ESCAPE.sub("-", text).encode("utf-8", "replace"), allow_inf_nan=False)
    except ValueError as error:
        return CUT_WORDS in str(error)
    return False


def _cut(raw: bytes) -> Body:
    return Body(Form.CUT, fault="it breaks off" if raw.strip() else "it is empty")


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")
