"""Projections from a few values: right in the middle, with a range that holds the truth about as often as it says."""

import math
import random
from collections import Counter
from collections.abc import Callable
from itertools import repeat

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchrun.core.projection import Estimate, Part, project, project_share, share_range, student
from batchrun.core.strata import draw, stratify

PAIRS = st.lists(st.tuples(st.floats(0, 1e6), st.floats(0, 1e6)), max_size=12)
PARTS = st.lists(st.builds(Part, count=st.integers(0, 10**6), size=st.floats(0, 1e12), seen=PAIRS), max_size=6)


def alike(values: list[float], count: int) -> list[Part]:
    """One stratum of items of one size."""
    return [Part(count, 100.0 * count, list(zip(repeat(100.0), values, strict=False)))]


def test_the_expected_sum_is_the_mean_times_the_count() -> None:
    estimate = project(alike([10, 20, 30], 100))
    assert estimate is not None
    assert estimate.expected == pytest.approx(2_000)
    assert estimate.low is not None
    assert estimate.high is not None
    assert 0 < estimate.low < 2_000 < estimate.high


@given(PARTS)
def test_whatever_was_seen_the_range_holds_what_is_expected(parts: list[Part]) -> None:
    estimate = project(parts)
    if not any(part.seen for part in parts):
        assert estimate is None
        return
    assert estimate is not None
    assert math.isfinite(estimate.expected)
    if estimate.low is not None:
        assert estimate.high is not None
        assert 0 <= estimate.low <= estimate.expected <= estimate.high


def test_one_value_has_no_range_and_none_has_no_estimate() -> None:
    assert project(alike([7], 3)) == Estimate(21, None, None)
    assert project(alike([], 3)) is None
    assert project([]) is None


def test_equal_values_leave_no_doubt() -> None:
    assert project(alike([5, 5, 5], 10)) == Estimate(50, 50, 50)
    assert project(alike([0, 0, 0], 10)) == Estimate(0, 0, 0)


def test_values_that_follow_a_known_size_are_told_by_it() -> None:
    sizes = [100.0, 5_000, 200, 900, 300, 2_500, 150, 700]
    seen = [(size, size / 4 + 7) for size in sizes]
    estimate = project([Part(100, 40_000, seen)])  # the rest is far shorter than the sample
    assert estimate is not None
    assert estimate.expected == pytest.approx(40_000 / 4 + 700)
    assert estimate.high is not None
    assert estimate.high < 100 * sum(value for _, value in seen) / len(seen)


def test_values_that_do_not_follow_it_are_told_by_their_mean() -> None:
    seen = [(10.0, 100.0), (900, 101), (40, 99), (3_000, 100)] * 2
    estimate = project([Part(10, 50_000, seen)])
    assert estimate is not None
    assert estimate.expected == pytest.approx(1_000, rel=0.01)


def test_a_stratum_of_one_value_takes_its_spread_from_its_neighbour() -> None:
    by_itself = project([Part(50, 5_000, [(100, 10)]), Part(50, 5_000, [(100, 30), (100, 20)])])
    joined = project([Part(100, 10_000, [(100, 10), (100, 30), (100, 20)])])
    assert by_itself == joined


# Jobs of mixed lengths: the size of a prompt, and what its answer takes.
Dice = random.Random
KINDS: dict[str, Callable[[Dice], tuple[float, float]]] = {
    "lognormal": lambda d: (d.lognormvariate(6, 1), min(4_000.0, d.lognormvariate(5, 0.8))),
    "bimodal": lambda d: two_modes(d, d.random() < 0.5),
    "few giants": lambda d: giant(d, d.random() < 0.01),
    "few giants, short answers": lambda d: (giant(d, d.random() < 0.01)[0], d.lognormvariate(5, 0.7)),
    "correlated": lambda d: follows(d, d.lognormvariate(6, 1.2)),
    "cut at a limit": lambda d: (d.lognormvariate(6, 0.5), 256.0 if d.random() < 0.3 else d.uniform(1, 256)),
    "long tail": lambda d: (d.lognormvariate(6, 0.5), d.lognormvariate(4, 1.2)),
    "tokens of the prompt": lambda d: tokens(d, d.lognormvariate(6, 1)),
}


