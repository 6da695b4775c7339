"""The words of a comparison."""

import pytest

from batchrun.bench.report.compared import change_words
from batchrun.core.measuring.comparison import FigurePair
from batchrun.core.measuring.ladder import Range


def once(value: float) -> Range:
    return Range(1, value, value, value)


@pytest.mark.parametrize(
    ("a", "b", "words"),
    [
        (once(0.0), once(0.0), "same"),  # no failure on either side is nothing new
        (once(2.0), once(2.0), "same"),
        (once(0.0), once(0.1), "new"),
        (once(2.0), once(3.0), "+50.0%"),
        (once(2.0), None, "one side has none"),
    ],
)
def test_a_change_is_said_as_it_is(a: Range, b: Range | None, words: str) -> None:
    assert change_words(FigurePair(8, 64, "failed_share", a, b)) == words
