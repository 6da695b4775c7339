"""What all the items left will take, going by the few that were tried: an expected sum, and the range that holds it.

The estimate is that of a stratified sample with an auxiliary size (Cochran, Sampling Techniques, chapters 5 to 7): the
mean, the ratio to the size, or a line of both, whichever leaves the smallest variance. The range is Student's, with
Satterthwaite's degrees of freedom, on the scale of logarithms, since such sums are positive and lie skew.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean

FEW = 8  # values, below which it cannot be told from them which estimate is the better one
WIDEST = 3.0  # of a few values: a range from a twentieth to twenty times as much says nothing
TEMPER = 2  # degrees of freedom that the spread of all strata has in the spread of one
TINY = 1e-9  # no duration, count or cost of a request is so small
_Z90 = 1.6449
_T90 = (6.314, 2.920, 2.353, 2.132, 2.015)  # Student's t, 5 % on each side, by degrees of freedom from 1


@dataclass(frozen=True, slots=True)
class Estimate:
    """A sum that is not known yet: what is expected, and the range that holds it in about 9 of 10 cases."""

    expected: float
    low: float | None  # None: so few values do not tell how far they lie apart
    high: float | None

    def times(self, factor: float) -> "Estimate":
        """Return the estimate of the sum in another unit."""
        low, high = (None if bound is None else bound * factor for bound in (self.low, self.high))
        return Estimate(self.expected * factor, low, high)


@dataclass(frozen=True, slots=True)
class Part:
    """One stratum: the items of it that are left, and (size, value) of those that were tried."""

    count: int
    size: float  # of those that are left, all together
    seen: Sequence[tuple[float, float]]


def project(parts: Sequence[Part]) -> Estimate | None:
    """Estimate the sum of the values of the items left; None where no value was seen."""
    joined = _joined([part for part in parts if part.count or part.seen])
    seen = [pair for part in joined for pair in part.seen]
    if not seen:
        return None
    sums = [_Sum.along(line, joined) for line in _lines(joined)]
    best = min(sums, key=lambda one: one.variance) if len(seen) >= FEW else max(sums, key=lambda one: one.half)
    if best.expected <= 0:
        return Estimate(0.0, 0.0, best.half) if len(seen) > 1 else Estimate(0.0, None, None)
    span = min(best.half / best.expected, 20.0)  # whose exponential is still a number
    if len(seen) == 1 or (span > WIDEST and len(seen) < FEW):
        return Estimate(best.expected, None, None)
    return Estimate(best.expected, best.expected * math.exp(-span), best.expected * math.exp(span))


def _joined(parts: Sequence[Part]) -> list[Part]:
    """Put strata with fewer than two values together with their neighbours: by themselves they have no spread."""
    joined: list[Part] = []
    for part in parts:
        if joined and (len(part.seen) < 2 or len(joined[-1].seen) < 2):
            last = joined.pop()
            part = Part(last.count + part.count, last.size + part.size, [*last.seen, *part.seen])
        joined.append(part)
    return joined


def _lines(parts: Sequence[Part]) -> Iterator[tuple[float, float]]:
    """Yield the lines (value without size, value per size) that the values may lie along, each value by its weight."""
    weighed = [
        ((part.count + len(part.seen)) / len(part.seen), size, value) for part in parts for size, value in part.seen
    ]
    weight = sum(one[0] for one in weighed)
    size = sum(one[0] * one[1] for one in weighed) / weight
    value = sum(one[0] * one[2] for one in weighed) / weight
    yield value, 0.0
    if size > 0:
        yield 0.0, value / size
    spread = sum(w * (x - size) ** 2 for w, x, _ in weighed)
    slope = sum(w * (x - size) * (y - value) for w, x, y in weighed) / spread if spread > 0 else 0.0
    if slope > 0 and len(weighed) >= FEW:
        yield value - slope * size, slope


@dataclass(frozen=True, slots=True)
class _Spread:
    """How far the values of a stratum lie from a line, and from each other."""

    middle: float
    square: float  # their variance
    freedom: int
    scale: float  # how large the values are

    @classmethod
    def of(cls, apart: Sequence[float], part: Part) -> "_Spread":
        middle, freedom = fmean(apart), len(apart) - 1
        square = sum((one - middle) ** 2 for one in apart) / freedom if freedom else 0.0
        return cls(middle, square, freedom, fmean(value for _, value in part.seen))

    @property
    def relative(self) -> float:
        return self.square / self.scale**2 if self.scale > TINY else 0.0

    def tempered(self, usual: float) -> float:
        """Return the variance, drawn towards what is usual in all strata, for their size: two values tell little."""
        return (self.freedom * self.square + TEMPER * usual * self.scale**2) / (self.freedom + TEMPER)


@dataclass(frozen=True, slots=True)
class _Sum:
    """The estimate along one line."""

    expected: float
    variance: float
    freedom: float

    @property
    def half(self) -> float:
        return student(self.freedom) * math.sqrt(self.variance)

    @classmethod
    def along(cls, line: tuple[float, float], parts: Sequence[Part]) -> "_Sum":
        """Add up what the line says of the items left, and the mean distance from it in each stratum."""
        expected = variance = fourth = 0.0
        spreads = [_Spread.of([value - line[0] - line[1] * size for size, value in part.seen], part) for part in parts]
        freedom = sum(spread.freedom for spread in spreads)
        usual = sum(spread.freedom * spread.relative for spread in spreads) / freedom if freedom else 0.0
        for part, spread in zip(parts, spreads, strict=True):
            tried = len(part.seen)
            expected += line[0] * part.count + line[1] * part.size + spread.middle * part.count
            # Of the stratum's mean, and of the items left themselves.
            own = spread.tempered(usual) * (part.count**2 / tried + part.count)
            variance += own
            fourth += own * own / max(1, spread.freedom)
        seen = sum(len(part.seen) for part in parts)
        # The line was chosen by the values that are held against it.
        return cls(expected, variance * seen / max(1, seen - 2), variance * variance / fourth if fourth else 1.0)


def student(freedom: float) -> float:
    """Return Student's t for 90 % (Abramowitz and Stegun, 26.7.5); between whole degrees below five, in a line."""
    if freedom < len(_T90):
        at = max(1, int(freedom))
        return _T90[at - 1] + (_T90[at] - _T90[at - 1]) * max(0.0, freedom - at)
    z = _Z90
    return z + (z**3 + z) / (4 * freedom) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * freedom**2)


