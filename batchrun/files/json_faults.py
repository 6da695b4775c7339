"""Why a line is not JSON, in plain words, for the mistakes that people really make."""

import re

from batchrun.core.line import LineFault
from batchrun.core.surrogates import FLATTEN

_PLACE = re.compile(r" at line \d+ column (\d+)$")
_WORD = re.compile(rb"[A-Za-z]+\Z")
_WORDS = {b"True": "true", b"False": "false", b"None": "null", b"undefined": "null", b"nan": "null"}
_NUMBERS = (b"NaN", b"Infinity", b"-Infinity")
_ONE_A_LINE = "write one object a line: jq -c . OLD > NEW"
_WRITE_JSON = "write JSON: in Python json.dumps(line), not str(line)"


class Unfinished(LineFault):
    """A line that ends before its object or array does: perhaps JSON that was written over several lines."""

    def __init__(self, raw: bytes) -> None:
        text = raw.strip()
        self.is_array = text.startswith(b"[")
        self.is_bracket_alone = len(text) == 1
        name = "an array" if self.is_array else "an object"
        super().__init__(f"is not whole: {name} begins here and does not end on this line", _ONE_A_LINE)


def explained(raw: bytes, message: str) -> LineFault:
    """Return the fault of a line that the parser refused with `message`. Columns are bytes from 1."""
    try:
        raw.decode()
    except UnicodeDecodeError as error:
        what = f"is not UTF-8 (byte 0x{raw[error.start]:02x} at column {error.start + 1})"
        return LineFault(what, "save the file as UTF-8: iconv -f LATIN1 -t UTF-8 OLD > NEW")
    place = _PLACE.search(message)
    column = int(place[1]) if place else 1
    reason = message[: place.start()] if place else message
    return _whole_line_fault(raw, reason) or _fault_at(raw, column, reason)


def _whole_line_fault(raw: bytes, reason: str) -> LineFault | None:
    if not raw.strip(b"\0 \t\r"):
        return LineFault("holds only NUL bytes", "the file was cut or damaged: take the line out")
    if raw.startswith(b"\xef\xbb\xbf"):
        return LineFault("begins with a byte order mark", "files were joined here: take out the three bytes EF BB BF")
    if reason.startswith("EOF") and raw.lstrip().startswith((b"{", b"[")):
        return Unfinished(raw)
    if reason.startswith("recursion"):
        return LineFault("is nested more than 200 levels deep", FLATTEN)
    return None


def _fault_at(raw: bytes, column: int, reason: str) -> LineFault:
    at = raw[column - 1 :]
    where = f"(column {column})"
    if reason.startswith("trailing char"):
        return _trailing(at, column)
    if at.startswith(_NUMBERS):
        return LineFault(f"is not JSON: it has no NaN and no Infinity {where}", "write null or a string")
    if at.startswith((b"//", b"/*", b"#")):
        return LineFault(f"is not JSON: it has no comments {where}", "take the comment out")
    if at.startswith(b"'"):
        return LineFault(f"is not JSON: single quotes {where}", _WRITE_JSON)
    if at.startswith((b"\xe2\x80\x9c", b"\xe2\x80\x9d")):
        return LineFault(f"is not JSON: a curly quote {where}", 'write the plain one: "')
    if (word := _word_at(raw, column)) in _WORDS:
        return LineFault(f"is not JSON: it has no {word.decode()} {where}", f"write {_WORDS[word]}")
    hint = _WRITE_JSON
    if reason.startswith("trailing comma") or at.startswith(b","):
        hint = "take out the comma"
    elif reason.startswith("control char"):
        hint = "write it as an escape, such as \\n or \\t"
    elif reason.startswith("key must be"):
        hint = 'write names in double quotes: "custom_id"'
    elif reason.startswith("number out of range"):
        hint = "write it as a string"
    return LineFault(f"is not JSON: {reason} {where}", hint)


def _trailing(at: bytes, column: int) -> LineFault:
    if at.strip() == b",":
        return LineFault("is not JSON: a comma stands behind the object", "one object a line, nothing between them")
    if at.lstrip(b", \t\r")[:1] in (b"{", b"["):
        return LineFault(f"holds two values, the second from column {column}", _ONE_A_LINE)
    what = f"is not JSON: something stands behind the first value (column {column})"
    return LineFault(what, "take it out: one object a line, and nothing else")


def _word_at(raw: bytes, column: int) -> bytes:
    """Return the word around a byte column."""
    begun = _WORD.search(raw[max(column - 21, 0) : column - 1])
    rest = re.match(rb"[A-Za-z]*", raw[column - 1 : column + 20])
    return (begun[0] if begun else b"") + (rest[0] if rest else b"")
