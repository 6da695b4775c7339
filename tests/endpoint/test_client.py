"""What goes out and what comes back whole, over real sockets on loopback."""

import asyncio
import gzip
import socket
import zlib

import pytest

from batchrun.core.outcome import BreakKind
from batchrun.endpoint import client as client_module
from batchrun.endpoint import decode as decode_module
from batchrun.endpoint import pool as pool_module
from batchrun.endpoint.exchange import PARTIAL_BYTES
from batchrun.errors import EndpointFault
from tests.endpoint.scripted import (
    ANSWER,
    Wire,
    always,
    broken,
    endpoint_at,
    exchange_with,
    post,
    replied,
    reply,
    run,
    serving,
)

KEY = "sk-SECRET-7f3a9-and-more"


# --- what goes out ---


def test_a_request_carries_the_body_as_given_and_the_sdks_headers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_ORG_ID", "org-1")
    monkeypatch.setenv("OPENAI_PROJECT_ID", "proj-1")
    answer, server = exchange_with(always(reply()), key=KEY)
    assert replied(answer).body == ANSWER
    (request,) = server.requests
    assert request.line == "POST /v1/chat/completions HTTP/1.1"
    assert request.body == b'{"model": "m"}'
    expected = {
        "authorization": f"Bearer {KEY}",
        "openai-organization": "org-1",
        "openai-project": "proj-1",
        "content-type": "application/json",
        "accept": "application/json",
        "accept-encoding": "identity",
        "x-client-request-id": "attempt-1",
        "x-litellm-num-retries": "0",
    }
    assert {name: request.headers.get(name) for name in expected} == expected
    assert request.headers["user-agent"].startswith("AsyncOpenAI/Python ")
    assert "cookie" not in request.headers


def test_header_names_of_a_reply_are_lower_case_and_times_are_in_order() -> None:
    answer = replied(exchange_with(always(reply(headers="X-Request-ID: r-1\r\n")))[0])
    assert answer.headers["x-request-id"] == "r-1"
    assert all(name == name.lower() for name in answer.headers)
    timing = answer.timing
    assert timing.first_byte_at is not None
    assert timing.sent_at <= timing.first_byte_at <= timing.ended_at
    assert timing.duration_s >= 0


def test_a_cookie_that_a_server_sets_is_not_sent_back() -> None:
    async def work() -> None:
        async with serving(always(reply(headers="Set-Cookie: a=b; Path=/\r\n"))) as server:
            async with endpoint_at(server.base_url) as endpoint:
                await post(endpoint)
                await post(endpoint)
            assert [request.headers.get("cookie") for request in server.requests] == [None, None]
            assert server.connections == 1

    run(work())


def test_a_large_body_goes_out_whole() -> None:
    body = b'{"pad": "' + b"x" * 3_000_000 + b'"}'

    async def work() -> None:
        async with serving(always(reply())) as server, endpoint_at(server.base_url) as endpoint:
            replied(await post(endpoint, body))
            assert server.requests[0].body == body

    run(work())


def test_concurrent_requests_each_get_their_own_answer() -> None:
    async def echo(wire: Wire) -> None:
        while True:
            request = await wire.request()
            await wire.send(reply(request.body))

    async def work() -> None:
        async with serving(echo) as server, endpoint_at(server.base_url) as endpoint:
            bodies = [b"%d" % number for number in range(200)]
            answers = await asyncio.gather(*(post(endpoint, body) for body in bodies))
            assert [replied(answer).body for answer in answers] == bodies

    run(work())


# --- what comes back whole ---


def test_a_redirect_is_a_reply_and_is_not_followed() -> None:
    async def work() -> None:
        async with serving(always(reply())) as elsewhere:
            location = f"Location: {elsewhere.base_url}/chat/completions\r\n"
            moved = reply(b"", status="307 Temporary Redirect", headers=location)
            async with serving(always(moved)) as server, endpoint_at(server.base_url) as endpoint:
                answer = replied(await post(endpoint))
                assert answer.status == 307
                assert answer.headers["location"].endswith("/chat/completions")
            assert elsewhere.requests == []

    run(work())


