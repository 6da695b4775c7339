"""Connections: opened directly and through proxies, kept for a while, and read whatever pieces their bytes come in."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batchrun.core.outcome import BreakKind
from batchrun.endpoint import pool as pool_module
from batchrun.endpoint.breaks import Unreadable
from batchrun.endpoint.connection import Connection, Header
from batchrun.endpoint.pool import Pool
from batchrun.errors import EndpointFault
from tests.endpoint.scripted import (
    ANSWER,
    LIMIT_S,
    Wire,
    always,
    broken,
    endpoint_at,
    make_certificate,
    post,
    replied,
    reply,
    run,
    serving,
)
from tests.examples import drawn

# --- through a proxy ---


def test_a_tunnel_carries_tls_to_the_server_and_its_certificate_is_the_servers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cert, context = make_certificate(tmp_path, "DNS:llm.example")

    async def work(*, is_trusted: bool) -> None:
        async with serving(always(reply()), tls=context) as server, Tunnelling(server.port) as (port, asked):
            monkeypatch.setenv("HTTPS_PROXY", f"http://user:pass%20word@127.0.0.1:{port}")
            async with endpoint_at("https://llm.example/v1") as endpoint:
                outcome = await post(endpoint)
                if not is_trusted:
                    assert "self-signed" in broken(outcome, BreakKind.TLS).detail
                    assert server.requests == []
                    return
                assert replied(outcome).body == replied(await post(endpoint)).body == ANSWER
            assert [request.line for request in server.requests] == ["POST /v1/chat/completions HTTP/1.1"] * 2
            assert "proxy-authorization" not in server.requests[0].headers
            assert asked == [
                b"CONNECT llm.example:443 HTTP/1.1\r\nHost: llm.example:443\r\n"
                b"Proxy-Authorization: Basic dXNlcjpwYXNzIHdvcmQ=\r\n\r\n"
            ]

    run(work(is_trusted=False))
    monkeypatch.setenv("SSL_CERT_FILE", str(cert))
    run(work(is_trusted=True))


class Tunnelling:
    """A proxy that hands everything through to a port of this machine, whatever name it is asked for."""

    def __init__(self, to_port: int) -> None:
        self._to_port, self.asked = to_port, list[bytes]()

    async def __aenter__(self) -> tuple[int, list[bytes]]:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return self._server.sockets[0].getsockname()[1], self.asked

    async def __aexit__(self, *exc_info: object) -> None:
        self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.asked.append(await reader.readuntil(b"\r\n\r\n"))
        there, back = await asyncio.open_connection("127.0.0.1", self._to_port)
        writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        await asyncio.gather(self._carry(reader, back), self._carry(there, writer))

    @staticmethod
    async def _carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(65_536):
                writer.write(data)
        except ConnectionError:
            pass
        finally:
            writer.close()


def test_a_proxy_without_tls_is_told_the_user_and_the_whole_address(monkeypatch: pytest.MonkeyPatch) -> None:
    async def work() -> None:
        async with serving(always(reply())) as proxy:
            monkeypatch.setenv("HTTP_PROXY", f"http://user:word@127.0.0.1:{proxy.port}")
            async with endpoint_at("http://llm.example:8000/v1") as endpoint:
                replied(await post(endpoint))
        (request,) = proxy.requests
        assert request.line == "POST http://llm.example:8000/v1/chat/completions HTTP/1.1"
        assert request.headers["host"] == "llm.example:8000"
        assert request.headers["proxy-authorization"] == "Basic dXNlcjp3b3Jk"

    run(work())


@pytest.mark.parametrize("said", [b"SSH-2.0-OpenSSH\r\n\r\n", b""])
def test_a_proxy_that_speaks_no_http_means_that_nothing_was_sent(said: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    async def odd(wire: Wire) -> None:
        await wire.request()
        await wire.send(said)

    async def work() -> None:
        async with serving(odd) as proxy:
            monkeypatch.setenv("HTTPS_PROXY", f"http://127.0.0.1:{proxy.port}")
            async with endpoint_at("https://llm.example/v1") as endpoint:
                fault = broken(await post(endpoint), BreakKind.CONNECT)
        assert fault.detail.startswith(f"the proxy 127.0.0.1:{proxy.port} cannot be reached")

    run(work())


# --- opened and kept ---


def test_a_name_is_asked_for_once_by_all_that_connect_at_once_and_again_after_a_failure() -> None:
    asked = 0

    async def work() -> None:
        nonlocal asked
        loop = asyncio.get_running_loop()
        real = loop.getaddrinfo

        async def counting(*arguments: Any, **options: Any) -> Any:
            nonlocal asked
            asked += 1
            if asked == 1:
                raise OSError("Temporary failure in name resolution")
            return await real(*arguments, **options)

        loop.getaddrinfo = counting  # type: ignore[method-assign]
        async with serving(always(reply())) as server:
            async with endpoint_at(f"http://localhost:{server.port}/v1") as endpoint:
                broken(await post(endpoint), BreakKind.DNS)
                for outcome in await asyncio.gather(*(post(endpoint) for _ in range(20))):
                    replied(outcome)
            assert server.connections == 20

    run(work())
    assert asked == 2


def test_idle_connections_are_closed_when_their_time_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool_module, "KEEPALIVE_S", 0.01)
    closed = asyncio.Event()

    async def watched(wire: Wire) -> None:
        await wire.request()
        await wire.send(reply())
        await wire.gone()
        closed.set()

    async def work() -> None:
        async with serving(watched) as server, endpoint_at(server.base_url) as endpoint:
            replied(await post(endpoint))
            await closed.wait()  # though nobody asks for anything more

    run(work())


def test_a_connection_that_is_gone_before_it_was_used_means_that_nothing_was_sent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    opened = Pool._opened

    async def gone(self: Pool) -> Connection:
        connection = await opened(self)
        connection.connection_lost(None)
        return connection

    async def work() -> None:
        async with serving(always(reply())) as server, endpoint_at(server.base_url) as endpoint:
            monkeypatch.setattr(Pool, "_opened", gone)
            fault = broken(await post(endpoint), BreakKind.CONNECT)
            assert fault.detail.endswith("speaks, or hangs up, before it is asked")
            assert server.requests == []

    run(work())


def test_whatever_fails_before_there_is_a_connection_nothing_was_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    async def odd(self: Pool) -> Connection:
        raise ValueError("a name that no certificate can have")

    async def work() -> None:
        async with serving(always(reply())) as server, endpoint_at(server.base_url) as endpoint:
            monkeypatch.setattr(Pool, "_opened", odd)
            assert "a name that no" in broken(await post(endpoint), BreakKind.CONNECT).detail
            assert server.requests == []

    run(work())


def test_line_breaks_after_an_answer_are_no_second_one() -> None:
    async def work() -> None:
        async with serving(always(reply() + b"\r\n")) as server, endpoint_at(server.base_url) as endpoint:
            assert replied(await post(endpoint)).body == replied(await post(endpoint)).body == ANSWER
            assert len(server.requests) == 2

    run(work())


def test_a_header_from_the_environment_that_would_make_two_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_ORG_ID", "org-1\r\nX-Other: 1")
    with pytest.raises(EndpointFault, match="OpenAI-Organization"):
        endpoint_at("http://127.0.0.1:9/v1")


# --- read in whatever pieces it comes ---

CHUNKED = (
    b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
    b'6\r\n{"a": \r\n2;name=value\r\n1}\r\n0\r\nX-Trailer: 1\r\n\r\n'
)
INTERIM = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n"
WHOLE = (reply(b'{"a": 1}'), CHUNKED, INTERIM + CHUNKED, INTERIM + reply(b'{"a": 1}', headers="X-Odd:   b  \r\n"))


class Kept:
    """A receiver that keeps what it is given."""

    def __init__(self) -> None:
        self.status: int | None = None
        self.headers: list[Header] = []
        self.body = b""

    def head(self, status: int, headers: list[Header]) -> None:
        self.status, self.headers = status, list(headers)

    def piece(self, data: bytes) -> None:
        self.body += data

    def forget(self) -> None:
        self.__init__()  # type: ignore[misc]


class Line(asyncio.Transport):
    """A transport without a socket."""

    def __init__(self) -> None:
        super().__init__()
        self.sent, self.is_aborted = b"", False

    def write(self, data: Any) -> None:
        self.sent += data

    def abort(self) -> None:
        self.is_aborted = True

    def get_write_buffer_size(self) -> int:
        return 0


async def read(pieces: Sequence[bytes]) -> tuple[Kept, bool]:
    """Let an answer come in these pieces; return what was received and whether the connection may be kept."""
    connection, kept, line = Connection(), Kept(), Line()
    connection.connection_made(line)
    deadline = asyncio.get_running_loop().time() + LIMIT_S
    asked = asyncio.ensure_future(connection.ask(b"POST", kept, deadline=deadline, most_bytes=1_000))
    await asyncio.sleep(0)
    for piece in pieces:
        connection.data_received(piece)
    await asked
    return kept, connection.may_be_kept


@settings(max_examples=drawn(100), deadline=None)
@given(whole=st.sampled_from(WHOLE), data=st.data())
def test_however_its_bytes_are_cut_an_answer_is_the_same(whole: bytes, data: st.DataObject) -> None:
    cuts = sorted(data.draw(st.sets(st.integers(1, len(whole) - 1), max_size=12)))
    pieces = [whole[start:end] for start, end in zip([0, *cuts], [*cuts, len(whole)], strict=True)]
    kept, may_be_kept = asyncio.run(read(pieces))
    assert (kept.status, kept.body, may_be_kept) == (200, b'{"a": 1}', True)
    assert (b"content-type", b"application/json") in kept.headers
    assert not any(name == b"link" for name, _ in kept.headers)


def test_an_answer_that_is_longer_than_it_says_is_none() -> None:
    with pytest.raises(Unreadable):
        asyncio.run(read([reply(b'{"a": 1}') + b'{"b": 2}']))


@pytest.mark.parametrize("more", [[reply(b'{"b": 2}')], [b"", reply(b'{"b": 2}')], [b"", b'{"b": 2}']])
def test_what_follows_an_answer_is_not_the_next_one(more: list[bytes]) -> None:
    first, *later = more
    kept, may_be_kept = asyncio.run(read([reply(b'{"a": 1}') + first, *later]))
    assert (kept.status, kept.body, may_be_kept) == (200, b'{"a": 1}', False)
