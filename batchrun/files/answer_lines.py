"""Answers that stand in a file: lines of OpenAI Batch's output, ours among them, or an id and a response."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from typing import Any

from pydantic_core import PydanticSerializationError, to_json

from batchrun.core.line import LineFault
from batchrun.errors import BadInput, Fault
from batchrun.files.lines import MAX_LINE_BYTES
from batchrun.files.paths import CHECK_IT
from batchrun.files.sources import Source
from batchrun.files.strict_json import parse_line

OURS = "br-"
FORM = 'write {"attempt_id": "br-...", "response": {...}}, or a line of a batch output file'


@dataclass(frozen=True, slots=True)
class AnswerLine:
    """One line: whose answer it is, and the answer."""

    attempt_id: str | None  # ours, of whatever ledger
    request_id: str | None  # what the endpoint, or a gateway, called the request
    custom_id: str | None
    status: int
    raw: bytes | None  # None: it tells of an error, or of nothing

    @property
    def names_nothing(self) -> bool:
        return self.attempt_id is None and self.request_id is None and self.custom_id is None


def read_answers(path: Path) -> Iterator[tuple[int, AnswerLine | LineFault]]:
    """Yield (line number from 1, what stands there) for every line that is not blank; gzip is unpacked.

    Raises:
        BadInput: the file as a whole cannot be read.
    """
    try:
        with FileIO(path) as file:
            for line_no, record in Source(file, name=path.name):
                if isinstance(record, bytes) and not record.strip():
                    continue
                try:
                    yield line_no, _read(record)
                except LineFault as fault:
                    yield line_no, fault
    except LineFault as fault:
        raise BadInput([Fault(f"'{path}'", fault.what, fault.hint)]) from None
    except OSError as error:
        raise BadInput([Fault(f"'{path}'", f"cannot be read: {error.strerror}", CHECK_IT)]) from None


def _read(record: object) -> AnswerLine:
    if record is None:
        raise LineFault(f"is longer than {MAX_LINE_BYTES >> 20} MiB", "take it out")
    if isinstance(record, LineFault):
        raise record
    line = parse_line(record) if isinstance(record, bytes) else record
    if not isinstance(line, dict) or not isinstance(record, bytes):
        raise LineFault("is no JSON object", FORM)
    account = line.get("batchrun")
    response = line.get("response")
    if not isinstance(response, dict | None) or ("response" not in line and "error" not in line):
        raise LineFault("has no 'response'", FORM)
    head, body = _taken_apart(response)
    inner = account.get("attempt_id") if isinstance(account, dict) else None
    names = (line.get("attempt_id"), inner, line.get("id"))
    found = AnswerLine(
        attempt_id=next(filter(_is_ours, names), None),
        request_id=_text(line.get("request_id")) or _text(head.get("request_id")),
        custom_id=_text(line.get("custom_id")),
        status=_status(head.get("status_code", 200)),
        raw=None if body is None else _bytes(body),
    )
    if found.names_nothing:
        raise LineFault("names no request: it has no attempt_id, request_id or custom_id", FORM)
    return found


def _taken_apart(response: dict[str, Any] | None) -> tuple[dict[str, Any], Any]:
    """Return a response's status and ids, and its body: wrapped as in a batch output, or all of it is the body."""
    if response is None:
        return {}, None
    return (response, response["body"]) if "body" in response else ({}, response)


def _is_ours(name: object) -> bool:
    return isinstance(name, str) and name.startswith(OURS)


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None


def _status(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 100 <= value <= 599:
        raise LineFault("has a 'status_code' that is none", "write the HTTP status, 200 for an answer")
    return value


def _bytes(body: Any) -> bytes:
    """Return a body as the endpoint sent it: JSON, or a text that holds what was none."""
    if isinstance(body, str):
        return body.encode("utf-8", "surrogatepass")
    try:
        return to_json(body)
    except PydanticSerializationError:  # half of a surrogate pair
        return json.dumps(body).encode()
