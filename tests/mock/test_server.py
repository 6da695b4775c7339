"""The server: its counters, and how it stops."""

from pathlib import Path

import pytest

from batchrun.mock.config import MockConfig
from batchrun.mock.log import read_log
from batchrun.mock.server import MockServer
from tests.mock.wire import CHAT, Client, run, running, write_body


def test_the_counters_tell_repeated_from_distinct_bodies() -> None:
    async def test() -> None:
        async with running() as (_, client):
            for prompt in ("[[a]]", "[[b]]", "[[a]]", "[[a]]"):
                await client.post(prompt=prompt)
            await client.ask("GET", "/v1/nothing")
            stats = await client.read_stats()
            assert (stats["distinct_bodies"], stats["repeated_bodies"], stats["billed"]) == (2, 1, 4)
            assert (stats["requests"], stats["posts"], stats["max_in_flight"]) == (5, 4, 1)
            assert stats["by_status"] == {"200": 4, "404": 1}

    run(test)


def test_a_reset_forgets_counters_and_arrivals_but_not_what_is_in_flight() -> None:
    async def test() -> None:
        async with running(error_rate=1.0, faults_per_item=1, latency_ms=60_000.0, drain_s=0.0) as (server, client):
            assert (await client.post()).status == 500
            holder = await Client.connect(server.port)
            await holder.send("POST", CHAT, write_body())
            await client.wait_for_stats(in_flight=1)
            assert (await client.ask("POST", "/__reset")).status == 200
            stats = await client.read_stats()
            assert (stats["requests"], stats["by_status"], stats["distinct_bodies"]) == (0, {}, 0)
            assert (stats["in_flight"], stats["max_in_flight"], stats["open_connections"]) == (1, 1, 2)
            assert (await client.post()).status == 500  # again the first arrival
            holder.close()
            await client.wait_for_stats(in_flight=0)

    run(test)


def test_a_stop_lets_requests_in_flight_end(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(latency_ms=80.0, drain_s=10.0, log_path=str(tmp_path / "log")) as (server, client):
            busy = await Client.connect(server.port)
            await busy.send("POST", CHAT, write_body())
            await client.wait_for_stats(in_flight=1)
            await server.stop()
            assert (await busy.read()).status == 200
            assert await client.reader.read() == b""
            with pytest.raises(ConnectionRefusedError):
                await Client.connect(server.port)

    run(test)
    assert read_log(tmp_path / "log").by_outcome == {"answered": 1}


def test_a_stop_cuts_off_what_takes_too_long(tmp_path: Path) -> None:
    async def test() -> None:
        async with running(latency_ms=60_000.0, drain_s=0.0, log_path=str(tmp_path / "log")) as (server, client):
            busy = await Client.connect(server.port)
            await busy.send("POST", CHAT, write_body())
            await client.wait_for_stats(in_flight=1)
            await server.stop()
            assert await busy.reader.read() == b""

    run(test)
    assert read_log(tmp_path / "log").by_outcome == {"stopped": 1}


def test_a_port_that_is_taken_is_an_error_and_a_second_stop_is_none() -> None:
    async def test() -> None:
        async with running() as (server, _):
            with pytest.raises(OSError, match="address already in use"):
                await MockServer(MockConfig(port=server.port)).start()
            await server.stop()
            await server.stop()

    run(test)


def test_the_base_url_is_what_a_client_takes() -> None:
    async def test() -> None:
        async with running() as (server, _):
            assert server.base_url == f"http://127.0.0.1:{server.port}/v1"
        assert MockServer(MockConfig(host="::1")).base_url == "http://[::1]:0/v1"

    run(test)


def test_two_servers_share_a_loop_and_nothing_else() -> None:
    async def test() -> None:
        async with running() as (one, client), running() as (two, other):
            assert one.port != two.port
            await client.post()
            assert (await client.read_stats())["posts"] == 1
            assert (await other.read_stats())["posts"] == 0

    run(test)
