"""Ranges over rounds, clear differences, knees."""

import pytest

from batchrun.core.measuring.ladder import Difference, Knee, Range, Step, difference, knee_of


def ranged(*values: float) -> Range:
    found = Range.of(values)
    assert found is not None
    return found


def test_a_range_has_its_ends_and_its_middle() -> None:
    assert ranged(3, 1, 2) == Range(3, 1, 2, 3)


def test_a_round_without_the_figure_leaves_no_range() -> None:
    assert Range.of([1.0, None, 2.0]) is None
    assert Range.of([]) is None


@pytest.mark.parametrize(
    ("a", "b", "said"),
    [
        ((10, 11, 12), (13, 14, 15), Difference(14 / 11 - 1, is_clear=True)),
        ((10, 11, 12), (12, 14, 15), Difference(14 / 11 - 1, is_clear=False)),
        ((10, 11), (13, 14), Difference(13.5 / 10.5 - 1, is_clear=False)),
        ((0, 0, 0), (1, 1, 1), Difference(None, is_clear=True)),
    ],
)
def test_only_ranges_apart_over_three_rounds_differ_clearly(
    a: tuple[float, ...], b: tuple[float, ...], said: Difference
) -> None:
    assert difference(ranged(*a), ranged(*b)) == said


def test_a_difference_says_so_in_words() -> None:
    assert str(difference(ranged(10, 11, 12), ranged(12, 14, 15))) == "no clear difference"
    assert str(difference(ranged(10, 10, 10), ranged(15, 15, 15))) == "+50.0%"


def test_the_knee_is_the_least_load_that_brings_nearly_all() -> None:
    steps = [Step(c, t, 1.0) for c, t in ((1, 100.0), (4, 390.0), (8, 700.0), (16, 760.0), (32, 770.0))]
    assert knee_of(steps) == Knee(8, 700 / 770, is_last=False)


def test_a_ladder_that_still_climbs_has_its_knee_at_the_end() -> None:
    assert knee_of([Step(1, 10, 1.0), Step(2, 20, 1.0)]) == Knee(2, 1.0, is_last=True)


def test_a_load_with_failures_is_no_knee_and_no_best() -> None:
    steps = [Step(1, 10, 1.0), Step(2, 19, 1.0), Step(4, 40, 0.9)]
    assert knee_of(steps) == Knee(2, 1.0, is_last=False)
    assert knee_of(steps[1:]) is None
