"""HTTP/1.1 requests: from the bytes of a connection to whole requests."""

from dataclasses import dataclass, field

MAX_HEAD_BYTES = 64 * 1024
MAX_BODY_BYTES = 256 * 1024 * 1024
HEAD_END = b"\r\n\r\n"


class BadRequest(Exception):
    """The bytes are no HTTP/1.1 request; the connection cannot be used any further."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


@dataclass(slots=True)
class Request:
    """One request as it came over the wire."""

    method: str
    path: str  # without the query
    headers: dict[bytes, bytes]  # names in lower case
    keep_alive: bool
    body: bytes = b""
    query: str = ""  # without the question mark, as it came


@dataclass(slots=True)
class _Body:
    """A body on its way in."""

    request: Request
    missing_bytes: int | None  # None: chunked
    chunks: list[bytes] = field(default_factory=list)
    size_bytes: int = 0
    in_trailer: bool = False  # the last chunk was seen
    is_held_back: bool = False  # the client waits for 100 Continue


class RequestParser:
    """Collect bytes and hand out the requests that are whole."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._body: _Body | None = None

    def feed(self, data: bytes) -> None:
        """Take in what the connection received."""
        self._buffer += data

    def take_expectation(self) -> bool:
        """Tell, once per request, that the client holds its body back until it gets `100 Continue`."""
        if self._body is None or not self._body.is_held_back:
            return False
        self._body.is_held_back = False
        return True

    def read(self) -> Request | None:
        """Return the next whole request, or None while bytes are missing; `BadRequest` if they are none."""
        if self._body is None:
            self._body = self._read_head()
            if self._body is None:
                return None
        is_whole = self._read_chunks(self._body) if self._body.missing_bytes is None else self._read_sized(self._body)
        if not is_whole:
            return None
        request, self._body = self._body.request, None
        return request

    def _read_head(self) -> _Body | None:
        while self._buffer.startswith(b"\r\n"):  # RFC 9112 2.2: an empty line before a request is skipped
            del self._buffer[:2]
        end = self._buffer.find(HEAD_END)
        if end > MAX_HEAD_BYTES or (end < 0 and len(self._buffer) > MAX_HEAD_BYTES):
            raise BadRequest(431, "the request head is too large")
        if end < 0:
            return None
        head = bytes(self._buffer[:end])
        del self._buffer[: end + 4]
        return _parse_head(head)

    def _read_sized(self, body: _Body) -> bool:
        size = body.missing_bytes or 0
        if len(self._buffer) < size:
            return False
        if size:
            body.request.body = bytes(self._buffer[:size])
            del self._buffer[:size]
        return True

    def _read_chunks(self, body: _Body) -> bool:
        while not body.in_trailer:
            end = self._buffer.find(b"\r\n")
            if end < 0:
                return False
            size = _parse_size(bytes(self._buffer[:end]).partition(b";")[0].strip(), 16)
            if size + body.size_bytes > MAX_BODY_BYTES:
                raise BadRequest(413, "the body is too large")
            if size == 0:
                body.in_trailer = True
                del self._buffer[: end + 2]
            elif not self._take_chunk(body, end + 2, size):
                return False
        return self._skip_trailer(body)

    def _take_chunk(self, body: _Body, start: int, size: int) -> bool:
        if len(self._buffer) < start + size + 2:
            return False
        if self._buffer[start + size : start + size + 2] != b"\r\n":
            raise BadRequest(400, "a chunk does not end where its size says")
        body.chunks.append(bytes(self._buffer[start : start + size]))
        body.size_bytes += size
        del self._buffer[: start + size + 2]
        return True

    def _skip_trailer(self, body: _Body) -> bool:
        while (end := self._buffer.find(b"\r\n")) >= 0:
            del self._buffer[: end + 2]
            if end == 0:
                body.request.body = b"".join(body.chunks)
                return True
        return False


def _parse_head(head: bytes) -> _Body:
    first, *lines = head.split(b"\r\n")
    words = first.split(b" ")
    if len(words) != 3 or words[2] not in (b"HTTP/1.1", b"HTTP/1.0"):
        raise BadRequest(400, "the first line is no HTTP/1.1 request line")
    headers: dict[bytes, bytes] = {}
    for line in lines:
        name, colon, value = line.partition(b":")
        if not colon:
            raise BadRequest(400, "a header line has no colon")
        headers[name.lower()] = value.strip()
    path, _, query = words[1].decode("latin-1").partition("?")
    request = Request(words[0].decode("latin-1"), path, headers, _is_kept(words[2], headers), query=query)
    is_held_back = headers.get(b"expect", b"").lower() == b"100-continue"
    return _Body(request, _measure_body(headers), is_held_back=is_held_back)


def _is_kept(version: bytes, headers: dict[bytes, bytes]) -> bool:
    wish = headers.get(b"connection", b"").lower()
    return b"close" not in wish and (version == b"HTTP/1.1" or b"keep-alive" in wish)


def _measure_body(headers: dict[bytes, bytes]) -> int | None:
    coding = headers.get(b"transfer-encoding")
    if coding is not None:
        if coding.lower() != b"chunked":
            raise BadRequest(501, "the only transfer coding understood is 'chunked'")
        return None
    size = _parse_size(headers.get(b"content-length", b"0"), 10)
    if size > MAX_BODY_BYTES:
        raise BadRequest(413, "the body is too large")
    return size


def _parse_size(text: bytes, base: int) -> int:
    if not text.isalnum():  # int() would also take signs and underscores
        raise BadRequest(400, "a body size is no number")
    try:
        return int(text, base)
    except ValueError:
        raise BadRequest(400, "a body size is no number") from None
