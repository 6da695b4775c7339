"""Sends wait for their permits in order, no more is claimed than may soon leave, and what can never leave says so."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from batchrun.core.rate import Limits, Window
from batchrun.core.rate_book import LocalWindows
from batchrun.runner.turnstile import LEAST_AHEAD, TooLarge, Turnstile
from tests.runner.simulated_loop import SimulatedLoop

SHORT = Window(length_s=1.0, use_within_s=0.1, bucket_s=0.05, clock_slack_s=0.05, burst_s=0.1)


class Scene:
    """A turnstile over windows of one second, on the loop's own clock: a simulated one."""

    def __init__(self, limits: Limits) -> None:
        self.woken = 0
        clock = asyncio.get_running_loop().time
        self.windows = LocalWindows(clock=clock, window=SHORT)
        self.turnstile = Turnstile(self.windows, limits=limits, wake=self._wake)

    def _wake(self) -> None:
        self.woken += 1


def play(limits: Limits, act: Callable[[Scene], Coroutine[Any, Any, None]]) -> None:
    async def whole() -> None:
        scene = Scene(limits)
        await scene.turnstile.open(lambda: True)
        await act(scene)
        await scene.turnstile.close()

    run(whole)


def run(whole: Callable[[], Coroutine[Any, Any, None]]) -> None:
    with asyncio.Runner(loop_factory=SimulatedLoop) as runner:
        runner.run(whole())


def test_without_limits_nobody_waits_and_nothing_is_counted() -> None:
    async def act(scene: Scene) -> None:
        assert [await scene.turnstile.pass_through(10**9) for _ in range(3)] == [None] * 3

    play(Limits(), act)


def test_who_waits_passes_in_order_and_never_above_the_limit() -> None:
    async def act(scene: Scene) -> None:
        clock, passed = asyncio.get_running_loop().time, list[tuple[int, float]]()

        async def send(number: int) -> None:
            assert await scene.turnstile.pass_through(0) is not None
            passed.append((number, clock()))

        await asyncio.gather(*(send(number) for number in range(45)))
        assert [number for number, _ in passed] == list(range(45))
        for _, at in passed:
            assert sum(at <= other < at + 1.0 for _, other in passed) <= 20
        assert passed[-1][1] - passed[0][1] < 3.5
        assert scene.woken > 0

    play(Limits(rpm=20), act)


def test_an_item_that_no_window_can_hold_is_refused_and_the_next_one_passes() -> None:
    async def act(scene: Scene) -> None:
        hopeless = asyncio.create_task(scene.turnstile.pass_through(101))
        fine = asyncio.create_task(scene.turnstile.pass_through(10))
        with pytest.raises(TooLarge, match="101 tokens"):
            await hopeless
        assert await fine is not None

    play(Limits(tpm=100), act)


def test_windows_that_know_nothing_of_the_last_minute_let_nobody_pass_until_it_is_over() -> None:
    async def whole() -> None:
        scene = Scene(Limits(rpm=100))
        await scene.turnstile.open(lambda: False)
        clock = asyncio.get_running_loop().time
        began = clock()
        assert await scene.turnstile.pass_through(0) is not None
        assert clock() - began >= 1.0

    run(whole)


def test_a_limit_that_is_lifted_lets_everybody_pass() -> None:
    async def act(scene: Scene) -> None:
        sends = [asyncio.create_task(scene.turnstile.pass_through(0)) for _ in range(50)]
        await asyncio.sleep(0)
        await scene.turnstile.follow(Limits())
        await asyncio.gather(*sends)
        assert scene.turnstile.room == LEAST_AHEAD or scene.turnstile.is_open

    play(Limits(rpm=1), act)


def test_a_limit_that_comes_later_holds_from_then_on_and_waits_for_nothing() -> None:
    async def act(scene: Scene) -> None:
        clock = asyncio.get_running_loop().time
        assert await scene.turnstile.pass_through(0) is None
        began = clock()
        await scene.turnstile.follow(Limits(rpm=20))
        for _ in range(30):
            await scene.turnstile.pass_through(0)
        assert 0.3 < clock() - began < 3

    play(Limits(), act)


def test_at_the_end_nobody_waits_any_longer() -> None:
    async def act(scene: Scene) -> None:
        sends = [asyncio.create_task(scene.turnstile.pass_through(0)) for _ in range(5)]
        await asyncio.sleep(0.05)
        scene.turnstile.let_go()
        assert (await asyncio.gather(*sends))[-1] is None

    play(Limits(rpm=1), act)


def test_room_for_claims_follows_what_leaves() -> None:
    async def act(scene: Scene) -> None:
        assert scene.turnstile.room == LEAST_AHEAD
        sends = [asyncio.create_task(scene.turnstile.pass_through(0)) for _ in range(5)]
        await asyncio.sleep(0)
        assert scene.turnstile.room == LEAST_AHEAD - 5
        await asyncio.gather(*sends)
        assert scene.turnstile.room == 5

    play(Limits(rpm=1000), act)
