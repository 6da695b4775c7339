"""Connections: opened directly and through proxies, kept for a while, and read whatever pieces their bytes come in."""

import asyncio
import gc
import socket
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batchrun.core.outcome import PROVES_NOT_SENT, Break, BreakKind
from batchrun.endpoint import pool as pool_module
from batchrun.endpoint.breaks import CutOff, Unreadable
from batchrun.endpoint.connection import Connection, Header
from batchrun.endpoint.pool import Pool
from batchrun.errors import EndpointFault
from tests.endpoint.scripted import (
    ANSWER,
    LIMIT_S,
    PATH,
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
            assert asked[:1] == [
                b"CONNECT llm.example:443 HTTP/1.1\r\nHost: llm.example:443\r\n"
                b"Proxy-Authorization: Basic dXNlcjpwYXNzIHdvcmQ=\r\n\r\n"
            ]

    run(work(is_trusted=False))
    monkeypatch.setenv("SSL_CERT_FILE", str(cert))
    run(work(is_trusted=True))


@pytest.mark.parametrize(
    ("said", "words"),
    [
        (b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n\r\n", "no TLS"),  # the tunnel is made: the server has none
        (b"HTTP/1.0 200 OK\n\n", "no TLS"),
        (b"HTTP/1.1 2000 OK\r\n\r\n", "cannot be reached"),
        (b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n", "refused a connection to llm.example:443: 502"),
    ],
)
def test_a_proxys_answer_is_read_as_what_it_says(said: bytes, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def plain(wire: Wire) -> None:
        await wire.read_some()  # of a TLS greeting, which has no end that this server knows
        await wire.send(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    async def work() -> None:
        async with serving(plain) as server, Tunnelling(server.port, said) as (port, _):
            monkeypatch.setenv("HTTPS_PROXY", f"http://127.0.0.1:{port}")
            async with endpoint_at("https://llm.example/v1") as endpoint:
                outcome = await post(endpoint)
        assert isinstance(outcome, Break)
        assert outcome.kind in PROVES_NOT_SENT
        assert words in outcome.detail

    run(work())


def test_a_proxy_that_says_nothing_keeps_no_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    closed = asyncio.Event()

    async def mute(wire: Wire) -> None:
        await wire.gone()
        closed.set()

    async def work() -> None:
        async with serving(mute) as proxy:
            monkeypatch.setenv("HTTPS_PROXY", f"http://127.0.0.1:{proxy.port}")
            async with endpoint_at("https://llm.example/v1", connect_timeout_s=0.2) as endpoint:
                broken(await post(endpoint), BreakKind.CONNECT_TIMEOUT)
                await closed.wait()

    run(work())


@pytest.mark.parametrize("proxy", ["http://proxy:abc", "http://proxy:99999", "http://[::1", "http://", "http://:3128"])
def test_a_proxy_whose_address_is_none_is_refused_in_words(proxy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", proxy)
    with pytest.raises(EndpointFault, match="address is none"):
        endpoint_at("https://llm.example/v1")


class Tunnelling:
    """A proxy that hands everything through to a port of this machine, whatever name it is asked for."""

    def __init__(self, to_port: int, said: bytes = b"HTTP/1.1 200 Connection established\r\n\r\n") -> None:
        self._to_port, self._said, self.asked = to_port, said, list[bytes]()

    async def __aenter__(self) -> tuple[int, list[bytes]]:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return self._server.sockets[0].getsockname()[1], self.asked

    async def __aexit__(self, *exc_info: object) -> None:
        self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.asked.append(await reader.readuntil(b"\r\n\r\n"))
        there, back = await asyncio.open_connection("127.0.0.1", self._to_port)
        writer.write(self._said)
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


def test_what_fails_in_our_own_set_up_was_not_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise PermissionError("the keys of TLS cannot be logged")

    monkeypatch.setattr(pool_module, "_tls_context", fail)

    async def work() -> None:
        async with endpoint_at("https://127.0.0.1:9/v1") as endpoint:
            assert "cannot be logged" in broken(await post(endpoint), BreakKind.CONNECT).detail

    with pytest.raises(PermissionError):
        run(work())  # it is said when the endpoint is opened; and where nobody has opened it:
    outcome = run(post(endpoint_at("https://127.0.0.1:9/v1")))
    assert "cannot be logged" in broken(outcome, BreakKind.CONNECT).detail


@pytest.mark.parametrize("meanwhile", ["answers again", "hangs up"])
def test_what_came_while_the_loop_stood_still_is_seen_before_the_next_request(meanwhile: str) -> None:
    done = threading.Event()

    def serve(listener: socket.socket) -> None:
        for number in range(2):
            connection, _ = listener.accept()
            with connection:
                connection.recv(65_536)
                connection.sendall(reply(b'"%d"' % number))
                if meanwhile == "answers again":
                    connection.sendall(reply(b'"nobody asked"'))
                else:
                    connection.shutdown(socket.SHUT_WR)
                done.set()
                with suppress(ConnectionError):
                    connection.recv(65_536)  # until the client hangs up, on words that it has not read perhaps

    async def work() -> None:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            server = threading.Thread(target=serve, args=(listener,), daemon=True)
            server.start()
            port = listener.getsockname()[1]
            async with endpoint_at(f"http://127.0.0.1:{port}/v1") as endpoint:
                for number in range(2):
                    assert replied(await post(endpoint)).body == b'"%d"' % number
                    done.wait(LIMIT_S)  # the loop stands still: what comes now lies in the kernel
                    done.clear()
            server.join(LIMIT_S)

    run(work())


def test_after_a_connection_was_closed_under_a_request_none_is_kept_for_a_while() -> None:
    async def once(wire: Wire) -> None:
        await wire.request()
        await wire.send(reply())
        await wire.request()  # and hangs up

    async def work() -> None:
        async with serving(once) as server, endpoint_at(server.base_url) as endpoint:
            replied(await post(endpoint))
            broken(await post(endpoint), BreakKind.LOST)
            replied(await post(endpoint))
            replied(await post(endpoint))
            assert (len(server.requests), server.connections) == (4, 3)

    run(work())


def test_an_answer_that_names_the_request_before_is_none_and_ends_its_connection() -> None:
    async def late_by_one(wire: Wire) -> None:
        last = None
        while True:
            name = (await wire.request()).headers["x-client-request-id"]
            await wire.send(reply(headers=f"X-Client-Request-Id: {last or name}\r\n"))
            last = name

    async def work() -> None:
        async with serving(late_by_one) as server, endpoint_at(server.base_url) as endpoint:
            replied(await post(endpoint, attempt_id="br-abc-1-1"))
            fault = broken(await post(endpoint, attempt_id="br-abc-2-1"), BreakKind.LOST)
            assert "that to br-abc-1-1" in fault.detail
            assert (fault.status, fault.partial) == (None, b"")
            replied(await post(endpoint, attempt_id="br-abc-3-1"))
            assert server.connections == 2

    run(work())


def test_an_answer_that_was_kept_for_a_key_or_a_cache_may_name_the_first_who_asked() -> None:
    async def kept(wire: Wire) -> None:
        while True:
            await wire.request()
            await wire.send(reply(headers="X-Client-Request-Id: br-abc-1-1\r\n"))

    async def work() -> None:
        async with serving(kept) as server, endpoint_at(server.base_url) as endpoint:
            for fence in (1, 2, 3):
                name, key = f"br-abc-1-{fence}", "br-abc-1-1"
                replied(await endpoint.exchange(path=PATH, body=b"{}", attempt_id=name, idempotency_key=key))
            assert server.connections == 1
        async with serving(kept) as server, endpoint_at(server.base_url) as endpoint:
            for item in (7, 8, 9):
                replied(await post(endpoint, attempt_id=f"br-abc-{item}-1"))
            assert server.connections == 1

    run(work())


def test_nothing_is_sent_once_the_endpoint_was_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    opened = Pool._opened

    async def work() -> None:
        connecting, go_on = asyncio.Event(), asyncio.Event()

        async def slowly(self: Pool) -> Connection:
            connecting.set()
            await go_on.wait()
            return await opened(self)

        async with serving(always(reply())) as server:
            endpoint = endpoint_at(server.base_url)
            monkeypatch.setattr(Pool, "_opened", slowly)
            asked = asyncio.create_task(post(endpoint))
            await connecting.wait()
            await endpoint.close()
            go_on.set()
            broken(await asked, BreakKind.CONNECT)
            assert server.requests == []

    run(work())


def test_a_close_while_a_name_is_asked_for_is_a_break_and_no_cancellation() -> None:
    async def work() -> None:
        loop, asking = asyncio.get_running_loop(), asyncio.Event()

        async def never(*arguments: Any, **options: Any) -> Any:
            asking.set()
            await asyncio.Event().wait()

        loop.getaddrinfo = never  # type: ignore[method-assign]
        endpoint = endpoint_at("http://localhost:9/v1")
        asked = asyncio.create_task(post(endpoint))
        await asking.wait()
        await endpoint.close()
        outcome = await asked
        assert isinstance(outcome, Break)
        assert outcome.kind in PROVES_NOT_SENT

    run(work())


def test_a_name_that_fails_when_nobody_waits_any_more_is_no_noise() -> None:
    heard: list[dict[str, Any]] = []

    async def work() -> None:
        loop, fail = asyncio.get_running_loop(), asyncio.Event()
        loop.set_exception_handler(lambda _, context: heard.append(context))

        async def late(*arguments: Any, **options: Any) -> Any:
            await fail.wait()
            raise OSError("Temporary failure in name resolution")

        loop.getaddrinfo = late  # type: ignore[method-assign]
        async with endpoint_at("http://localhost:9/v1", connect_timeout_s=0.05) as endpoint:
            broken(await post(endpoint), BreakKind.CONNECT_TIMEOUT)
            fail.set()
            for _ in range(5):
                await asyncio.sleep(0)

    run(work())
    gc.collect()
    assert heard == []


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


CHUNKED_HEAD = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked\r\n\r\n"


@pytest.mark.parametrize(
    ("pieces", "error"),
    [
        ([CHUNKED_HEAD + b"50\r\nhello"], CutOff),
        ([b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\nhello"], Unreadable),
        ([b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n"], Unreadable),
        ([CHUNKED_HEAD + b"1\r\n{\r\n0\r\nX-Trailer: ", *[b"t" * 65_536] * 4], Unreadable),
        ([CHUNKED_HEAD + b"1;ext=", *[b"t" * 65_536] * 4], Unreadable),
    ],
)
def test_a_body_whose_end_is_not_there_is_none(pieces: list[bytes], error: type[Exception]) -> None:
    with pytest.raises(error):
        asyncio.run(read(pieces, ends=True))


def test_a_body_that_ends_with_its_connection_is_not_ended_by_us() -> None:
    async def work() -> None:
        connection, kept, line = Connection(), Kept(), Line()
        connection.connection_made(line)
        asked = asyncio.ensure_future(connection.ask(b"POST", kept, deadline=LIMIT_S + time.monotonic(), most_bytes=99))
        await asyncio.sleep(0)
        connection.data_received(b'HTTP/1.1 429 No\r\n\r\n{"error": ')
        connection.close()
        connection.connection_lost(None)
        await asked

    with pytest.raises(ConnectionAbortedError):
        asyncio.run(work())


async def read(pieces: Sequence[bytes], *, ends: bool = False) -> tuple[Kept, bool]:
    """Let an answer come in these pieces; return what was received and whether the connection may be kept.

    Args:
        ends: the connection is closed after them.
    """
    connection, kept, line = Connection(), Kept(), Line()
    connection.connection_made(line)
    deadline = asyncio.get_running_loop().time() + LIMIT_S
    asked = asyncio.ensure_future(connection.ask(b"POST", kept, deadline=deadline, most_bytes=1_000))
    await asyncio.sleep(0)
    for piece in pieces:
        connection.data_received(piece)
    if ends:
        connection.connection_lost(None)
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
