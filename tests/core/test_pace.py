"""The job-wide hold, and the gentle start after it."""

from collections import Counter

import pytest

from batchrun.core.pace import Pace


def test_a_hold_is_never_shorter_than_asked() -> None:
    for chance in (0.0, 0.5, 0.999):
        pace = Pace(20)
        assert 3.0 <= pace.hold(100.0, asked_s=3.0, chance=chance) <= 3.4
        assert pace.is_held(102.999)
        assert not pace.is_held(103.4)


def test_a_shorter_hold_does_not_end_a_longer_one() -> None:
    pace = Pace(20)
    pace.hold(100.0, asked_s=10.0, chance=0.0)
    pace.hold(101.0, asked_s=1.0, chance=0.0)
    assert pace.is_held(109.9)


def test_guessed_holds_double_until_an_answer_comes() -> None:
    pace, now, waits = Pace(8), 100.0, []
    for _ in range(7):
        waits.append(pace.hold(now, asked_s=None, chance=0.0))
        now = pace.held_until
    assert waits == pytest.approx([0.5, 1, 2, 4, 8, 8, 8])
    pace.answered()
    assert pace.hold(now + 1, asked_s=None, chance=0.0) == pytest.approx(0.5)


def test_many_refusals_of_one_moment_are_one_guess() -> None:
    pace = Pace(8)
    for _ in range(8):
        pace.hold(100.0, asked_s=None, chance=0.0)
    assert pace.held_until == pytest.approx(100.5)


def test_after_a_hold_the_slots_do_not_come_back_in_one_stampede() -> None:
    pace = Pace(20)
    pace.hold(100.0, asked_s=2.0, chance=0.0)
    at, starts = 0.0, []
    for number in range(20):
        at += pace.admit(chance=(number * 7 % 10) / 10)
        starts.append(at)
    per_100_ms = Counter(int(start * 10) for start in starts)
    assert max(per_100_ms.values()) <= 20 / 3
    assert starts[-1] <= 1.0


def test_outside_of_a_ramp_nothing_waits() -> None:
    pace = Pace(3)
    assert pace.admit(chance=0.5) == 0.0
    pace.hold(100.0, asked_s=1.0, chance=0.0)
    assert all(pace.admit(chance=0.5) > 0 for _ in range(3))
    assert pace.admit(chance=0.5) == 0.0


def test_an_endpoint_that_is_back_is_met_gently() -> None:
    pace = Pace(3, is_blocked=True)
    pace.restart()
    assert not pace.is_held(0.0)
    assert pace.admit(chance=0.0) > 0


def test_a_block_holds_until_it_is_lifted() -> None:
    pace = Pace(4)
    pace.is_blocked = True
    assert pace.is_held(1e9)
