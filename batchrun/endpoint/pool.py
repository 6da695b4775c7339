"""The connections to one server: opened, directly or through a proxy, and kept for a while."""

import asyncio
import re
import socket
import ssl
from base64 import b64encode
from collections import deque
from dataclasses import dataclass
from typing import Any, Self, TypeVar
from urllib.parse import unquote, urlsplit

from aiohappyeyeballs import start_connection

from batchrun.endpoint.breaks import (
    ConnectTimeout,
    NoAddress,
    NoConnection,
    NoProxy,
    NotConnected,
    NoTls,
    ProxyRefuses,
    Unasked,
)
from batchrun.endpoint.connection import Connection

KEEPALIVE_S = 4.0  # below the 5 s after which common servers (uvicorn, Node) drop an idle connection
NOT_KEPT_S = 60.0  # after a kept connection was closed under a request
RESOLVED_S = 10.0  # for so long the addresses of a name are believed
SECOND_ADDRESS_S = 0.25  # after that the next of several addresses is tried beside the first (RFC 8305)
MOST_PROXY_BYTES = 65_536  # of a proxy's answer
PROXY_ANSWER = re.compile(rb"HTTP/1\.[01] (\d{3})(?: ([^\r\n]*))?\r?\n(?:[^\r\n]+\r?\n)*\r?\n")

P = TypeVar("P", bound=asyncio.Protocol)
AddressInfo = Any  # of socket.getaddrinfo


