"""A raw socket server that does exactly what a test says, byte for byte, and keeps what it was sent."""

import asyncio
import shutil
import socket
import ssl
import struct
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import pytest

from batchrun.core.outcome import Break, BreakKind, Reply
from batchrun.endpoint.client import Endpoint

T = TypeVar("T")
LIMIT_S = 60.0  # a test that waits longer has failed: what it waits for takes milliseconds
PATH = "/v1/chat/completions"
ANSWER = (
    b'{"id": "c-1", "choices": [{"index": 0, "message": {"role": "assistant", "content": "hello"}, '
    b'"finish_reason": "stop"}], "usage": {"prompt_tokens": 10, "completion_tokens": 5}}'
)


@dataclass(frozen=True)
class Request:
    """One request as it stood on the wire."""

    line: str
    headers: dict[str, str]  # names in lower case
    body: bytes


class GoneError(Exception):
    """The client has closed the connection."""


class Wire:
    """One connection, seen from the server. A handler that returns closes it."""

    def __init__(self, server: "Server", reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._server = server
        self._reader = reader
        self._writer = writer

    async def request(self) -> Request:
        """Read one request to its end. Raises GoneError where none comes."""
        head = await self._read_head()
        lines = head.decode("latin-1").split("\r\n")
        headers = {
            name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:] if line)
        }
        body = await self._reader.readexactly(int(headers.get("content-length", 0)))
        request = Request(lines[0], headers, body)
        self._server.requests.append(request)
        return request

    async def _read_head(self) -> bytes:
        try:
            return await self._reader.readuntil(b"\r\n\r\n")
        except (asyncio.IncompleteReadError, ConnectionError):
            raise GoneError from None

    async def read_some(self) -> None:
        """Read a first piece of whatever comes."""
        await self._reader.read(1000)

    async def send(self, data: bytes) -> None:
        self._writer.write(data)
        try:
            await self._writer.drain()
        except ConnectionError:
            raise GoneError from None

    async def gone(self) -> None:
        """Wait until the client closes."""
        try:
            while await self._reader.read(65536):
                pass
        except ConnectionError:
            return

    def reset(self) -> None:
        """Close with a TCP reset instead of an orderly end."""
        self._writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._writer.transport.abort()


Handler = Callable[[Wire], Awaitable[None]]


@dataclass
class Server:
    """What a scripted server has seen."""

    port: int = 0
    scheme: str = "http"
    requests: list[Request] = field(default_factory=list)
    connections: int = 0
    ended: list[BaseException | None] = field(default_factory=list)  # how each connection's handler ended

    @property
    def base_url(self) -> str:
        return f"{self.scheme}://127.0.0.1:{self.port}/v1"


@asynccontextmanager
async def serving(handler: Handler, *, tls: ssl.SSLContext | None = None) -> AsyncIterator[Server]:
    """Serve on a free loopback port; every connection runs `handler`."""
    seen = Server(scheme="https" if tls else "http")
    running: set[asyncio.Task[Any]] = set()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.connections += 1
        task = asyncio.current_task()
        assert task is not None
        running.add(task)
        fault: BaseException | None = None
        try:
            await handler(Wire(seen, reader, writer))
        except (GoneError, asyncio.CancelledError) as gone:  # cancelled at the end of the test
            fault = gone
        finally:
            seen.ended.append(fault)
            running.discard(task)
            writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", 0, ssl=tls, limit=2**26)
    seen.port = server.sockets[0].getsockname()[1]
    try:
        yield seen
    finally:
        server.close()
        for task in list(running):
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)


def reply(body: bytes = ANSWER, *, status: str = "200 OK", headers: str = "", length: int | None = None) -> bytes:
    """Write a whole reply; `length` overrides the true Content-Length, `headers` are lines that end in CR LF."""
    size = len(body) if length is None else length
    return (
        f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\n{headers}Content-Length: {size}\r\n\r\n".encode()
        + body
    )


def always(data: bytes) -> Handler:
    """Answer every request of a connection with the same bytes."""

    async def handler(wire: Wire) -> None:
        while True:
            await wire.request()
            await wire.send(data)

    return handler


def make_certificate(folder: Path, name: str) -> tuple[Path, ssl.SSLContext]:
    """Make a certificate that nobody trusts yet, and a server's context that shows it.

    Args:
        name: whose it is, such as "IP:127.0.0.1" or "DNS:llm.example".
    """
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed")
    key, cert = folder / "key.pem", folder / "cert.pem"
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=test"
    subject = ["-addext", f"subjectAltName={name}", "-keyout", str(key), "-out", str(cert)]
    subprocess.run([*command.split(), *subject], check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    return cert, context


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run a test's coroutine, with a time limit."""

    async def limited() -> T:
        async with asyncio.timeout(LIMIT_S):
            return await work

    return asyncio.run(limited())


def endpoint_at(
    base_url: str, *, timeout_s: float = LIMIT_S, connect_timeout_s: float = LIMIT_S, key: str = "EMPTY"
) -> Endpoint:
    return Endpoint(base_url, key, timeout_s=timeout_s, connect_timeout_s=connect_timeout_s)


async def post(endpoint: Endpoint, body: bytes = b'{"model": "m"}', attempt_id: str = "attempt-1") -> Reply | Break:
    return await endpoint.exchange(path=PATH, body=body, attempt_id=attempt_id)


def exchange_with(handler: Handler, *, timeout_s: float = LIMIT_S, key: str = "EMPTY") -> tuple[Reply | Break, Server]:
    """Send one request to a server of this behaviour."""

    async def work() -> tuple[Reply | Break, Server]:
        async with serving(handler) as server, endpoint_at(server.base_url, timeout_s=timeout_s, key=key) as endpoint:
            return await post(endpoint), server

    return run(work())


def broken(outcome: Reply | Break, kind: BreakKind) -> Break:
    assert isinstance(outcome, Break), outcome
    assert outcome.kind is kind, outcome
    return outcome


def replied(outcome: Reply | Break) -> Reply:
    assert isinstance(outcome, Reply), outcome
    return outcome
