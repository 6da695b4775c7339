"""Connections on the wire: keep-alive, uploads in chunks, pipelining, clients that go."""

import asyncio
import json
from pathlib import Path

from tests.mock.wire import CHAT, Client, run, running, write_body


def test_many_requests_share_one_connection() -> None:
    async def test() -> None:
        async with running() as (_, client):
            for no in range(5):
                answer = await client.post(prompt=f"[[q-{no}]]")
                assert answer.status == 200
            stats = await client.read_stats()
            assert (stats["requests"], stats["connections"], stats["open_connections"]) == (5, 1, 1)

    run(test)


def test_a_chunked_upload_on_a_kept_connection_is_read_whole() -> None:
    async def test() -> None:
        body = write_body("[[q-1]] " + "long " * 50_000)
        async with running() as (_, client):
            whole = await client.ask("POST", CHAT, body)
            client.writer.write(f"POST {CHAT} HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n".encode())
            for start in range(0, len(body), 9_999):
                piece = body[start : start + 9_999]
                client.writer.write(b"%x\r\n%b\r\n" % (len(piece), piece))
                await client.writer.drain()
            client.writer.write(b"0\r\n\r\n")
            chunked = await client.read()
            assert chunked.json["choices"] == whole.json["choices"]
            assert (await client.post()).status == 200

    run(test)


def test_pipelined_requests_are_answered_in_their_order() -> None:
    async def test() -> None:
        async with running(itl_ms=1.0) as (_, client):
            bodies = [write_body(f"[[q-{no}]]", max_tokens=9 - 3 * no) for no in range(3)]
            raw = [f"POST {CHAT} HTTP/1.1\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body for body in bodies]
            client.writer.write(b"".join(raw))
            texts = [(await client.read()).json["choices"][0]["message"]["content"] for _ in range(3)]
            assert [text.split()[0] for text in texts] == ["[[q-0]]", "[[q-1]]", "[[q-2]]"]

    run(test)


def test_five_thousand_pipelined_requests_do_not_nest() -> None:
    async def test() -> None:
        async with running() as (_, client):
            client.writer.write(b"GET /health HTTP/1.1\r\n\r\n" * 5_000)
            assert {(await client.read()).status for _ in range(5_000)} == {200}

    run(test)


def test_a_client_that_holds_its_body_back_is_told_to_go_on() -> None:
    async def test() -> None:
        body = write_body()
        async with running() as (_, client):
            head = f"POST {CHAT} HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: {len(body)}\r\n\r\n"
            client.writer.write(head.encode())
            assert await client.reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
            client.writer.write(body[:10])
            client.writer.write(body[10:])
            assert (await client.read()).status == 200

    run(test)


def test_a_connection_is_closed_when_the_client_asks_for_it() -> None:
    async def test() -> None:
        async with running() as (_, client):
            answer = await client.ask("POST", CHAT, write_body(), Connection="close")
            assert (answer.status, answer.headers["connection"]) == (200, "close")
            assert await client.reader.read() == b""

    run(test)


def test_bytes_that_are_no_request_get_400_and_a_closed_connection() -> None:
    async def test() -> None:
        async with running() as (_, client):
            client.writer.write(b"hello?\r\n\r\n")
            answer = await client.read()
            assert (answer.status, answer.json["error"]["type"]) == (400, "invalid_request_error")
            assert await client.reader.read() == b""

    run(test)


def test_a_head_request_gets_a_head_without_a_body() -> None:
    async def test() -> None:
        async with running() as (_, client):
            await client.send("HEAD", "/v1/models")
            status, headers = await client.read_head()
            assert (status, int(headers["content-length"]) > 0) == (200, True)
            assert (await client.ask("GET", "/health")).status == 200

    run(test)


def test_a_client_that_goes_leaves_nothing_in_flight_and_is_billed(tmp_path: Path) -> None:
    log = tmp_path / "requests.jsonl"

    async def test() -> None:
        async with running(latency_ms=60_000.0, log_path=str(log)) as (server, client):
            leaver = await Client.connect(server.port)
            await leaver.send("POST", CHAT, write_body())
            await client.wait_for_stats(in_flight=1, running=1)
            leaver.close()
            stats = await client.wait_for_stats(in_flight=0, running=0)
            assert stats["billed"] == 1

    run(test)
    assert [json.loads(line).get("outcome") for line in log.read_text().splitlines()] == [None, "client_gone"]


def test_a_thousand_connections_are_served_at_once() -> None:
    async def test() -> None:
        async with running(latency_ms=60_000.0, drain_s=0.0) as (server, client):
            clients = await asyncio.gather(*[Client.connect(server.port) for _ in range(1_000)])
            await asyncio.gather(*[one.send("POST", CHAT, write_body(f"[[{no}]]")) for no, one in enumerate(clients)])
            stats = await client.wait_for_stats(in_flight=1_000)
            assert stats["max_in_flight"] == 1_000
            for one in clients:
                one.close()
            await client.wait_for_stats(in_flight=0)

    run(test)