def test_an_error_status_is_a_reply_like_any_other() -> None:
    answer = replied(exchange_with(always(reply(b'{"error": "no"}', status="500 Whatever")))[0])
    assert (answer.status, answer.body) == (500, b'{"error": "no"}')


def test_an_answer_without_a_length_ends_when_the_connection_does() -> None:
    async def old(wire: Wire) -> None:
        await wire.request()
        await wire.send(b"HTTP/1.0 200 OK\r\nContent-Type: application/json\r\n\r\n" + ANSWER)

    assert replied(exchange_with(old)[0]).body == ANSWER


def test_an_interim_reply_is_passed_over() -> None:
    answer = exchange_with(always(b"HTTP/1.1 103 Early Hints\r\nLink: <a>\r\n\r\n" + reply()))[0]
    assert replied(answer).body == ANSWER


def test_a_reply_with_a_large_header_is_read() -> None:
    answer = replied(exchange_with(always(reply(headers=f"X-Trace: {'t' * 40_000}\r\n")))[0])
    assert len(answer.headers["x-trace"]) == 40_000


def test_a_refusal_in_the_middle_of_a_large_upload_is_a_reply() -> None:
    async def refuse(wire: Wire) -> None:
        await wire.read_some()
        await wire.send(reply(b'{"error": {"message": "too large"}}', status="413 Content Too Large"))
        await wire.gone()

    async def work() -> None:
        async with serving(refuse) as server, endpoint_at(server.base_url) as endpoint:
            assert replied(await post(endpoint, b"x" * 20_000_000)).status == 413

    run(work())


# --- codings ---

RAW_DEFLATE = zlib.compressobj(wbits=-zlib.MAX_WBITS)
CODED = {
    "gzip": gzip.compress(ANSWER),
    "x-gzip": gzip.compress(ANSWER),
    "deflate": zlib.compress(ANSWER),
    "Deflate": RAW_DEFLATE.compress(ANSWER) + RAW_DEFLATE.flush(),
    "gzip, gzip": gzip.compress(gzip.compress(ANSWER)),
    "identity": ANSWER,
}


@pytest.mark.parametrize("coding", CODED)
def test_a_coded_answer_is_unpacked_and_the_coding_is_gone_from_the_headers(coding: str) -> None:
    answer = replied(exchange_with(always(reply(CODED[coding], headers=f"Content-Encoding: {coding}\r\n")))[0])
    assert answer.body == ANSWER
    assert "content-encoding" not in answer.headers


@pytest.mark.parametrize("coding", ["gzip", "deflate", "br", "gzip, br"])
def test_an_answer_that_is_not_what_its_coding_says_keeps_its_bytes_and_the_label(coding: str) -> None:
    answer = replied(exchange_with(always(reply(ANSWER, headers=f"Content-Encoding: {coding}\r\n")))[0])
    assert answer.body == ANSWER
    assert answer.headers["content-encoding"] == coding


