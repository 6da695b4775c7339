"""Live counts and rates: what is measured, over which window, and what is not claimed."""

import pytest

from batchrun.core.outcome import Charge, Evidence, Timing, Usage
from batchrun.core.states import AttemptState, ItemState
from batchrun.runner.tally import Tally


def answer(duration_s: float = 0.5, tokens: int = 10) -> Evidence:
    timing = Timing(0.0, 0.0, duration_s, duration_s)
    return Evidence(AttemptState.ANSWERED, None, None, Charge.CERTAIN, timing, usage=Usage(5, tokens))


def refusal(message: str = "500 no") -> Evidence:
    return Evidence(AttemptState.REFUSED, "server_error", message, Charge.NONE, None)


def steady(tally: Tally, *, since: float, until: float, per_s: int) -> None:
    for step in range(round((until - since) * per_s)):
        tally.saw(since + step / per_s, answer(), ItemState.COMPLETED, custom_id="a")


def test_no_rate_is_claimed_before_anything_was_answered() -> None:
    tally = Tally(100.0)
    tally.saw(101.0, refusal(), ItemState.PENDING, custom_id="a")
    assert tally.rates(102.0) == (None, None)
    assert tally.latencies() == (None, None)


@pytest.mark.parametrize("now", [110.0, 119.3, 120.0, 135.7, 139.99])
def test_a_steady_pace_is_told_as_what_it_is(now: float) -> None:
    tally = Tally(100.0)
    steady(tally, since=100.0, until=now, per_s=20)
    items_per_s, tokens_per_s = tally.rates(now)
    assert items_per_s == pytest.approx(20, rel=0.02)
    assert tokens_per_s == pytest.approx(200, rel=0.02)


def test_a_rate_is_that_of_the_last_ten_seconds() -> None:
    tally = Tally(100.0)
    steady(tally, since=100.0, until=130.0, per_s=50)
    steady(tally, since=130.0, until=141.0, per_s=5)
    assert tally.rates(141.0)[0] == pytest.approx(5, rel=0.05)
    assert tally.rates(152.5) == (None, None)


def test_the_full_run_is_not_measured_by_its_trial() -> None:
    tally = Tally(100.0)
    tally.saw(101.0, answer(), ItemState.COMPLETED, custom_id="a")
    tally.measure_anew(105.0)
    assert tally.rates(105.5) == (None, None)
    steady(tally, since=105.0, until=107.0, per_s=30)
    assert tally.rates(107.0)[0] == pytest.approx(30, rel=0.05)
    assert tally.moved[ItemState.COMPLETED] == 61


def test_silence_is_counted_from_the_last_answer() -> None:
    tally = Tally(100.0)
    assert tally.silent_s(104.0) == 4.0
    tally.saw(110.0, answer(), ItemState.COMPLETED, custom_id="a")
    tally.saw(115.0, refusal(), ItemState.PENDING, custom_id="a")
    assert tally.silent_s(117.0) == 7.0


def test_the_last_failure_knows_what_became_of_its_item() -> None:
    tally = Tally(100.0)
    tally.saw(101.0, refusal(), ItemState.PENDING, custom_id="a")
    tally.saw(102.0, refusal("500 still no"), ItemState.FAILED, custom_id="b")
    tally.saw(103.0, answer(), ItemState.COMPLETED, custom_id="c")
    assert tally.last_failure is not None
    assert (tally.last_failure.custom_id, tally.last_failure.to) == ("b", ItemState.FAILED)
    assert tally.last_failure.message == "500 still no"
