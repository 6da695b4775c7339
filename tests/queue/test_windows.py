"""The rate windows in Redis: the shared scenarios, the script against its twin, and what a store can do to them."""

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import count
from typing import Any

import pytest
import redis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from batchrun.core.rate import MINUTE, Limits, Reason
from batchrun.queue.windows import RedisWindows
from tests.core.rate_conformance import RateConformance
from tests.core.rate_scene import MOMENTS, SPAN_S, STEPS, Scene
from tests.core.test_rate import book_scene
from tests.examples import drawn
from tests.services import RedisServer

LIMITS = Limits(600, 60_000)
JOB_IDS = count(1)


def redis_scene(client: redis.Redis, url: str, runner: asyncio.Runner) -> Scene:
    """Set a scene in Redis, with a book of its own."""
    job_id = next(JOB_IDS)
    key = f"batchrun:test:rate:{job_id}"

    def open_windows(scene: Scene) -> RedisWindows:
        return RedisWindows(
            url, ledger_id="test", book=str(job_id), clock=lambda: scene.now, server_clock=scene.store_clock
        )

    def save() -> Callable[[], None]:
        with closing(redis.Redis.from_url(url)) as raw:
            copy = raw.dump(key)
        return lambda: client.restore(key, 0, copy, replace=True)

    return Scene(open_windows, lambda: client.delete(key), runner.run, save)


class TestInRedis(RateConformance):
    @pytest.fixture(autouse=True, scope="class")
    @classmethod
    def _server(cls, redis_server: RedisServer) -> Iterator[None]:
        with asyncio.Runner() as runner, closing(redis.Redis.from_url(redis_server.url)) as client:
            cls.make = lambda _self: redis_scene(client, redis_server.url, runner)
            yield

    make: Callable[["TestInRedis"], Scene]

    def scene(self) -> Scene:
        return self.make()


# -- the twin ---------------------------------------------------------------------------------------------------------


@settings(
    max_examples=drawn(60),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(data=st.data())
def test_the_script_and_its_twin_answer_every_question_alike(
    data: st.DataObject, client: redis.Redis, redis_url: str, runner: asyncio.Runner
) -> None:
    here = book_scene()
    there = redis_scene(client, redis_url, runner)
    pairs = [(here.process(), there.process()) for _ in range(3)]
    held: list[tuple[Any, ...]] = []
    sizes = st.lists(st.integers(0, 3_000), max_size=12)
    limits = st.builds(Limits, st.none() | st.integers(1, 300), st.none() | st.integers(1, 20_000))
    actions = ["ask", "ask", "ask", "wait", "back", "correct", "step", "lose", "limits"]
    today = Limits(60, 5_000)
    for action in data.draw(st.lists(st.sampled_from(actions), max_size=40)):
        if action == "limits":
            today = data.draw(limits)
        elif action == "wait":
            passed_s = data.draw(MOMENTS)
            here.now, there.now = here.now + passed_s, there.now + passed_s
        elif action == "step":
            step_s = data.draw(STEPS)
            here.store_ahead_s, there.store_ahead_s = here.store_ahead_s + step_s, there.store_ahead_s + step_s
        elif action == "lose":
            here.lose()
            there.lose()
        elif action == "ask":
            (one, other), asked = data.draw(st.sampled_from(pairs)), data.draw(sizes)
            is_fresh = data.draw(st.booleans())
            grant, twin = one.take(today, asked, is_fresh=is_fresh), other.take(today, asked, is_fresh=is_fresh)
            assert (twin.wait_s, twin.reason, twin.message) == (grant.wait_s, grant.reason, grant.message)
            permits = list(zip(grant.permits, twin.permits, strict=True))
            assert [(mine.tokens, mine.use_before, mine.bucket) for mine, _ in permits] == [
                (its.tokens, its.use_before, its.bucket) for _, its in permits
            ]
            held += [(one.windows, other.windows, *pair) for pair in permits]
        elif held:
            mine, its, permit, twin_permit = held.pop(data.draw(st.integers(0, len(held) - 1)))
            if action == "back":
                mine.give_back([permit])
                its.give_back([twin_permit])
            else:
                used = data.draw(st.integers(0, 2 * permit.tokens))
                mine.correct(permit, used)
                its.correct(twin_permit, used)


# -- what only Redis can do to us -------------------------------------------------------------------------------------


def key_of(client: redis.Redis) -> str:
    [key] = client.keys("batchrun:*")
    return str(key)


@pytest.mark.parametrize(("append_only", "reason"), [("no", Reason.LOST), ("yes", None)])
def test_after_a_restart_the_book_is_believed_only_if_every_answer_was_written_down(
    client: redis.Redis, redis_url: str, runner: asyncio.Runner, append_only: str, reason: Reason | None
) -> None:
    scene = redis_scene(client, redis_url, runner)
    process = scene.process(is_fresh=True)
    client.config_set("appendonly", append_only)
    try:
        client.hset(key_of(client), "run", "0" * 40)  # as another run of the server would have left it
        assert process.take(LIMITS, [1]).reason is reason
        scene.now += SPAN_S
        assert process.take(LIMITS, [1]).reason is None
    finally:
        client.config_set("appendonly", "no")


def test_the_clock_of_the_server_is_what_counts(client: redis.Redis, redis_url: str, runner: asyncio.Runner) -> None:
    windows = RedisWindows(redis_url, ledger_id="test", book="1", clock=time.monotonic)
    grant = runner.run(windows.take(LIMITS, [1], is_fresh=True))
    assert grant.permits[0].bucket == pytest.approx(time.time() / MINUTE.bucket_s, abs=8)
    runner.run(windows.close())


def test_a_job_keeps_one_small_key_that_is_forgotten_by_itself(
    client: redis.Redis, redis_url: str, runner: asyncio.Runner
) -> None:
    scene = redis_scene(client, redis_url, runner)
    process = scene.process(is_fresh=True)
    for _ in range(400):
        process.take(Limits(60_000, 10_000_000), [100] * 100)
        scene.now += 0.3
    key = key_of(client)
    assert key.startswith("batchrun:test:")
    assert client.hlen(key) <= 13 + 2 * MINUTE.buckets
    assert int(client.memory_usage(key) or 0) < 40_000
    assert 3600 < client.ttl(key) <= 24 * 3600


def test_what_is_owed_at_the_end_is_told(client: redis.Redis, redis_url: str, runner: asyncio.Runner) -> None:
    scene = redis_scene(client, redis_url, runner)
    process, other = scene.process(is_fresh=True), scene.process()
    process.windows.give_back(process.take(LIMITS, [100] * 40).permits)
    assert not other.take(LIMITS, [100]).permits
    runner.run(process.windows.close())
    assert other.take(LIMITS, [100]).permits
