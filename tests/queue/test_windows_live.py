"""The rate windows in real time: a Redis that is silent, late, empty or refuses, and processes that share a limit."""

import asyncio
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from itertools import count
from pathlib import Path

import pytest
import redis

from batchrun.core.rate import Grant, Limits, RateWindows, Reason
from batchrun.queue.windows import FIRST_PAUSE_S, LONGEST_PAUSE_S, RedisWindows
from tests.core.rate_scene import most_in_any_window
from tests.queue.rate_worker import SHORT
from tests.services import RedisServer

LIMITS = Limits(600, 60_000)
JOB_IDS = count(1)
Silence = Callable[[], AbstractContextManager[None]]


def live_windows(url: str) -> RedisWindows:
    return RedisWindows(url, ledger_id="test", book=str(next(JOB_IDS)), clock=time.monotonic)


async def take_until_answered(windows: RateWindows, tokens: list[int], *, is_fresh: bool = False) -> Grant:
    """Ask, as a worker does, until Redis answers: one that stood still for a moment is given up meanwhile."""
    async with asyncio.timeout(60):
        while (grant := await windows.take(LIMITS, tokens, is_fresh=is_fresh)).reason is Reason.UNREACHABLE:
            await asyncio.sleep(grant.wait_s or 0.0)
    return grant


def test_without_redis_nothing_is_granted_and_it_is_asked_again_ever_less_often(runner: asyncio.Runner) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        windows = live_windows(f"redis://:hidden@127.0.0.1:{unused.getsockname()[1]}/0")

        async def ask() -> list[float]:
            waits = []
            for _ in range(8):
                grant = await windows.take(LIMITS, [1], is_fresh=True)
                assert (grant.permits, grant.reason) == ((), Reason.UNREACHABLE)
                assert "hidden" not in str(grant.message)
                assert grant.wait_s is not None
                waits.append(grant.wait_s)
                await asyncio.sleep(grant.wait_s)
            return waits

        waits = runner.run(ask())
    assert 0 < waits[0] < 0.1
    assert 0.5 * LONGEST_PAUSE_S <= waits[-1] <= LONGEST_PAUSE_S


def test_a_server_that_says_nothing_is_given_up_and_the_loop_runs_meanwhile(runner: asyncio.Runner) -> None:
    with socket.create_server(("127.0.0.1", 0)) as mute:
        windows = live_windows(f"redis://127.0.0.1:{mute.getsockname()[1]}/0")

        async def ask() -> tuple[float, int]:
            began, turns = time.monotonic(), 0
            asked = asyncio.gather(*(windows.take(LIMITS, [1]) for _ in range(50)))
            while not asked.done():
                await asyncio.sleep(0.005)
                turns += 1
            assert {grant.reason for grant in await asked} == {Reason.UNREACHABLE}
            return time.monotonic() - began, turns

        # The best of some tries: a machine that stands still spoils one of them, a loop that is blocked every one.
        tries = [runner.run(ask())]
        while len(tries) < 4 and (min(tries)[0] >= 2.5 or max(turns for _, turns in tries) <= 20):
            tries.append(runner.run(ask()))
    assert min(tries)[0] < 2.5  # for all of them: one asks, the others hear of it
    assert max(turns for _, turns in tries) > 20


def test_an_answer_that_came_too_late_is_not_taken_for_the_next_one(
    silence: Silence, redis_url: str, runner: asyncio.Runner
) -> None:
    async def scenario() -> None:
        windows = live_windows(redis_url)
        assert (await take_until_answered(windows, [1], is_fresh=True)).permits
        for _ in range(2):
            with silence():
                grant = await windows.take(LIMITS, [1] * 5)
                assert grant.reason is Reason.UNREACHABLE
                assert grant.wait_s is not None
                assert grant.wait_s <= FIRST_PAUSE_S  # after an answer, the first pause is short again
            assert (await take_until_answered(windows, [1])).permits
            assert len((await take_until_answered(windows, [1] * 2)).permits) == 2
        await windows.close()

    runner.run(scenario())


