"""Every way an exchange can break, over real sockets: certainly not sent, or unknown, and never one for the other."""

import asyncio
import re
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from batchrun.core.outcome import PROVES_NOT_SENT, Break, BreakKind, Reply
from tests.endpoint.scripted import (
    ANSWER,
    LIMIT_S,
    Handler,
    Wire,
    always,
    broken,
    endpoint_at,
    exchange_with,
    make_certificate,
    post,
    replied,
    reply,
    run,
    serving,
)

KEY = "sk-SECRET-7f3a9-and-more"


async def send_to(base_url: str, *, timeout_s: float = LIMIT_S) -> Reply | Break:
    async with endpoint_at(base_url, timeout_s=timeout_s) as endpoint:
        return await post(endpoint)


def unused_port() -> int:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        return int(unused.getsockname()[1])


# --- no connection: certainly nothing was sent ---


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_a_closed_port_is_a_refused_connection(host: str) -> None:
    port = unused_port()
    fault = broken(run(send_to(f"http://{host}:{port}/v1")), BreakKind.CONNECT)
    assert fault.detail == f"connection refused by {host}:{port}"
    assert (fault.status, fault.partial, fault.timing.first_byte_at) == (None, b"", None)


def test_a_name_that_does_not_resolve_is_named() -> None:
    fault = broken(run(send_to("http://no-such-host.invalid/v1")), BreakKind.DNS)
    assert fault.detail.startswith("name 'no-such-host.invalid' does not resolve")


def test_a_hang_while_connecting_is_a_connect_timeout_however_short_the_total_is() -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        port = listener.getsockname()[1]
        # A full backlog: the kernel drops further attempts to connect without a word.
        fillers = [socket.socket() for _ in range(4)]
        for filler in fillers:
            filler.setblocking(False)
            filler.connect_ex(("127.0.0.1", port))
        fault = broken(run(send_to(f"http://127.0.0.1:{port}/v1", timeout_s=0.4)), BreakKind.CONNECT_TIMEOUT)
        for filler in fillers:
            filler.close()
    assert fault.detail == f"no connection to 127.0.0.1:{port} within 0.2 s"


