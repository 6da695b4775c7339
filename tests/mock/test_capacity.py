"""Capacity: what a mock can do at once, and how that is changed while it runs."""

import pytest

from batchrun.mock.capacity import Capacity
from tests.mock.wire import CHAT, Client, run, running, write_body


def test_above_the_knee_everything_takes_longer_and_no_more_is_done() -> None:
    capacity = Capacity(knee=8)
    assert [capacity.stretch(running) for running in (1, 8, 12, 16)] == [1.0, 1.0, 1.5, 2.0]
    assert Capacity(knee=8, slowdown=10.0).stretch(16) == 20.0
    assert Capacity().stretch(1_000) == 1.0


def test_above_its_bound_a_request_is_refused_and_not_billed() -> None:
    async def test() -> None:
        async with running(refuse_above=1, latency_ms=60_000.0, drain_s=0.0, retry_after_s=2.5) as (server, client):
            holder = await Client.connect(server.port)
            await holder.send("POST", CHAT, write_body())
            await client.wait_for_stats(in_flight=1)
            refused = await client.post()
            assert (refused.status, refused.headers["retry-after"]) == (429, "2.5")
            assert (await client.read_stats())["billed"] == 1
            holder.close()

    run(test)


def test_the_capacity_is_changed_while_it_runs_and_who_waits_comes_in() -> None:
    async def test() -> None:
        async with running(slots=1, latency_ms=60_000.0, drain_s=0.0) as (server, client):
            guests = [await Client.connect(server.port) for _ in range(3)]
            for guest in guests:
                await guest.send("POST", CHAT, write_body())
            await client.wait_for_stats(running=1, waiting=2)
            answer = await client.ask("POST", "/__capacity", b'{"slots": 2, "knee": 4}')
            assert answer.json == {"slots": 2, "knee": 4, "refuse_above": None, "slowdown": 1.0, "admits": None}
            await client.wait_for_stats(running=2, waiting=1)
            await client.ask("POST", "/__capacity", b'{"slots": null}')
            await client.wait_for_stats(running=3, waiting=0)
            assert (await client.ask("GET", "/__capacity")).json["knee"] == 4
            for guest in guests:
                guest.close()

    run(test)


def test_a_gate_lets_so_many_through_and_holds_the_others_until_it_is_moved() -> None:
    async def test() -> None:
        async with running() as (server, client):
            await client.ask("POST", "/__capacity", b'{"admits": 2}')
            guests = [await Client.connect(server.port) for _ in range(4)]
            for guest in guests[:2]:
                await guest.send("POST", CHAT, write_body())
                assert (await guest.read()).status == 200
            for guest in guests[2:]:
                await guest.send("POST", CHAT, write_body())
            await client.wait_for_stats(running=0, waiting=2)
            await client.ask("POST", "/__capacity", b'{"slots": 9}')  # which is no word about the gate
            await client.wait_for_stats(running=0, waiting=2)
            await client.ask("POST", "/__capacity", b'{"admits": 3}')
            assert (await guests[2].read()).status == 200
            await client.wait_for_stats(running=0, waiting=1)
            await client.ask("POST", "/__capacity", b'{"admits": null}')
            assert (await guests[3].read()).status == 200

    run(test)


@pytest.mark.parametrize(
    "told",
    [
        "[]",
        "{",
        '{"slots": 0}',
        '{"admits": -1}',
        '{"knee": "8"}',
        '{"slowdown": 0}',
        '{"slowdown": null}',
        '{"speed": 1}',
        "7",
    ],
)
def test_a_capacity_that_makes_no_sense_is_refused_and_changes_nothing(told: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        Capacity(slots=3).changed(told.encode())
