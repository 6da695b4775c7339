"""One exchange: its clock, and what has come of its answer."""

import time

from batchrun.core.outcome import Break, BreakKind, Reply, Timing
from batchrun.endpoint.connection import Header
from batchrun.endpoint.decode import decode
from batchrun.endpoint.stream import MEDIA_TYPE, Stream

PARTIAL_BYTES = 65_536  # kept of an answer that broke off
ECHOES = ("x-client-request-id", "x-litellm-call-id")  # in which servers say whose answer it is


class Exchange:
    """The clock and the receiver of one exchange."""

    __slots__ = (
        *("_began", "_body", "_first_byte_at", "_headers", "_sent_at", "_status", "_stream", "_streamed"),
        "has_begun",
    )

    def __init__(self, *, streamed: str | None = None) -> None:
        self._streamed = streamed  # the path whose answer was asked for in pieces
        self._sent_at = time.time()
        self._began = time.monotonic()
        self._first_byte_at: float | None = None
        self._status: int | None = None
        self._headers: dict[str, str] = {}
        self._body: bytes | bytearray = b""
        self.has_begun = False  # a byte of the request may have left
        self._stream: Stream | None = None

    @property
    def got(self) -> str:
        """Tell how far the answer had come; "" where nothing of it had."""
        return "" if self._status is None else f"status {self._status} and {len(self._body):,} bytes had come"

    # -- what the connection calls ------------------------------------------------------------------------------------

    def head(self, status: int, headers: list[Header]) -> None:
        """Take the head of the answer."""
        self._first_byte_at = time.time()
        self._status = status
        self._headers = {
            name.decode("utf-8", "surrogateescape"): value.decode("utf-8", "surrogateescape") for name, value in headers
        }
        if self._streamed is not None and _is_stream(status, self._headers):
            self._stream = Stream(self._began, path=self._streamed)

    def piece(self, data: bytes) -> None:
        """Take a piece of the body."""
        if self._stream is not None:
            self._stream.feed(data)
        if not self._body:
            self._body = data
            return
        if isinstance(self._body, bytes):
            self._body = bytearray(self._body)
        self._body += data

    def forget(self) -> None:
        """Take back what has come: it was no answer."""
        self._first_byte_at = self._status = self._stream = None
        self._headers, self._body = {}, b""

    # -- what comes of it ---------------------------------------------------------------------------------------------

    def is_named(self, request: str | None) -> bool:
        """Say whether the server says that this is the answer to a request of that name."""
        return any(self._headers.get(header) == request for header in ECHOES)

    def reply(self) -> Reply | Break:
        """Return the answer, which has come whole."""
        assert self._status is not None
        if self._stream is not None:
            return self._put_together(self._stream)
        headers = self._headers
        body = bytes(self._body)
        if coding := headers.get("content-encoding"):
            # The header stays where the coding could not be undone: that is the mark by which `classify` knows.
            decoded = decode(body, coding)
            if decoded is not None:
                body = decoded
                del headers["content-encoding"]
        return Reply(self._status, headers, body, self._timing())

    def _put_together(self, stream: Stream) -> Reply | Break:
        timing = self._timing()
        stream.finish()
        if not stream.is_whole:
            return self.broken(BreakKind.LOST, "the stream ended before its answer did")
        return Reply(self._status or 0, self._headers, stream.body(), timing)

    def broken(self, kind: BreakKind, detail: str) -> Break:
        """Return what there is of it."""
        return Break(kind, detail, self._timing(), self._status, bytes(self._body[:PARTIAL_BYTES]))

    def _timing(self) -> Timing:
        trace = None if self._stream is None else self._stream.trace()
        return Timing(self._sent_at, self._first_byte_at, time.time(), time.monotonic() - self._began, trace)


def _is_stream(status: int, headers: dict[str, str]) -> bool:
    """Say whether a reply is an answer in pieces; one that is packed besides is read when it is there."""
    media_type = headers.get("content-type", "").partition(";")[0].strip().lower()
    return status < 300 and media_type == MEDIA_TYPE and "content-encoding" not in headers
