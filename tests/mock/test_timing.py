"""Timing and slots: how long answers take, and who waits for whom."""

import asyncio
import json
import math
from pathlib import Path

from batchrun.mock.capacity import Capacity
from batchrun.mock.config import MockConfig
from batchrun.mock.dice import Dice
from batchrun.mock.slots import Slots
from batchrun.mock.timing import Clockwork, Pace
from tests.mock.wire import CHAT, Client, run, running, write_body


class Guest:
    def __init__(self, name: str, started: list[str]) -> None:
        self.name = name
        self.started = started

    def start(self) -> None:
        self.started.append(self.name)


def test_a_fixed_latency_stands_for_the_whole_answer() -> None:
    pace = Clockwork(MockConfig(latency_ms=100.0, ttft_ms=7.0, itl_ms=7.0)).draw(())
    assert pace.compute_e2el_s(1) == pace.compute_e2el_s(500) == 0.1


def test_an_answer_takes_the_first_token_and_the_steps_after_it() -> None:
    assert Pace(0.5, 0.01).compute_e2el_s(101) == 1.5
    assert Pace(0.5, 0.01).compute_e2el_s(1) == 0.5


def test_the_spread_is_lognormal_around_the_median() -> None:
    clockwork, dice = Clockwork(MockConfig(ttft_ms=200.0, itl_ms=10.0, latency_sigma=0.5)), Dice(3)
    paces = [clockwork.draw(dice.throw(b"%032d" % no, 1)) for no in range(4_000)]
    for median_s, drawn in ((0.2, [pace.ttft_s for pace in paces]), (0.01, [pace.itl_s for pace in paces])):
        logs = sorted(math.log(value / median_s) for value in drawn)
        assert abs(logs[2_000]) < 0.04
        assert abs(math.sqrt(sum(value * value for value in logs) / 4_000) - 0.5) < 0.03
    assert clockwork.draw(dice.throw(b"%032d" % 5, 1)) == paces[5]


def test_an_answer_does_not_come_before_its_time() -> None:
    async def test() -> None:
        loop = asyncio.get_running_loop()
        async with running(ttft_ms=30.0, itl_ms=10.0) as (_, client):
            sent_at = loop.time()
            await client.post(max_tokens=4, ignore_eos=True)
            assert loop.time() - sent_at >= 0.059

    run(test)


def test_guests_beyond_the_slots_are_served_first_in_first_out() -> None:
    async def test() -> None:
        started: list[str] = []
        slots = Slots(Capacity(slots=2), asyncio.get_running_loop())
        guests = {name: Guest(name, started) for name in "abcde"}
        for guest in guests.values():
            slots.enter(guest)
        assert (started, slots.running_count, slots.waiting_count) == (["a", "b"], 2, 3)
        slots.leave(guests["d"])  # from the middle of the queue
        slots.leave(guests["b"])
        slots.leave(guests["a"])
        assert (slots.running_count, slots.waiting_count) == (2, 0)
        await asyncio.sleep(0)
        assert started == ["a", "b", "c", "e"]

    run(test)


def test_a_guest_who_leaves_between_turn_and_start_is_not_started() -> None:
    async def test() -> None:
        started: list[str] = []
        slots = Slots(Capacity(slots=1), asyncio.get_running_loop())
        first, second, third = (Guest(name, started) for name in "abc")
        for guest in (first, second, third):
            slots.enter(guest)
        slots.leave(first)
        slots.leave(second)
        await asyncio.sleep(0)
        assert (started, slots.running_count) == (["a", "c"], 1)

    run(test)


def test_requests_wait_for_a_slot_in_their_order(tmp_path: Path) -> None:
    log = tmp_path / "requests.jsonl"

    async def test() -> None:
        async with running(slots=1, itl_ms=50.0, log_path=str(log)) as (server, client):
            holder, *others = [await Client.connect(server.port) for _ in range(4)]
            await holder.send("POST", CHAT, write_body(stream=True, max_tokens=100_000, ignore_eos=True))
            await holder.read_head()
            for no, other in enumerate(others, 1):
                await other.send("POST", CHAT, write_body(f"[[q-{no}]]", max_tokens=1))
                await client.wait_for_stats(running=1, waiting=no)
            others[1].close()
            await client.wait_for_stats(running=1, waiting=2)
            metrics = (await client.ask("GET", "/metrics")).body.decode()
            assert 'vllm:num_requests_waiting{engine="0",model_name="mock"} 2' in metrics
            assert 'vllm:kv_cache_usage_perc{engine="0",model_name="mock"} 1.0' in metrics
            holder.close()
            assert [(await other.read()).status for other in (others[0], others[2])] == [200, 200]
            await client.wait_for_stats(running=0, waiting=0, in_flight=0)

    run(test)
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    ends = [(line["req"], line["outcome"]) for line in lines if line["ev"] == "end"]
    no_metrics = [end for end in ends if end[0] in (1, 2, 3, 4)]
    assert no_metrics == [(3, "client_gone"), (1, "client_gone"), (2, "answered"), (4, "answered")]


def test_a_long_queue_of_instant_answers_does_not_nest() -> None:
    async def test() -> None:
        async with running(slots=1, itl_ms=50.0) as (server, client):
            holder = await Client.connect(server.port)
            await holder.send("POST", CHAT, write_body(stream=True, max_tokens=100_000, ignore_eos=True))
            await holder.read_head()
            others = await asyncio.gather(*[Client.connect(server.port) for _ in range(1_500)])
            await asyncio.gather(*[other.send("POST", CHAT, write_body(max_tokens=1)) for other in others])
            await client.wait_for_stats(waiting=1_500)
            holder.close()
            answers = await asyncio.gather(*[other.read() for other in others])
            assert {answer.status for answer in answers} == {200}
            for other in others:
                other.close()

    run(test)
