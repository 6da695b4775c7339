"""Scales of a chart's axes: from values to places, round numbers for the ticks, and how numbers are written there."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import ceil, floor, isfinite, log10

WIDE = 30  # values further apart than this, as a ratio, stand on a logarithmic axis


@dataclass(frozen=True, slots=True)
class Scale:
    """An axis from `low` to `high`, laid over `size` units beginning at `start`."""

    low: float
    high: float
    start: float
    size: float
    is_log: bool
    ticks: tuple[float, ...]

    def place(self, value: float) -> float:
        """Return where a value stands; values beyond an end stand at the end."""
        value = min(max(value, self.low), self.high)
        if self.is_log:
            share = (log10(value) - log10(self.low)) / (log10(self.high) - log10(self.low))
        else:
            share = (value - self.low) / (self.high - self.low)
        return self.start + share * self.size


def linear(values: Iterable[float], *, start: float, size: float, count: int = 5, most: float | None = None) -> Scale:
    """Make a scale from 0 over all values, with about `count` round steps; `most` fixes its end."""
    high = most if most is not None else max((value for value in values if isfinite(value)), default=0.0)
    step = _round_step((high if high > 0 else 1.0) / count)
    steps = max(1, ceil((high if high > 0 else 1.0) / step - 1e-9))
    ticks = tuple(round(step * number, 12) for number in range(steps + 1))
    return Scale(0.0, ticks[-1], start, size, False, ticks)


def logarithmic(values: Iterable[float], *, start: float, size: float) -> Scale:
    """Make a logarithmic scale over the positive values, with ticks at 1, 2 and 5, or the powers of ten alone."""
    known = [value for value in values if value > 0 and isfinite(value)] or [1.0]
    low, high = min(known), max(known)
    ticks = [
        lead * 10.0**power
        for power in range(floor(log10(low)) - 1, ceil(log10(high)) + 2)
        for lead in ((1, 2, 5) if high / low < 1_000 else (1,))
    ]
    first = max((tick for tick in ticks if tick <= low * (1 + 1e-9)), default=ticks[0])
    last = min((tick for tick in ticks if tick >= high * (1 - 1e-9) and tick > first), default=ticks[-1])
    return Scale(first, last, start, size, True, tuple(tick for tick in ticks if first <= tick <= last))


def stepped(levels: Sequence[float], *, start: float, size: float) -> Scale:
    """Make a scale for the steps of a ladder: ticks at the steps, logarithmic where they grow by multiples."""
    steps = sorted(set(levels)) or [1.0]
    if len(steps) == 1:
        return Scale(steps[0] - 1, steps[0] + 1, start, size, False, tuple(steps))
    is_log = steps[0] > 0 and steps[-1] / steps[0] >= 6
    margin = 0.0 if is_log else (steps[-1] - steps[0]) * 0.04
    return Scale(steps[0] - margin, steps[-1] + margin, start, size, is_log, tuple(steps))


def fitting(values: Sequence[float], *, start: float, size: float) -> Scale:
    """Make a scale for values that may lie near each other or far apart."""
    known = sorted(value for value in values if value > 0)
    if known and known[-1] / known[0] > WIDE:
        return logarithmic(known, start=start, size=size)
    return linear(values, start=start, size=size)


def _round_step(least: float) -> float:
    """Return the least of 1, 2, 2.5, 5 times a power of ten that is no smaller."""
    power = 10.0 ** floor(log10(least))
    return next(lead * power for lead in (1, 2, 2.5, 5, 10) if lead * power >= least * (1 - 1e-9))


def number(value: float) -> str:
    """Write a number on an axis: short, and exact enough to be told from its neighbour."""
    size = abs(value)
    for limit, sign in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if size >= limit:
            scale = 1e3 if sign == "k" else limit
            return f"{value / scale:.4g}{sign}"
    return f"{value:.4g}" if size < 1_000 else f"{value:,.0f}"
