"""One HTTP/1.1 connection: a request goes out, its answer comes in, and then perhaps another; httptools reads it.

Nothing is sent twice and nothing is guessed: whoever asks gets a whole answer, or the cause why there is none.
"""

import asyncio
import select
from typing import Protocol

import httptools

from batchrun.endpoint.breaks import CutOff, Hung, TooMuch, Unreadable

SWITCHED = 101
LARGEST_HEAD_BYTES = 131_072  # of a head of which no end has come, or between two pieces of a body
LARGEST_HEADER_BYTES = 65_536
MOST_HEADERS = 128
SHOWN_BYTES = 200  # of what is not HTTP
# Servers are read that break a line by LF alone, or leave a space behind the size of a chunk. What could be read in two
# ways, such as two lengths, is not read at all.
LENIENCIES = {
    "lenient_optional_cr_before_lf": True,
    "lenient_spaces_after_chunk_size": True,
}

Header = tuple[bytes, bytes]


class Receiver(Protocol):
    """Takes an answer as it comes."""

    def head(self, status: int, headers: list[Header]) -> None:
        """Take the head of the answer, once."""

    def piece(self, data: bytes) -> None:
        """Take a piece of the body."""

    def forget(self) -> None:
        """Take back all of it: it was no answer."""


class Connection(asyncio.Protocol):
    """A connection that is open. To be used on one event loop, by one exchange at a time."""

    __slots__ = (
        *("_done", "_keeps", "_loop", "_parser", "_poll", "_receiver", "_transport", "is_usable"),
        *("_is_closed_here", "carried"),
        # Of the answer that comes:
        *("_has_head", "_is_interim", "_is_more", "_is_odd", "_is_too_long", "_is_whole", "_until_closed"),
        *("_headers", "_left_bytes", "_most_bytes", "_silent_bytes"),
    )

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._poll: select.poll | None = None
        self._is_closed_here = False
        self.carried: str | None = None  # the last request's name; None: it is new
        self._parser = httptools.HttpResponseParser(self)
        self._parser.set_dangerous_leniencies(**LENIENCIES)
        self._done: asyncio.Future[None] | None = None  # of the exchange that it carries
        self._receiver: Receiver | None = None
        self.is_usable = True  # open, and the server has said nothing unasked

    async def ask(self, request: bytes, receiver: Receiver, *, deadline: float, most_bytes: int) -> None:
        """Send a request, and return when its whole answer has come to the receiver.

        Args:
            deadline: on the loop's clock.
            most_bytes: of an answer's body.

        Raises:
            TimeoutError: the deadline has come.
            Hung: the server closed the connection without an answer.
            CutOff: it did so in the middle of the answer.
            Unreadable: what came is not HTTP.
            TooMuch: the answer is larger than `most_bytes`.
            OSError: the connection broke.
        """
        assert self._transport is not None
        assert self._done is None
        assert self.is_usable
        self._receiver = receiver
        self._done = done = self._loop.create_future()
        self._headers: list[Header] = []
        self._silent_bytes = 0
        self._most_bytes = self._left_bytes = most_bytes
        self._has_head = self._is_interim = self._is_more = self._is_odd = self._is_too_long = False
        self._is_whole = self._keeps = self._until_closed = False
        # crash point: send-connected
        self._transport.write(request)
        # crash point: send-begun
        timer = self._loop.call_at(deadline, self._fail, TimeoutError())
        try:
            await done
        except BaseException:
            self.close()
            raise
        finally:
            timer.cancel()
            self._done = self._receiver = None

    @property
    def may_be_kept(self) -> bool:
        """True where another request may follow the one that is over."""
        transport = self._transport
        return self._keeps and self.is_usable and transport is not None and not transport.get_write_buffer_size()

    @property
    def is_quiet(self) -> bool:
        """True while nothing has come, nor its end, that the event loop has not read yet."""
        transport = self._transport
        if transport is None or transport.is_closing():
            return False
        if self._poll is None:
            self._poll = select.poll()
            self._poll.register(transport.get_extra_info("socket").fileno(), select.POLLIN)
        return not self._poll.poll(0)

    def close(self) -> None:
        """Close it at once, whatever is on its way."""
        self.is_usable = False
        self._is_closed_here = True
        if self._transport is not None:
            self._transport.abort()

    # -- what the event loop calls ------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        if self._done is None or self._done.done():
            self.close()  # nobody has asked: it is not the answer to what will be asked next
            return
        had_head, left_bytes = self._has_head, self._left_bytes
        if self._silent_bytes > LARGEST_HEAD_BYTES:
            self._unread("its head or trailer is longer than it may be", data, had_head=had_head)
            return
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._keeps = False  # nobody asked for another protocol: what is spoken there is not read
        except httptools.HttpParserError as error:
            self._unread(str(error), data, had_head=had_head)
            return
        self._silent_bytes = self._silent_bytes + len(data) if self._left_bytes == left_bytes else 0
        if self._is_more:
            self._keeps = False  # a second answer, which nobody asked for: what follows it is nobody's either
        if self._is_too_long:
            self._unread("its head is longer than it may be", data, had_head=had_head)
        elif self._is_odd:
            self._unread("its transfer coding is none that can be read", data, had_head=had_head)
        elif self._left_bytes < 0:
            self._fail(TooMuch(self._most_bytes))
        elif self._is_whole:
            self._finish()

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_usable = self._keeps = False
        if self._done is None or self._done.done():
            return
        if exc is not None or self._is_closed_here:
            self._fail(exc or ConnectionAbortedError("closed here"))
        elif not self._has_head:
            self._fail(Hung())
        elif self._until_closed:
            self._finish()
        else:
            self._fail(CutOff())

    # -- what the parser calls ----------------------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        self._is_more = self._is_whole
        self._headers = []

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers.append((name.lower(), value))
        if len(value) > LARGEST_HEADER_BYTES or len(self._headers) > MOST_HEADERS:
            self._is_too_long = True

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        self._is_interim = status < 200 and status != SWITCHED
        if self._is_interim or self._is_more:
            return
        self._has_head = True
        codings = b",".join(value for name, value in self._headers if name == b"transfer-encoding").lower()
        is_chunked = codings.strip() == b"chunked"
        self._is_odd = bool(codings) and not is_chunked
        self._until_closed = not is_chunked and not any(name == b"content-length" for name, _ in self._headers)
        assert self._receiver is not None
        self._receiver.head(status, self._headers)
        # crash point: receive-begun

    def on_body(self, body: bytes) -> None:
        self._left_bytes -= len(body)
        if self._left_bytes >= 0 and not self._is_more:
            assert self._receiver is not None
            self._receiver.piece(body)

    def on_message_complete(self) -> None:
        if self._is_interim:
            self._is_interim = False
            return
        self._is_whole = True
        self._keeps = self._parser.should_keep_alive()

    # -- how an exchange ends -----------------------------------------------------------------------------------------

    def _finish(self) -> None:
        assert self._done is not None
        self._done.set_result(None)

    def _unread(self, why: str, data: bytes, *, had_head: bool) -> None:
        """End with what is no HTTP; of what came with it nothing is believed."""
        if not had_head and self._receiver is not None:
            self._receiver.forget()
        self._fail(Unreadable(why, data[:SHOWN_BYTES]))

    def _fail(self, error: Exception) -> None:
        self.is_usable = self._keeps = False
        if self._done is not None and not self._done.done():
            self._done.set_exception(error)
