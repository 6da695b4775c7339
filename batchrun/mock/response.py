"""HTTP/1.1 responses: heads, chunks and OpenAI's error bodies, rendered to bytes."""

import json
from collections.abc import Iterable, Iterator
from http import HTTPStatus

JSON_TYPE = b"application/json"
SSE_TYPE = b"text/event-stream; charset=utf-8"
HTML_TYPE = b"text/html; charset=utf-8"
TEXT_TYPE = b"text/plain; version=0.0.4; charset=utf-8"

CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
LAST_CHUNK = b"0\r\n\r\n"
HTML_BODY = b"<!doctype html><html><head><title>Gateway</title></head><body><h1>One moment, please</h1></body></html>\n"

_STATUS_LINES = {status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n".encode() for status in HTTPStatus}


def render_head(status: int, content_type: bytes, *, length: int | None, request_no: int, extra: bytes = b"") -> bytes:
    """Render status line and headers; without a length the body must come in chunks. `extra` holds whole lines."""
    framing = b"Transfer-Encoding: chunked" if length is None else b"Content-Length: %d" % length
    return b"%bContent-Type: %b\r\nx-request-id: req-%d\r\n%b%b\r\n\r\n" % (
        _STATUS_LINES[status],
        content_type,
        request_no,
        extra,
        framing,
    )


def render_chunks(steps: Iterable[bytes], count: int) -> Iterator[bytes]:
    """Frame the `count` pieces of a chunked body; the last one carries the end of the body."""
    for no, step in enumerate(steps, 1):
        yield b"%x\r\n%b\r\n%b" % (len(step), step, LAST_CHUNK if no == count else b"")


def render_error(message: str, kind: str, *, param: str | None = None, code: str | None = None) -> bytes:
    """Render an error body in OpenAI's shape."""
    return json.dumps({"error": {"message": message, "type": kind, "param": param, "code": code}}).encode()