def share_range(hits: float, of: float) -> tuple[float, float] | None:
    """Return the range (0..1) in which a share lies in about 9 of 10 cases (Wilson's interval); None of nothing."""
    if of <= 0:
        return None
    share, z2 = hits / of, _Z90 * _Z90
    middle = (share + z2 / (2 * of)) / (1 + z2 / of)
    half = _Z90 / (1 + z2 / of) * math.sqrt(share * (1 - share) / of + z2 / (4 * of * of))
    return max(0.0, middle - half) if hits else 0.0, min(1.0, middle + half) if hits < of else 1.0


def project_share(parts: Sequence[tuple[int, int, int]]) -> tuple[float, float] | None:
    """Return the range of the share of the items left that will be hits; None where nothing was tried.

    Args:
        parts: items left, items tried, and hits among the tried, of each stratum. Strata that were tried more closely
            count less, and the few that stand for many make the whole count as fewer (Kish's effective size).
    """
    tried = [part for part in parts if part[1]]
    weights = [(left / of if left else 0.0, of, hits) for left, of, hits in tried]
    whole = sum(weight * of for weight, of, _ in weights)
    if whole <= 0:
        return None
    effective = whole**2 / sum(weight**2 * of for weight, of, _ in weights)
    return share_range(effective * sum(weight * hits for weight, _, hits in weights) / whole, effective)
