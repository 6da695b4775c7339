"""Projections from a few values: right in the middle, with a range that holds the truth about as often as it says."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchrun.core.stats import Estimate, project, project_by_size, share_range

VALUES = st.lists(st.floats(0, 1e6), min_size=2, max_size=50)


def test_the_expected_sum_is_the_mean_times_the_count() -> None:
    estimate = project([10, 20, 30], 100)
    assert estimate is not None
    assert estimate.expected == 2_000
    assert estimate.low is not None
    assert estimate.high is not None
    assert estimate.low < 2_000 < estimate.high


@given(VALUES, st.integers(1, 10**6))
def test_the_range_holds_what_is_expected_and_stays_above_the_smallest(values: list[float], count: int) -> None:
    estimate = project(values, count)
    assert estimate is not None
    assert estimate.low is not None
    assert estimate.high is not None
    assert min(values) * count <= estimate.low * (1 + 1e-9) + 1e-9
    assert estimate.low <= estimate.expected * (1 + 1e-9) <= estimate.high * (1 + 1e-9) + 1e-9


def test_one_value_has_no_range_and_none_has_no_estimate() -> None:
    assert project([7], 3) == Estimate(21, None, None)
    assert project([], 3) is None


def test_equal_values_leave_no_doubt() -> None:
    assert project([5, 5, 5], 10) == Estimate(50, 50, 50)


def test_the_range_holds_the_truth_in_about_nineteen_of_twenty_cases() -> None:
    dice, held = random.Random(4), 0
    for _ in range(400):
        sample = [dice.gauss(100, 20) for _ in range(10)]
        truth = sum(dice.gauss(100, 20) for _ in range(50))
        estimate = project(sample, 50)
        assert estimate is not None
        held += (estimate.low or 0) <= truth <= (estimate.high or 0)
    assert 0.92 <= held / 400 <= 0.98


def test_values_that_follow_a_known_size_are_told_by_it() -> None:
    sizes = [100, 5_000, 200, 900]
    tokens = [size / 4 + 7 for size in sizes]
    by_size = project_by_size(tokens, sizes, count=100, total_size=40_000)  # the rest is far shorter than the sample
    by_mean = project(tokens, 100)
    assert by_size is not None
    assert by_mean is not None
    assert by_size.expected == pytest.approx(40_000 / 4, rel=0.05)
    assert by_mean.expected > 3 * by_size.expected
    assert by_size.high is not None
    assert by_size.high < by_mean.expected


def test_values_that_do_not_follow_it_are_told_by_their_mean() -> None:
    tokens, sizes = [100.0, 101, 99, 100], [10.0, 900, 40, 3_000]
    assert project_by_size(tokens, sizes, count=10, total_size=50_000) == project(tokens, 10)
    assert project_by_size(tokens, [0, 0, 0, 0], count=10, total_size=0) == project(tokens, 10)


def test_estimates_change_their_unit_and_add_up() -> None:
    two = Estimate(10, 8, 12).times(2)
    assert two == Estimate(20, 16, 24)
    assert two.plus(Estimate(1, 1, 2)) == Estimate(21, 17, 26)
    assert two.plus(Estimate(1, None, None)) == Estimate(21, None, None)


@pytest.mark.parametrize(
    ("hits", "of", "low", "high"),
    [(0, 10, 0.0, 0.278), (1, 10, 0.018, 0.404), (10, 10, 0.722, 1.0), (5, 1000, 0.002, 0.012)],
)
def test_a_share_of_few_is_a_wide_range(hits: int, of: int, low: float, high: float) -> None:
    assert share_range(hits, of) == (pytest.approx(low, abs=0.001), pytest.approx(high, abs=0.001))


def test_a_share_of_nothing_is_not_known() -> None:
    assert share_range(0, 0) is None
