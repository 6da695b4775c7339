"""How a report writes numbers: units, places, ranges over rounds, and a mark where too few values stand behind one."""

from collections.abc import Callable

from batchrun.bench.report.content import NOTHING
from batchrun.core.measuring.figures import Spread
from batchrun.core.measuring.ladder import Range

STAR = "* fewer than five values lie beyond this percentile: it is little more than chance."


def count(value: float | None) -> str:
    """Write a count."""
    return NOTHING if value is None else f"{value:,.0f}"


def three_digits(value: float | None) -> str:
    """Write a rate, or milliseconds, to three digits."""
    if value is None:
        return NOTHING
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def share(value: float | None) -> str:
    """Write a share in per cent; only the whole is 100%."""
    if value is None:
        return NOTHING
    text = f"{value:.1%}"
    if value < 1 and text.startswith("100"):
        text = "99.9%"
    return text.replace(".0%", "%")


def seconds(value: float | None) -> str:
    """Write a span of time with its unit."""
    if value is None:
        return NOTHING
    if value < 0.9995:
        return f"{value * 1000:.0f} ms" if value >= 0.01 else f"{value * 1000:.1f} ms"
    if value < 60:
        return f"{value:.1f} s"
    minutes, rest = divmod(round(value), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} m" if hours else f"{minutes} m {rest} s"


def over_rounds(found: Range | None, write: Callable[[float | None], str] = three_digits) -> str:
    """Write a figure's median, and how far its rounds went."""
    if found is None:
        return NOTHING

    if found.rounds == 1 or found.low == found.high:
        return write(found.median)
    return f"{write(found.median)} ({write(found.low)} to {write(found.high)})"


def percentile(spread: Spread, point: int) -> str:
    """Write a percentile of a latency in milliseconds: with a star where there are too few values for it."""
    value = getattr(spread, f"p{point}")
    if value is None:
        return "failed" if spread.failed and spread.n else NOTHING
    return three_digits(value) + ("" if spread.bears(point) else "*")


def amount(value: float, unit: str) -> str:
    """Write an observed value in its unit."""
    if unit == "share":
        return share(value)
    if unit == "bytes":
        return f"{value / 2**30:.1f} GiB"
    if unit == "s":
        return seconds(value)
    return f"{count(value) if value >= 100 or value == int(value) else f'{value:.1f}'} {unit}".strip()
