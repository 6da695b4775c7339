"""Small statistics: percentiles as numpy and vLLM compute them (linear interpolation), and means."""

from collections.abc import Sequence


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