@dataclass(frozen=True, slots=True)
class Hop:
    """A server that is connected to: the endpoint's or a proxy's."""

    host: str
    port: int
    is_tls: bool
    authorization: str | None = None  # of a proxy's user

    @classmethod
    def of(cls, url: str) -> Self:
        parts = urlsplit(url)
        user = None
        if parts.username is not None:
            pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
            user = f"Basic {b64encode(pair.encode()).decode()}"
        is_tls = parts.scheme == "https"
        return cls(parts.hostname or "", parts.port or (443 if is_tls else 80), is_tls, user)

    @property
    def name(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Pool:
    """The connections to one server, for one event loop.

    Args:
        url: whose scheme, host and port are connected to.
        proxy: the address of the proxy on the way, if there is one.
    """

    def __init__(self, url: str, *, proxy: str | None) -> None:
        self._loop = asyncio.get_running_loop()
        self._server = Hop.of(url)
        self._proxy = None if proxy is None else Hop.of(proxy)
        self._tls = _tls_context() if self._server.is_tls or (self._proxy and self._proxy.is_tls) else None
        self._idle: deque[tuple[float, Connection]] = deque()  # (since when, it), the longest idle first
        self._open: set[Connection] = set()
        self._sweep: asyncio.TimerHandle | None = None
        self._is_closed = False
        self._keeps_from = 0.0  # on the loop's clock
        self._found: tuple[float, asyncio.Task[list[AddressInfo]]] | None = None

    async def take(self, *, timeout_s: float) -> Connection:
        """Return a connection on which a request may be sent now, within this step of the loop.

        Raises:
            NotConnected: there is none; its kind says why.
        """
        while self._idle:
            since, connection = self._idle.pop()
            if connection.is_usable and self._loop.time() - since < KEEPALIVE_S and connection.is_quiet:
                return connection
            self.drop(connection)
        connection = await self._connect(timeout_s)
        if self._is_closed or not connection.is_usable:
            connection.close()
            raise NoConnection(ConnectionAbortedError("closed here")) if self._is_closed else Unasked
        self._open.add(connection)
        return connection

    def put_back(self, connection: Connection) -> None:
        """Keep a connection whose exchange is over, if another may follow."""
        if self._is_closed or not connection.may_be_kept or self._loop.time() < self._keeps_from:
            self.drop(connection)
            return
        self._idle.append((self._loop.time(), connection))
        if self._sweep is None:
            self._sweep = self._loop.call_later(KEEPALIVE_S, self._close_idle)

    def keep_none(self) -> None:
        """Keep no connections for a while: the server closes them without a word, and that costs a request."""
        self._keeps_from = self._loop.time() + NOT_KEPT_S
        while self._idle:
            self.drop(self._idle.pop()[1])

    def drop(self, connection: Connection) -> None:
        """Close a connection."""
        self._open.discard(connection)
        connection.close()

    async def close(self) -> None:
        """Close all of them, for good."""
        self._is_closed = True
        if self._sweep is not None:
            self._sweep.cancel()
        if self._found is not None:
            self._found[1].cancel()
        self._idle.clear()
        for connection in list(self._open):
            self.drop(connection)
        await asyncio.sleep(0)  # what is closed says so in the loop's next step

    def _close_idle(self) -> None:
        self._sweep = None
        while self._idle and self._loop.time() - self._idle[0][0] >= KEEPALIVE_S:
            self.drop(self._idle.popleft()[1])
        if self._idle:
            self._sweep = self._loop.call_later(KEEPALIVE_S, self._close_idle)

    # -- opening one --------------------------------------------------------------------------------------------------

    async def _connect(self, timeout_s: float) -> Connection:
        try:
            async with asyncio.timeout(timeout_s):
                return await self._opened()
        except TimeoutError:
            raise ConnectTimeout from None
        except NotConnected:
            raise
        except Exception as error:
            raise NoConnection(error) from error  # whatever it was: no request has begun

    async def _opened(self) -> Connection:
        first = self._proxy or self._server
        try:
            addresses = await self._addresses(first)
        except OSError as error:
            raise NoAddress(first.host, error) from None
        try:
            sock = await start_connection(addresses, happy_eyeballs_delay=SECOND_ADDRESS_S, loop=self._loop)
        except OSError as error:
            raise (NoConnection(error) if self._proxy is None else NoProxy(first.name, error)) from None
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if self._proxy is not None and self._server.is_tls:
            return await self._through_tunnel(self._proxy, sock)
        return await self._greeted(Connection, sock, first)

    async def _addresses(self, hop: Hop) -> list[AddressInfo]:
        """Return the addresses of a host. They are asked for once for all that connect in the same seconds."""
        now = self._loop.time()
        if self._found is None or now >= self._found[0] or _has_failed(self._found[1]):
            asked = self._loop.getaddrinfo(hop.host, hop.port, type=socket.SOCK_STREAM)
            task: asyncio.Task[list[AddressInfo]] = self._loop.create_task(asked)
            task.add_done_callback(_has_failed)  # nobody may be left to hear of it
            self._found = (now + RESOLVED_S, task)
        asking = self._found[1]
        try:
            return await asyncio.shield(asking)
        except asyncio.CancelledError:
            if asking.cancelled() and self._is_closed:
                raise ConnectionAbortedError("closed here") from None
            raise

    async def _greeted(self, make: type[P], sock: socket.socket, hop: Hop) -> P:
        """Return a protocol on a connected socket, behind TLS where the server at its end speaks that."""
        tls, name = (self._tls, hop.host) if hop.is_tls else (None, None)
        try:
            _, protocol = await self._loop.create_connection(make, sock=sock, ssl=tls, server_hostname=name)
        except OSError as error:
            raise (NoTls(error) if hop.is_tls else NoConnection(error)) from None
        return protocol

    async def _through_tunnel(self, proxy: Hop, sock: socket.socket) -> Connection:
        tunnel = await self._greeted(_Tunnel, sock, proxy)
        connection = Connection()
        assert self._tls is not None
        try:
            status, words = await tunnel.ask(self._server, proxy)
            if status // 100 != 2:
                raise ProxyRefuses(status, words)
            transport = await self._loop.start_tls(
                tunnel.transport, connection, self._tls, server_hostname=self._server.host
            )
        except OSError as error:
            tunnel.transport.abort()
            raise NoTls(error) from None
        except BaseException:
            tunnel.transport.abort()
            raise
        assert transport is not None
        connection.connection_made(transport)
        return connection


class _Tunnel(asyncio.Protocol):
    """A connection to a proxy that is asked to hand it through to the server."""

    def __init__(self) -> None:
        self._head = b""
        self._answer: asyncio.Future[tuple[int, str]] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    async def ask(self, server: Hop, proxy: Hop) -> tuple[int, str]:
        """Ask for a connection to the server; return the proxy's status and words."""
        lines = [f"CONNECT {server.name} HTTP/1.1", f"Host: {server.name}"]
        if proxy.authorization is not None:
            lines.append(f"Proxy-Authorization: {proxy.authorization}")
        self.transport.write("\r\n".join([*lines, "", ""]).encode())
        try:
            return await self._answer
        except OSError as error:
            raise NoProxy(proxy.name, error) from None

    def data_received(self, data: bytes) -> None:
        if self._answer.done():
            return
        self._head += data
        while (found := PROXY_ANSWER.match(self._head)) is not None:
            status = int(found[1])
            if status >= 200:
                self._answer.set_result((status, (found[2] or b"").decode("utf-8", "replace")))
                return
            self._head = self._head[found.end() :]  # an interim answer
        if b"\n\r\n" in self._head or b"\n\n" in self._head or len(self._head) > MOST_PROXY_BYTES:
            self._answer.set_exception(OSError("its answer is not HTTP that can be read"))

    def connection_lost(self, exc: Exception | None) -> None:
        if not self._answer.done():
            self._answer.set_exception(exc or OSError("it closed the connection without an answer"))


def _has_failed(task: "asyncio.Task[list[AddressInfo]]") -> bool:
    return task.done() and (task.cancelled() or task.exception() is not None)


def _tls_context() -> ssl.SSLContext:
    """Trust what the system or SSL_CERT_FILE trusts, read now."""
    context = ssl.create_default_context()
    context.set_alpn_protocols(["http/1.1"])
    return context
