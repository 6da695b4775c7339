"""How long the rest takes: a range out of what was measured, and nothing where nothing was."""

import random

import pytest

from batchrun.runner.forecast import Forecast


def run(forecast: Forecast, paces: list[float], *, tick_s: float = 0.2, wave: int = 1) -> tuple[float, int]:
    """Work a second at each of these paces (items per second); return when it ended, and what was done by then."""
    now, work = 0.0, 0.0
    for pace in paces:
        for _ in range(round(1 / tick_s)):
            forecast.saw(now, int(work), wave=wave)
            now += tick_s
            work += pace * tick_s
    forecast.saw(now, int(work), wave=wave)
    return now, int(work)


def test_nothing_is_said_before_three_stretches_were_measured() -> None:
    forecast = Forecast()
    run(forecast, [10.0] * 6)
    assert forecast.left_s(100, last_s=None) is None
    forecast = Forecast()
    run(forecast, [10.0] * 11)
    assert forecast.left_s(100, last_s=None) is not None


def test_a_steady_pace_gives_a_narrow_range_around_the_truth() -> None:
    forecast = Forecast()
    run(forecast, [50.0] * 60)
    low, high = forecast.left_s(5_000, last_s=0.0) or (0.0, 0.0)
    assert 95 <= low <= 100 <= high <= 105


@pytest.mark.parametrize("seed", range(20))
def test_an_unsteady_pace_gives_a_range_that_holds_the_truth(seed: int) -> None:
    chance = random.Random(seed)
    paces = [chance.lognormvariate(3.0, 0.5) for _ in range(400)]
    forecast = Forecast()
    _, done = run(forecast, paces[:100])
    left = int(sum(paces)) - done
    low, high = forecast.left_s(left, last_s=0.0) or (0.0, 0.0)
    assert low <= 300 <= high
    assert high - low >= 0.2 * low  # and it says how unsure that is


def test_the_last_request_is_counted_as_a_slow_one() -> None:
    forecast = Forecast()
    run(forecast, [50.0] * 20)
    low, high = forecast.left_s(50, last_s=30.0) or (0.0, 0.0)
    assert low == pytest.approx(1.0, rel=0.1)
    assert high == pytest.approx(31.0, rel=0.1)


def test_answers_that_come_in_waves_are_measured_wave_by_wave() -> None:
    forecast = Forecast()
    wave = [8.0, *[0.0] * 19]  # eight at once, every twenty seconds
    run(forecast, wave * 10, wave=8)
    low, high = forecast.left_s(80, last_s=None) or (0.0, 0.0)
    assert low <= 200 <= high * 1.05
    assert high < 300


def test_a_wait_for_the_endpoint_is_no_measure_of_the_work() -> None:
    forecast = Forecast()
    run(forecast, [20.0] * 30)
    before = forecast.left_s(1_000, last_s=None)
    forecast.rest()
    forecast.saw(600.0, 600)
    assert forecast.left_s(1_000, last_s=None) == before


def test_items_that_are_open_again_begin_a_new_stretch() -> None:
    forecast = Forecast()
    run(forecast, [20.0] * 30)
    forecast.saw(31.0, 0)
    forecast.saw(40.0, 180)
    low, _ = forecast.left_s(200, last_s=None) or (0.0, 0.0)
    assert low == pytest.approx(10, rel=0.1)


def test_nothing_left_takes_no_time_to_tell() -> None:
    forecast = Forecast()
    run(forecast, [20.0] * 30)
    assert forecast.left_s(0, last_s=1.0) is None
