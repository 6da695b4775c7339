"""The times of a streamed answer, packed and read again."""

import random

import pytest

from batchrun.core.measuring.trace import Trace


def test_a_trace_comes_back_within_a_microsecond_and_rounding_does_not_add_up() -> None:
    dice = random.Random(5)
    trace = Trace(86_400.123456, 0.05, 0.0600004, tuple(dice.uniform(0, 0.02) for _ in range(2_000)))
    again = Trace.unpack(trace.pack())
    assert again.sent_s == trace.sent_s
    assert again.first_token_s == pytest.approx(trace.first_token_s, abs=1e-6)
    assert again.gaps_s == pytest.approx(trace.gaps_s, abs=1.1e-6)
    assert again.last_token_s == pytest.approx(trace.last_token_s, abs=2e-6)
    assert len(trace.pack()) == 20 + 4 * 2_000


def test_an_answer_of_nothing_has_a_first_chunk_and_no_token() -> None:
    again = Trace.unpack(Trace(1.0, 0.5, None).pack())
    assert (again.first_chunk_s, again.first_token_s, again.last_token_s, again.gaps_s) == (0.5, None, None, ())


def test_what_takes_too_long_for_its_field_is_kept_as_the_longest_there_is() -> None:
    assert Trace.unpack(Trace(0.0, 1e6, 1e6, (1e6,)).pack()).first_token_s == pytest.approx(2147.483647)


@pytest.mark.parametrize("blob", [b"", b"x" * 19, Trace(0.0, 1.0, 1.0, (1.0,)).pack()[:-1]])
def test_other_bytes_are_no_trace(blob: bytes) -> None:
    with pytest.raises(ValueError, match="no trace"):
        Trace.unpack(blob)