async def answer_in_plain_text(wire: Wire) -> None:
    await wire.send(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
    await wire.gone()


async def hang_up(wire: Wire) -> None:
    await wire.read_some()


async def reset(wire: Wire) -> None:
    await wire.read_some()
    wire.reset()


async def say_nothing(wire: Wire) -> None:
    await wire.gone()


@pytest.mark.parametrize(
    ("behaviour", "timeout_s", "kind", "words"),
    [
        (answer_in_plain_text, LIMIT_S, BreakKind.TLS, "no TLS: the port speaks plain HTTP"),
        (hang_up, LIMIT_S, BreakKind.TLS, "broke off the handshake"),
        (reset, LIMIT_S, BreakKind.TLS, "broke off the handshake"),
        (say_nothing, 0.4, BreakKind.CONNECT_TIMEOUT, "the port speaks no TLS"),
    ],
)
def test_https_to_a_plain_server_fails_before_anything_is_sent(
    behaviour: Handler, timeout_s: float, kind: BreakKind, words: str
) -> None:
    async def work() -> Reply | Break:
        async with serving(behaviour) as server:
            return await send_to(server.base_url.replace("http:", "https:"), timeout_s=timeout_s)

    assert words in broken(run(work()), kind).detail


@pytest.fixture
def certificate(tmp_path: Path) -> tuple[Path, ssl.SSLContext]:
    """A certificate for 127.0.0.1 that nobody trusts yet, and a server's context that shows it."""
    return make_certificate(tmp_path, "IP:127.0.0.1")


def test_a_certificate_is_checked_and_ssl_cert_file_makes_it_trusted(
    certificate: tuple[Path, ssl.SSLContext], monkeypatch: pytest.MonkeyPatch
) -> None:
    cert, context = certificate

    async def work() -> Reply | Break:
        async with serving(always(reply()), tls=context) as server:
            return await send_to(server.base_url)

    fault = broken(run(work()), BreakKind.TLS)
    assert "the certificate of 127.0.0.1:" in fault.detail
    assert "self-signed" in fault.detail
    monkeypatch.setenv("SSL_CERT_FILE", str(cert))
    assert replied(run(work())).body == ANSWER


# --- the request may have left: unknown ---


async def close_without_an_answer(wire: Wire) -> None:
    await wire.request()


async def reset_without_an_answer(wire: Wire) -> None:
    await wire.request()
    wire.reset()


async def break_off_inside_the_head(wire: Wire) -> None:
    await wire.request()
    await wire.send(b"HTTP/1.1 200 OK\r\nContent-Ty")


async def break_off_after_the_head(wire: Wire) -> None:
    await wire.request()
    await wire.send(reply(b"", length=500))


async def break_off_inside_the_body(wire: Wire) -> None:
    await wire.request()
    await wire.send(reply(ANSWER[:60], length=len(ANSWER)))


async def promise_more_than_there_is(wire: Wire) -> None:
    await wire.request()
    await wire.send(reply(ANSWER, length=len(ANSWER) + 7))


async def break_off_between_chunks(wire: Wire) -> None:
    await wire.request()
    await wire.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n")


async def break_off_inside_a_chunk(wire: Wire) -> None:
    await wire.request()
    await wire.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n50\r\nhello")


async def send_a_chunk_of_no_size(wire: Wire) -> None:
    await wire.request()
    await wire.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nhello\r\n")
    await wire.gone()


async def greet_like_ssh(wire: Wire) -> None:
    await wire.request()
    await wire.send(b"SSH-2.0-OpenSSH_9.2 sk-SECRET-7f3a9-and-more\r\n")
    await wire.gone()


async def send_two_lengths(wire: Wire) -> None:
    await wire.request()
    await wire.send(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello!")
    await wire.gone()


async def promise_less_than_there_is(wire: Wire) -> None:
    await wire.request()
    await wire.send(reply(ANSWER, length=40))
    await wire.gone()


async def send_a_gigantic_header(wire: Wire) -> None:
    await wire.request()
    await wire.send(reply(headers=f"X-Trace: {'t' * 400_000}\r\n"))
    await wire.gone()


LOST = [
    # behaviour, status, bytes of the body that had come, words
    (close_without_an_answer, None, b"", "closed the connection without an answer"),
    (reset_without_an_answer, None, b"", "was reset before an answer came"),
    (break_off_inside_the_head, None, b"", "closed the connection without an answer"),
    (break_off_after_the_head, 200, b"", "broke the answer off (status 200 and 0 bytes had come)"),
    (break_off_inside_the_body, 200, ANSWER[:60], "broke the answer off (status 200 and 60 bytes had come)"),
    (promise_more_than_there_is, 200, ANSWER, "broke the answer off"),
    (break_off_between_chunks, 200, b"hello", "broke the answer off"),
    (break_off_inside_a_chunk, 200, b"hello", "broke the answer off"),
    (send_a_chunk_of_no_size, None, b"", "not HTTP that can be read"),
    (greet_like_ssh, None, b"", "not HTTP that can be read"),
    (promise_less_than_there_is, None, b"", "not HTTP that can be read"),
    (send_two_lengths, None, b"", "not HTTP that can be read"),
    (send_a_gigantic_header, None, b"", "not HTTP that can be read"),
]


@pytest.mark.parametrize(("behaviour", "status", "partial", "words"), LOST, ids=[row[0].__name__ for row in LOST])
def test_a_broken_answer_is_lost_with_what_had_come_and_is_sent_once(
    behaviour: Handler, status: int | None, partial: bytes, words: str
) -> None:
    outcome, server = exchange_with(behaviour, key=KEY)
    fault = broken(outcome, BreakKind.LOST)
    assert fault.kind not in PROVES_NOT_SENT
    assert (fault.status, fault.partial) == (status, partial)
    assert words in fault.detail
    assert "SECRET" not in fault.detail
    assert "\n" not in fault.detail
    assert len(server.requests) == server.connections == 1


@asynccontextmanager
async def out_of_time(base_url: str, *, body: bytes = b"{}", status: int | None = None) -> AsyncIterator[Break]:
    """Have one exchange that takes too long, and yield what it ended with while its endpoint is still open.

    On a machine that stands still for a moment the connection or the head may be late already: then with more time.
    """
    for timeout_s in (0.4, 6.0):
        async with endpoint_at(base_url, timeout_s=timeout_s) as endpoint:
            fault = await post(endpoint, body, attempt_id=f"attempt-{timeout_s}")
            assert isinstance(fault, Break), fault
            if fault.kind is BreakKind.TIMEOUT and fault.status == status:
                assert timeout_s <= fault.timing.duration_s < LIMIT_S / 2
                yield fault
                return
    raise AssertionError(fault)


async def drip(wire: Wire, head: bytes) -> None:
    await wire.request()
    await wire.send(head)
    while True:
        await wire.send(b" ")
        await asyncio.sleep(0.02)  # the drip itself


async def drip_the_body(wire: Wire) -> None:
    await drip(wire, reply(b"", length=1_000_000))


async def drip_the_head(wire: Wire) -> None:
    await drip(wire, b"HTTP/1.1 200 OK\r\nX-Slow: ")


async def never_answer(wire: Wire) -> None:
    await wire.request()
    await wire.gone()


@pytest.mark.parametrize(
    ("behaviour", "status", "words"),
    [
        (never_answer, None, "no answer within "),
        (drip_the_head, None, "no answer within "),
        (drip_the_body, 200, "no complete answer (status 200 and "),
    ],
)
def test_the_total_time_holds_for_silence_and_for_drips(behaviour: Handler, status: int | None, words: str) -> None:
    async def work() -> None:
        async with serving(behaviour) as server, out_of_time(server.base_url, status=status) as fault:
            assert fault.kind not in PROVES_NOT_SENT
            assert words in fault.detail
            assert re.search(r"\b(0\.4|6) s\b", fault.detail)
            sent = [request.headers["x-client-request-id"] for request in server.requests]
            assert len(sent) == len(set(sent)), "nothing was sent twice"

    run(work())


def test_a_connection_is_closed_when_its_exchange_runs_out_of_time() -> None:
    closed = asyncio.Event()

    async def silent(wire: Wire) -> None:
        await wire.request()
        await wire.gone()
        closed.set()

    async def work() -> None:
        async with serving(silent) as server, out_of_time(server.base_url):
            await closed.wait()

    run(work())


def test_a_server_that_reads_nothing_of_a_large_request_runs_out_of_time_and_is_unknown() -> None:
    async def deaf(wire: Wire) -> None:
        await asyncio.Event().wait()

    async def work() -> None:
        async with serving(deaf) as server, out_of_time(server.base_url, body=b"x" * 30_000_000):
            pass

    run(work())