def two_modes(dice: Dice, is_long: bool) -> tuple[float, float]:
    size, answer = (8_000, 600) if is_long else (200, 30)
    return size * dice.lognormvariate(0, 0.2), answer * dice.lognormvariate(0, 0.4)


def giant(dice: Dice, is_giant: bool) -> tuple[float, float]:
    size = 500 * dice.lognormvariate(0, 0.3) * (100 if is_giant else 1)
    return size, 0.2 * size * dice.lognormvariate(0, 0.5)


def follows(dice: Dice, size: float) -> tuple[float, float]:
    return size, 0.3 * size * dice.lognormvariate(0, 0.6)


def tokens(dice: Dice, size: float) -> tuple[float, float]:
    return size, size / 4 * dice.lognormvariate(0, 0.05) + 10


def is_held(kind: str, number: int, *, tried: int, items: int = 300) -> bool:
    """Make a job, try some of its items, and say whether the range holds what the others really take."""
    dice = Dice(f"{kind} {number}")
    job = [(max(1, int(size)), value) for size, value in (KINDS[kind](dice) for _ in range(items))]
    strata = stratify(Counter(size for size, _ in job), take=tried)
    chosen = draw(((at, size) for at, (size, _) in enumerate(job)), strata, seed=number)
    parts = []
    for stratum in strata:
        mine = [at for at, (size, _) in enumerate(job) if stratum.holds(size)]
        left = [job[at][0] for at in mine if at not in chosen]
        parts.append(Part(len(left), sum(left), [job[at] for at in mine if at in chosen]))
    estimate = project(parts)
    truth = sum(value for at, (_, value) in enumerate(job) if at not in chosen)
    assert estimate is not None
    if estimate.low is None or estimate.high is None:
        return tried < 8  # so few may well have none
    return estimate.low <= truth <= estimate.high


@pytest.mark.parametrize("kind", KINDS)
def test_the_truth_lies_inside_the_range_in_at_least_85_of_100_jobs(kind: str) -> None:
    held = sum(is_held(kind, number, tried=10) for number in range(100))
    assert held >= 85, f"{kind}: {held} of 100"


@pytest.mark.parametrize("tried", [4, 25])
def test_so_it_does_when_fewer_or_more_are_tried(tried: int) -> None:
    held = Counter({kind: sum(is_held(kind, number, tried=tried) for number in range(25)) for kind in KINDS})
    assert held.total() >= 0.85 * 25 * len(KINDS), held


@pytest.mark.parametrize(
    ("freedom", "t"), [(1, 6.314), (1.5, 4.617), (2, 2.920), (4.5, 2.0735), (5, 2.015), (10, 1.812), (30, 1.697)]
)
def test_students_t_is_that_of_the_tables(freedom: float, t: float) -> None:
    assert student(freedom) == pytest.approx(t, rel=0.005)


@pytest.mark.parametrize(
    ("hits", "of", "low", "high"),
    [(0, 10, 0.0, 0.213), (1, 10, 0.023, 0.348), (10, 10, 0.787, 1.0), (5, 1000, 0.0024, 0.0102)],
)
def test_a_share_of_few_is_a_wide_range(hits: int, of: int, low: float, high: float) -> None:
    assert share_range(hits, of) == (pytest.approx(low, abs=0.001), pytest.approx(high, abs=0.001))


def test_a_share_goes_by_the_items_that_each_stratum_has_left() -> None:
    assert project_share([(50, 5, 1), (50, 5, 0)]) == share_range(1, 10)
    few_giants = project_share([(1_000, 5, 0), (10, 5, 5)])  # all giants fail, and they are one of a hundred
    assert few_giants is not None
    assert few_giants[0] < 0.01 < few_giants[1] < 0.4


def test_a_share_of_nothing_is_not_known() -> None:
    assert share_range(0, 0) is None
    assert project_share([]) is None
    assert project_share([(5, 0, 0)]) is None
