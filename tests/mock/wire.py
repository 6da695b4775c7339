"""A client for tests that sees the bytes: raw HTTP/1.1 over asyncio streams."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from batchrun.mock.config import MockConfig
from batchrun.mock.server import MockServer

TIMEOUT_S = 60.0  # for what takes milliseconds: a busy host may stop a test for seconds
CHAT = "/v1/chat/completions"
T = TypeVar("T")


@dataclass
class Answer:
    """A whole response."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        """The body as JSON."""
        return json.loads(self.body)


class Client:
    """One connection to a mock."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    @classmethod
    async def connect(cls, port: int) -> "Client":
        """Open a connection."""
        return cls(*await asyncio.open_connection("127.0.0.1", port))

    async def send(self, method: str, path: str, body: bytes = b"", **headers: str) -> None:
        """Send a request; `_` in a header's name stands for `-`."""
        lines = [f"{method} {path} HTTP/1.1", "Host: mock", f"Content-Length: {len(body)}"]
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        self.writer.write("\r\n".join(lines).encode() + b"\r\n\r\n" + body)
        await self.writer.drain()

    async def read(self) -> Answer:
        """Read a whole response."""
        status, headers = await self.read_head()
        if headers.get("transfer-encoding") == "chunked":
            body = b"".join([chunk async for chunk in self.read_chunks()])
        else:
            body = await self.reader.readexactly(int(headers["content-length"]))
        return Answer(status, headers, body)

    async def read_head(self) -> tuple[int, dict[str, str]]:
        """Read status line and headers."""
        head = (await self.reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:] if line)}
        return int(head[0].split()[1]), headers

    async def read_chunks(self) -> AsyncIterator[bytes]:
        """Read the chunks of a chunked body."""
        while size := int(await self.reader.readuntil(b"\r\n"), 16):
            yield (await self.reader.readexactly(size + 2))[:-2]
        await self.reader.readexactly(2)

    async def ask(self, method: str, path: str, body: bytes = b"", **headers: str) -> Answer:
        """Send a request and read its response."""
        await self.send(method, path, body, **headers)
        return await self.read()

    async def post(self, path: str = CHAT, **fields: Any) -> Answer:
        """Send a generation request and read its response."""
        return await self.ask("POST", path, write_body(**fields))

    async def read_stats(self) -> dict[str, Any]:
        """Read the counters."""
        stats: dict[str, Any] = (await self.ask("GET", "/__stats")).json
        return stats

    async def wait_for_stats(self, **wanted: Any) -> dict[str, Any]:
        """Ask for the counters until they are as wanted."""
        while True:
            stats = await self.read_stats()
            if all(stats[name] == value for name, value in wanted.items()):
                return stats

    def close(self) -> None:
        """Close the connection."""
        self.writer.close()


def write_body(prompt: str = "[[q-1]] hello", **fields: Any) -> bytes:
    """Write a body that any of the generation routes takes."""
    base = {"model": "mock", "messages": [{"role": "user", "content": prompt}], "prompt": prompt, "input": prompt}
    return json.dumps(base | fields).encode()


@asynccontextmanager
async def running(**settings: Any) -> AsyncIterator[tuple[MockServer, Client]]:
    """Run a mock, and give a client that is connected to it."""
    async with MockServer(MockConfig(**settings)) as server:
        client = await Client.connect(server.port)
        try:
            yield server, client
        finally:
            client.close()


def run(test: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run a test's coroutine; one that hangs fails."""

    async def bounded() -> T:
        return await asyncio.wait_for(test(), TIMEOUT_S)

    return asyncio.run(bounded())


def parse_events(body: bytes) -> list[Any]:
    """Split server-sent events into their data; the closing `[DONE]` stays a string."""
    data = [line[6:] for line in body.decode().splitlines() if line.startswith("data: ")]
    return [line if line == "[DONE]" else json.loads(line) for line in data]
