"""Runs beside each other: the range over rounds, whether two differ clearly, and the knee of a ladder of loads."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median

FEWEST_ROUNDS = 3  # with fewer on either side no difference is called clear
NEARLY_BEST = 0.9  # of the best throughput of a ladder: a load that reaches it has reached the knee
RELIABLE = 0.99  # below this share of answers a load is out of the question


@dataclass(frozen=True, slots=True)
class Range:
    """One figure over the rounds of one load."""

    rounds: int
    low: float
    median: float
    high: float

    @classmethod
    def of(cls, values: Iterable[float | None]) -> "Range | None":
        """Make it of one value a round; None where a round has none, since then nothing is known of the range."""
        found = list(values)
        known = [value for value in found if value is not None]
        if not known or len(known) < len(found):
            return None
        return cls(len(known), min(known), median(known), max(known))


@dataclass(frozen=True, slots=True)
class Difference:
    """How a figure of B stands to the same figure of A."""

    change: float | None  # of the medians: 0.1 is 10 % more than A; None where A's is 0
    is_clear: bool  # three rounds or more on each side, and the ranges do not overlap

    def __str__(self) -> str:
        if not self.is_clear:
            return "no clear difference"
        return "clear" if self.change is None else f"{self.change:+.1%}"


def difference(a: Range, b: Range) -> Difference:
    """Compare two ranges. Of equal servers, three rounds each, one comparison in ten shows ranges apart by chance."""
    change = None if a.median == 0 else b.median / a.median - 1
    is_apart = b.low > a.high or b.high < a.low
    return Difference(change, is_apart and min(a.rounds, b.rounds) >= FEWEST_ROUNDS)


@dataclass(frozen=True, slots=True)
class Step:
    """One load of a ladder: medians over its rounds."""

    level: float  # concurrency, or arrivals a second
    throughput: float | None  # output tokens a second, or requests where nothing tells tokens
    success_rate: float | None  # the worst round's


@dataclass(frozen=True, slots=True)
class Knee:
    """The least load that brings nearly all the throughput there is."""

    level: float
    share: float  # of the ladder's best throughput
    is_last: bool  # the ladder ends here: more may bring more


def knee_of(steps: Sequence[Step]) -> Knee | None:
    """Find the knee of a ladder; None where fewer than two loads are reliable."""
    usable = sorted(
        (step.level, step.throughput)
        for step in steps
        if step.throughput and step.success_rate is not None and step.success_rate >= RELIABLE
    )
    if len(usable) < 2:
        return None
    best = max(throughput for _, throughput in usable)
    level, throughput = next(pair for pair in usable if pair[1] >= NEARLY_BEST * best)
    return Knee(level, throughput / best, level == max(step.level for step in steps))
