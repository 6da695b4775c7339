"""One client connection: bytes in, requests one after the other, bytes out."""

import asyncio
import socket
import struct
from collections import deque
from typing import cast

from batchrun.mock.endpoint import Endpoint
from batchrun.mock.exchange import Exchange
from batchrun.mock.request import BadRequest, Request, RequestParser
from batchrun.mock.response import CONTINUE, JSON_TYPE, render_error, render_head

LINGER_NOT = struct.pack("ii", 1, 0)  # closing then sends RST and drops what is unsent


class Company:
    """The connections that are open."""

    def __init__(self) -> None:
        self._members: set[Connection] = set()
        self._is_empty = asyncio.Event()
        self._is_empty.set()

    def add(self, connection: "Connection") -> None:
        """Let a connection in."""
        self._members.add(connection)
        self._is_empty.clear()

    def discard(self, connection: "Connection") -> None:
        """Note that a connection is closed."""
        self._members.discard(connection)
        if not self._members:
            self._is_empty.set()

    async def disband(self, drain_s: float) -> None:
        """Close all connections: idle ones now, the others when their exchange ends or `drain_s` are over."""
        for connection in list(self._members):
            connection.drain()
        try:
            await asyncio.wait_for(self._is_empty.wait(), drain_s)
        except TimeoutError:
            for connection in list(self._members):
                connection.stop()
            await self._is_empty.wait()


class Connection(asyncio.Protocol):
    """Serve the requests of one connection in their order; a pipelined one waits for those before it."""

    def __init__(self, endpoint: Endpoint, company: "Company") -> None:
        self._endpoint = endpoint
        self._company = company
        self._parser = RequestParser()
        self._queue: deque[Request] = deque()
        self._exchange: Exchange | None = None
        self._is_serving = False  # `_serve_queue` is on the stack
        self._is_last = False  # close after the exchange under way
        self._no = 0
        self._request_no = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Count the connection."""
        self._transport = cast(asyncio.Transport, transport)
        self._company.add(self)
        self._no = self._endpoint.greet()

    def connection_lost(self, exc: Exception | None) -> None:
        """Give up the exchange under way: its client has gone."""
        self._company.discard(self)
        self._endpoint.stats.open_connections -= 1
        self._queue.clear()
        self._abandon("client_gone")

    def data_received(self, data: bytes) -> None:
        """Take in bytes and serve the requests that are whole."""
        self._parser.feed(data)
        try:
            while (request := self._parser.read()) is not None:
                self._queue.append(request)
        except BadRequest as fault:
            self._refuse(fault)
            return
        self._serve_queue()

    def send(self, data: bytes) -> None:
        """Hand bytes to the kernel, or queue them."""
        self._transport.write(data)

    def finish(self, keep_alive: bool) -> None:
        """Go on with the next request, or close: the exchange is over."""
        self._exchange = None
        if self._is_last or not keep_alive:
            self._queue.clear()
            self._transport.close()
        elif not self._is_serving:
            self._serve_queue()

    def reset(self) -> None:
        """Break the connection off with an RST."""
        self._exchange = None
        self._queue.clear()
        self._transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, LINGER_NOT)
        self._transport.abort()

    def drain(self) -> None:
        """Take no new request, and close as soon as the exchange under way has ended; a hung one never will."""
        self._is_last = True
        self._queue.clear()
        if self._exchange is None or self._exchange.is_hung:
            self.stop()

    def stop(self) -> None:
        """Close now."""
        self._abandon("stopped")
        self._transport.abort()

    def _abandon(self, outcome: str) -> None:
        exchange, self._exchange = self._exchange, None
        if exchange is not None:
            exchange.abandon(outcome)

    def _serve_queue(self) -> None:
        """Serve until an exchange takes time; in a loop, for instant answers would nest otherwise."""
        self._is_serving = True
        while self._queue and self._exchange is None and not self._transport.is_closing():
            request = self._queue.popleft()
            self._request_no += 1
            arrival, plan = self._endpoint.take_in(request, conn=self._no, conn_seq=self._request_no)
            self._exchange = Exchange(self._endpoint, self, arrival, plan)
            self._exchange.begin()
        self._is_serving = False
        if self._exchange is None and self._parser.take_expectation():
            self._transport.write(CONTINUE)

    def _refuse(self, fault: BadRequest) -> None:
        """Answer bytes that are no request, and close; they are neither counted nor logged."""
        body = render_error(str(fault), "invalid_request_error")
        head = render_head(fault.status, JSON_TYPE, length=len(body), request_no=0, extra=b"Connection: close\r\n")
        self._abandon("stopped")
        self._transport.write(head + body)
        self._transport.close()
