"""A job's concurrency is divided evenly, and nothing of it is left while somebody wants it."""

from hypothesis import given
from hypothesis import strategies as st

from batchrun.core.shares import shares

WANTS = st.dictionaries(st.integers(1, 99), st.integers(0, 40), max_size=12)


def test_equal_wants_get_equal_shares_and_the_first_ones_the_rest() -> None:
    assert shares(8, {1: 64, 2: 64, 3: 64}) == {1: 3, 2: 3, 3: 2}
    assert shares(2, {1: 64, 2: 64, 3: 64}) == {1: 1, 2: 1, 3: 0}
    assert shares(6, {}) == {}


def test_what_one_does_not_want_is_the_others() -> None:
    assert shares(10, {1: 1, 2: 64, 3: 64}) == {1: 1, 2: 5, 3: 4}


@given(total=st.integers(0, 100), wants=WANTS)
def test_shares_use_all_there_is_and_nobody_envies(total: int, wants: dict[int, int]) -> None:
    given_out = shares(total, wants)
    assert sum(given_out.values()) == min(total, sum(wants.values()))
    assert all(0 <= given_out[worker] <= want for worker, want in wants.items())
    for worker, slots in given_out.items():
        if slots < wants[worker]:
            assert all(other <= slots + 1 for other in given_out.values())
