"""Keys that came more than once are found, and a set of them behaves like one."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from batchrun.files.digests import Keys, Tally

KEYS = st.lists(st.binary(min_size=8, max_size=8) | st.sampled_from([b"\0" * 8, b"\xff" * 8, b"12345678"]))


@given(keys=KEYS)
def test_a_tally_knows_which_keys_came_how_often(keys: list[bytes]) -> None:
    tally = Tally()
    for key in keys:
        tally.add(key)
    counts = Counter(keys)
    assert len(tally) == len(keys)
    assert dict(tally.counts()) == counts
    assert tally.repeated() == {key for key, count in counts.items() if count > 1}


@given(keys=KEYS)
def test_keys_are_a_set_in_order(keys: list[bytes]) -> None:
    found = Keys(keys)
    assert found == frozenset(keys)
    assert list(found) == sorted(set(keys))
    assert [found.index(key) for key in found] == list(range(len(found)))
    assert b"absent!!" not in found
    assert "a string" not in found
    assert found & Keys(keys[:1]) == set(keys[:1])
