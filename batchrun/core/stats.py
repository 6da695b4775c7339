"""Small statistics: percentiles as numpy and vLLM compute them (linear interpolation), and projections."""

import math
from collections.abc import Sequence
from dataclasses import dataclass


def percentile(values: Sequence[float], p: float) -> float | None:
    """Return the p-th percentile (0..100) of `values` by linear interpolation; None of nothing."""
    if not values:
        return None
    ordered = sorted(values)
    rank = (len(ordered) - 1) * p / 100
    low = int(rank)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (rank - low)


def mean(values: Sequence[float]) -> float | None:
    """Return the mean of `values`; None of nothing."""
    return sum(values) / len(values) if values else None


# Student's t for 95 %, by degrees of freedom from 1; further on it is nearly the last one.
_T95 = (12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26, 2.23, 2.20, 2.18, 2.16, 2.14, 2.13, 2.12, 2.11, 2.10)
_T95_LARGE, _Z95 = 2.0, 1.96


@dataclass(frozen=True, slots=True)
class Estimate:
    """A sum that is not known yet: what is expected, and the range that holds it in about 19 of 20 cases."""

    expected: float
    low: float | None  # None: one value says nothing about how far values lie apart
    high: float | None

    def times(self, factor: float) -> "Estimate":
        """Return the estimate of the sum in another unit."""
        low, high = (None if bound is None else bound * factor for bound in (self.low, self.high))
        return Estimate(self.expected * factor, low, high)

    def plus(self, other: "Estimate") -> "Estimate":
        """Return the estimate of both sums together; its range is as wide as both, which is wide enough."""
        low = None if self.low is None or other.low is None else self.low + other.low
        high = None if self.high is None or other.high is None else self.high + other.high
        return Estimate(self.expected + other.expected, low, high)


def project(values: Sequence[float], count: int) -> Estimate | None:
    """Estimate the sum of `count` further values like these; None of nothing.

    The range is Student's prediction interval, which takes the values for roughly normal; the bound below is never
    under `count` times the smallest value seen, as no sum of durations or tokens is negative.
    """
    if not values:
        return None
    average = sum(values) / len(values)
    return _around(average * count, [value - average for value in values], count, least=min(values) * count)


def project_by_size(
    values: Sequence[float], sizes: Sequence[float], *, count: int, total_size: float
) -> Estimate | None:
    """Estimate the sum of `count` further values, whose sizes together are known; None of nothing.

    Values that grow with the size (tokens with the bytes of a prompt) are told far better by it than by their mean.
    Where the values seen do not follow the sizes, the estimate is that of `project`.
    """
    by_mean = project(values, count)
    if by_mean is None or not sum(sizes) or not count:
        return by_mean
    ratio = sum(values) / sum(sizes)
    errors = [value - ratio * size for value, size in zip(values, sizes, strict=True)]
    average = sum(values) / len(values)
    if sum(error * error for error in errors) >= sum((value - average) ** 2 for value in values):
        return by_mean
    return _around(ratio * total_size, errors, count, least=0.0)


def _around(expected: float, errors: Sequence[float], count: int, *, least: float) -> Estimate:
    seen = len(errors)
    if seen == 1:
        return Estimate(expected, None, None)
    spread = math.sqrt(sum(error * error for error in errors) / (seen - 1))
    t = _T95[seen - 2] if seen - 2 < len(_T95) else _T95_LARGE
    half = t * spread * math.sqrt(count + count * count / seen)
    return Estimate(expected, max(expected - half, least), expected + half)


def share_range(hits: int, of: int) -> tuple[float, float] | None:
    """Return the range (0..1) in which a share lies in about 19 of 20 cases (Wilson's interval); None of nothing."""
    if of == 0:
        return None
    share, z2 = hits / of, _Z95 * _Z95
    middle = (share + z2 / (2 * of)) / (1 + z2 / of)
    half = _Z95 / (1 + z2 / of) * math.sqrt(share * (1 - share) / of + z2 / (4 * of * of))
    return max(0.0, middle - half) if hits else 0.0, min(1.0, middle + half) if hits < of else 1.0
