"""Which items are tried: short and long ones in their right shares, at random, the same ones for the same seed."""

import math
import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchrun.core.strata import Stratum, draw, length_class, stratify, whole

LENGTHS = st.lists(st.integers(0, 10**8) | st.integers(0, 300), min_size=1, max_size=200)


@given(LENGTHS, st.integers(1, 60), st.integers(0, 9))
def test_a_sample_has_its_size_and_can_be_repeated(lengths: list[int], size: int, seed: int) -> None:
    strata = stratify(Counter(lengths), take=size)
    items = list(enumerate(lengths, start=100))
    chosen = draw(items, strata, seed=seed)
    assert len(chosen) == sum(stratum.taken for stratum in strata) == min(size, len(lengths))
    assert chosen <= {item_id for item_id, _ in items}
    assert chosen == draw(items, strata, seed=seed)


@given(LENGTHS, st.integers(1, 60))
def test_every_item_lies_in_one_stratum_and_two_of_each_are_tried(lengths: list[int], size: int) -> None:
    strata = stratify(Counter(lengths), take=size)
    for length in lengths:
        assert sum(stratum.holds(length) for stratum in strata) == 1
    assert [stratum.count for stratum in strata] == [sum(map(stratum.holds, lengths)) for stratum in strata]
    assert all(stratum.taken <= stratum.count for stratum in strata)
    if size >= 2 * len(strata):
        assert all(stratum.taken >= min(2, stratum.count) for stratum in strata)


@given(st.integers(1, 10**9))
def test_lengths_of_one_class_differ_by_less_than_a_tenth(length: int) -> None:
    assert length_class(length) <= length_class(length + 1)
    assert length_class(math.ceil(length * 1.1)) > length_class(length)


def test_a_few_giants_that_hold_half_of_the_bytes_are_tried_too() -> None:
    strata = stratify({400: 10_000, 40_000: 100}, take=10)
    assert [(stratum.count, stratum.taken) for stratum in strata] == [(10_000, 7), (100, 3)]
    giants = stratify({400: 200, 440: 99, 40_000: 1}, take=10)
    assert (giants[-1].count, giants[-1].taken) == (1, 1), "a single giant does not hide among its neighbours"


def test_lengths_that_are_all_alike_are_one_stratum() -> None:
    assert stratify({123: 50}, take=10) == [Stratum(length_class(123), length_class(123), 50, 10)]
    assert stratify({0: 3}, take=10)[0].taken == 3


def test_without_strata_all_lengths_are_one() -> None:
    (only,) = whole({1: 5, 10_000: 2}, take=4)
    assert (only.count, only.taken) == (7, 4)
    assert only.holds(0)
    assert only.holds(10_000)
    assert whole({}, take=4) == [Stratum(0, 0, 0, 0)]


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_each_item_of_a_stratum_is_as_likely_as_the_next(seed: int) -> None:
    """Of 2,000 draws of 5 out of 50, each item is in about 200: six standard deviations are 80."""
    dice = random.Random(seed)
    strata = stratify({500: 50}, take=5)
    hits = Counter(
        item_id
        for _ in range(2_000)
        for item_id in draw(((n, 500) for n in range(50)), strata, seed=dice.getrandbits(40))
    )
    assert len(hits) == 50
    assert all(120 < count < 280 for count in hits.values()), (seed, hits)