def test_a_coded_answer_that_breaks_off_gives_what_stood_before_the_break() -> None:
    long = b"".join(b"%d " % number for number in range(9_000))
    for coding, packed in (("gzip", gzip.compress(long)), ("deflate", zlib.compress(long))):
        cut = decode_module.decode(packed[: len(packed) // 2], coding)
        assert cut
        assert long.startswith(cut)
        assert cut != long


def test_an_answer_that_unpacks_to_more_than_the_limit_is_not_unpacked(monkeypatch: pytest.MonkeyPatch) -> None:
    bomb = gzip.compress(b"0" * 1_000_000)
    assert decode_module.decode(bomb, "gzip") == b"0" * 1_000_000
    monkeypatch.setattr(decode_module, "LARGEST_BYTES", 999_999)
    assert decode_module.decode(bomb, "gzip") is None
    assert decode_module.decode(gzip.compress(b"0" * 500_000) * 2, "gzip") is None


def test_an_answer_above_the_limit_is_given_up_as_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "LARGEST_BYTES", 100_000)
    fault = broken(exchange_with(always(reply(b"x" * 1_000_000)))[0], BreakKind.LOST)
    assert fault.status == 200
    assert fault.detail == "the answer is larger than 100,000 bytes"
    assert len(fault.partial) <= PARTIAL_BYTES


# --- connections kept alive ---


def test_a_connection_is_used_again() -> None:
    async def work() -> None:
        async with serving(always(reply())) as server, endpoint_at(server.base_url) as endpoint:
            for _ in range(5):
                replied(await post(endpoint))
            assert (len(server.requests), server.connections) == (5, 1)

    run(work())


def test_a_connection_idle_for_too_long_is_not_used_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool_module, "KEEPALIVE_S", 1e-9)

    async def work() -> None:
        async with serving(always(reply())) as server, endpoint_at(server.base_url) as endpoint:
            replied(await post(endpoint))
            replied(await post(endpoint))
            assert server.connections == 2

    run(work())
    assert pool_module.KEEPALIVE_S < 5


def test_a_request_on_a_connection_that_dies_under_it_is_unknown_and_never_sent_again() -> None:
    async def stale(wire: Wire) -> None:
        await wire.request()
        await wire.send(reply())
        await wire.request()  # it did arrive: it may have been worked on and billed
        wire.reset()

    async def work() -> None:
        async with serving(stale) as server, endpoint_at(server.base_url) as endpoint:
            replied(await post(endpoint))
            fault = broken(await post(endpoint, attempt_id="attempt-2"), BreakKind.LOST)
            assert fault.status is None
            assert [request.headers["x-client-request-id"] for request in server.requests] == ["attempt-1", "attempt-2"]
            assert server.connections == 1

    run(work())


@pytest.mark.parametrize(
    "unasked",
    [
        reply(b'"nobody asked"'),
        b"HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\n\r\n",
        b"not HTTP",
    ],
)
def test_words_that_a_server_sent_unasked_are_not_taken_for_the_next_answer(unasked: bytes) -> None:
    answered, said = asyncio.Event(), asyncio.Event()

    async def chatty(wire: Wire) -> None:
        name = (await wire.request()).headers["x-client-request-id"]
        await wire.send(reply(b'"%s"' % name.encode()))
        if name == "attempt-1":
            await answered.wait()  # so that the connection is in the pool by now
            await wire.send(unasked)
            said.set()
        await wire.gone()

    async def work() -> None:
        async with serving(chatty) as server, endpoint_at(server.base_url) as endpoint:
            assert replied(await post(endpoint)).body == b'"attempt-1"'
            answered.set()
            await said.wait()
            for _ in range(20):  # let the unasked bytes, sent by now, come in
                await asyncio.sleep(0)
            assert replied(await post(endpoint, attempt_id="attempt-2")).body == b'"attempt-2"'
            assert (len(server.requests), server.connections) == (2, 2)

    run(work())


def test_cancelling_an_exchange_passes_through_and_closes_its_connection() -> None:
    arrived, closed = asyncio.Event(), asyncio.Event()

    async def silent(wire: Wire) -> None:
        await wire.request()
        arrived.set()
        await wire.gone()
        closed.set()

    async def work() -> None:
        async with serving(silent) as server, endpoint_at(server.base_url) as endpoint:
            task = asyncio.create_task(post(endpoint))
            await arrived.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await closed.wait()

    run(work())


def test_an_endpoint_can_be_closed_and_opened_again_in_another_loop() -> None:
    async def once(endpoint: client_module.Endpoint) -> None:
        async with endpoint:
            replied(await post(endpoint))

    async def work() -> client_module.Endpoint:
        async with serving(always(reply())) as server:
            endpoint = endpoint_at(server.base_url)
            await once(endpoint)
            await once(endpoint)
            return endpoint

    run(work())