def test_usage_that_could_not_be_told_is_told_later(silence: Silence, redis_url: str, runner: asyncio.Runner) -> None:
    async def scenario() -> None:
        windows = live_windows(redis_url)
        [permit] = (await take_until_answered(windows, [1], is_fresh=True)).permits
        windows.correct(permit, 60_000)
        with silence():
            assert (await windows.take(LIMITS, [1])).reason is Reason.UNREACHABLE
        assert (await take_until_answered(windows, [1])).reason is Reason.TOKENS
        await windows.close()

    runner.run(scenario())


def test_a_question_that_is_given_up_halfway_disturbs_no_other(
    silence: Silence, redis_url: str, runner: asyncio.Runner
) -> None:
    async def scenario() -> None:
        windows = live_windows(redis_url)
        assert (await take_until_answered(windows, [1], is_fresh=True)).permits
        with silence():
            while True:
                asked = asyncio.ensure_future(windows.take(LIMITS, [1] * 7))
                await asyncio.sleep(0.05)
                if asked.cancel():
                    break
                await asyncio.sleep(asked.result().wait_s or 0.0)  # the machine stood still until it was given up
            with pytest.raises(asyncio.CancelledError):
                await asked
        grants = await asyncio.gather(*(take_until_answered(windows, [number]) for number in (11, 12, 13)))
        assert [[permit.tokens for permit in grant.permits] for grant in grants] == [[11], [12], [13]]
        await windows.close()

    runner.run(scenario())


def test_a_server_that_was_emptied_and_one_that_refuses_are_told_apart(
    client: redis.Redis, redis_server: RedisServer, redis_url: str, runner: asyncio.Runner
) -> None:
    async def scenario() -> None:
        windows = live_windows(redis_url)
        assert (await take_until_answered(windows, [1], is_fresh=True)).permits
        client.flushall()
        client.script_flush()
        assert (await take_until_answered(windows, [1], is_fresh=True)).reason is Reason.LOST
        client.config_set("maxmemory", 1)
        try:
            # A question that comes past a bucket deletes first, and who has deleted may write: the next one may not.
            reasons = [(await windows.take(LIMITS, [1])).reason for _ in range(3)]
            assert Reason.UNREACHABLE in reasons
        finally:
            client.config_set("maxmemory", 0)
        stranger = live_windows(redis_url.replace(redis_server.password, "wrong"))
        grant = await stranger.take(LIMITS, [1])
        assert grant.reason is Reason.UNREACHABLE
        assert "password" in str(grant.message)
        await stranger.close()
        await windows.close()

    runner.run(scenario())


# -- real processes, in real time -------------------------------------------------------------------------------------

WORKERS = 8


@pytest.mark.process
@pytest.mark.slow
def test_eight_processes_share_one_limit_in_real_time(redis_url: str) -> None:
    # given: eight processes that send as fast as they may, in batches, and give some permits back
    rpm, run_s = 2_000, 10.0
    command = [sys.executable, "-m", "tests.queue.rate_worker", redis_url, str(rpm), str(run_s)]
    workers = [
        subprocess.Popen([*command, str(number)], cwd=Path(__file__).parents[2], stdout=subprocess.PIPE, text=True)
        for number in range(WORKERS)
    ]
    # when: they have run for two and a half (shortened) minutes
    sent: list[list[float]] = []
    try:
        for worker in workers:
            words, _ = worker.communicate(timeout=100)
            assert worker.returncode == 0
            sent.append([float(word) for word in words.split()])
    finally:
        for worker in workers:
            worker.kill()
    # then: never more than the limit, nearly all of it, and nobody went without
    moments = sorted(moment for moments in sent for moment in moments)
    assert most_in_any_window([(moment, 1) for moment in moments], SHORT.length_s) <= rpm
    assert moments[-1] - moments[0] > SHORT.length_s
    # The fullest window: a machine that stands still for a moment spoils some of them, a share that is lost all.
    assert most_in_any_window([(moment, 1) for moment in moments], SHORT.length_s) >= 0.95 * rpm
    assert min(len(moments) for moments in sent) > 0
