"""How many at once: what can be written, and what it means."""

import pytest

from batchrun.core.concurrency import AUTO, Concurrency


@pytest.mark.parametrize(
    ("written", "low", "high", "first"),
    [(8, 8, 8, 8), (10_000, 10_000, 10_000, 10_000), ("4-64", 4, 64, 8), ("32-64", 32, 64, 32), ("1-4", 1, 4, 4)],
)
def test_what_is_written_is_read_and_written_again(written: int | str, low: int, high: int, first: int) -> None:
    allowed = Concurrency.of(written)
    assert (allowed.low, allowed.high, allowed.first, allowed.written) == (low, high, first, written)
    assert allowed.is_fixed == isinstance(written, int)


def test_auto_is_a_range_that_most_machines_can_hold_open() -> None:
    assert Concurrency.of("auto") == AUTO
    assert (AUTO.written, str(AUTO), AUTO.first) == ("auto", "auto", 8)


@pytest.mark.parametrize(
    "wrong", [0, -1, 10_001, 2.0, True, None, "8", "", "Auto", "4-", "-4", "4-4", "64-4", "0-8", "1-10001", "4 - 8", []]
)
def test_what_makes_no_sense_is_refused(wrong: object) -> None:
    with pytest.raises(ValueError, match="must be an integer from 1 to 10,000"):
        Concurrency.of(wrong)