# --- probes ---


def test_any_http_reply_means_reachable_and_nothing_is_posted() -> None:
    async def work() -> None:
        async with (
            serving(always(reply(b"<html>", status="503 No"))) as server,
            endpoint_at(server.base_url) as endpoint,
        ):
            assert await endpoint.is_reachable()
            assert [request.line for request in server.requests] == ["GET /v1/models HTTP/1.1"]

    run(work())


def test_a_closed_port_is_not_reachable_and_lists_no_models() -> None:
    async def work() -> None:
        with socket.socket() as unused:
            unused.bind(("127.0.0.1", 0))
            port = unused.getsockname()[1]
        async with endpoint_at(f"http://127.0.0.1:{port}/v1") as endpoint:
            assert not await endpoint.is_reachable()
            assert await endpoint.models() is None

    run(work())


@pytest.mark.parametrize(
    ("body", "models"),
    [
        (b'{"object": "list", "data": [{"id": "a"}, {"id": "b"}]}', ["a", "b"]),
        (b'{"data": [{"id": "a"}, {"id": "a"}, {"id": "\\u001b[31mred\\n"}]}', ["a", "[31mred"]),
        (b'{"data": []}', []),
        (b'{"data": null}', None),
        (b'{"data": [1]}', None),
        (b'{"data": [{}]}', None),
        (b"[]", None),
        (b"<html>", None),
    ],
)
def test_models_are_listed_where_the_endpoint_lists_them(body: bytes, models: list[str] | None) -> None:
    async def work() -> list[str] | None:
        async with serving(always(reply(body))) as server, endpoint_at(server.base_url) as endpoint:
            return await endpoint.models()

    assert run(work()) == models


def test_a_models_name_is_recorded_without_the_key() -> None:
    async def work() -> list[str] | None:
        body = b'{"data": [{"id": "for-sk-secret-0123456789"}]}'
        key = "sk-secret-0123456789"
        async with serving(always(reply(body))) as server, endpoint_at(server.base_url, key=key) as endpoint:
            return await endpoint.models()

    assert run(work()) == ["for-***"]


# --- proxies ---


def test_loopback_never_goes_through_a_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    assert replied(exchange_with(always(reply()))[0]).body == ANSWER


def test_another_host_goes_through_the_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    async def work() -> None:
        async with serving(always(reply())) as proxy:
            monkeypatch.setenv("HTTP_PROXY", f"http://127.0.0.1:{proxy.port}")
            async with endpoint_at("http://llm.example/v1") as endpoint:
                replied(await post(endpoint))
            assert proxy.requests[0].line == "POST http://llm.example/v1/chat/completions HTTP/1.1"

    run(work())


def test_a_proxy_that_refuses_or_is_not_there_means_that_nothing_was_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    async def work() -> None:
        no = b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n"
        async with serving(always(no)) as proxy:
            monkeypatch.setenv("HTTPS_PROXY", f"http://user:pass-word@127.0.0.1:{proxy.port}")
            async with endpoint_at("https://llm.example/v1") as endpoint:
                refused = broken(await post(endpoint), BreakKind.CONNECT)
        assert "407" in refused.detail
        assert proxy.requests[0].line == "CONNECT llm.example:443 HTTP/1.1"
        async with endpoint_at("https://llm.example/v1") as endpoint:
            gone = broken(await post(endpoint), BreakKind.CONNECT)
        assert gone.detail.startswith(f"the proxy 127.0.0.1:{proxy.port} cannot be reached")
        assert "pass-word" not in refused.detail + gone.detail

    run(work())


def test_a_socks_proxy_is_refused_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALL_PROXY", "socks5://127.0.0.1:1080")
    with pytest.raises(EndpointFault, match="'socks5' proxy"):
        endpoint_at("https://llm.example/v1")
