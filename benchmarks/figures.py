"""Figures: what was measured, of which goal it is, and how it is shown."""

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True)
class Sample:
    """One run of one contender."""

    rate: float  # items a second, by the endpoint's own clock
    cpu_ms: float  # an item, of the process that sends; its start not included
    rss_mb: float


@dataclass(frozen=True)
class Figure:
    """One line of the table. `least` and `most` are the goal; None: it is told for comparison."""

    part: str
    work: str
    values: Sequence[float]  # one of each run
    unit: str
    least: float | None = None
    most: float | None = None
    cpu_ms: float | None = None
    rss_mb: float | None = None
    note: str = ""

    @property
    def value(self) -> float:
        """The median of the runs."""
        return statistics.median(self.values)

    @property
    def is_met(self) -> bool | None:
        if self.least is None and self.most is None:
            return None
        return (self.least is None or self.value >= self.least) and (self.most is None or self.value <= self.most)

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "values": list(self.values), "value": self.value, "is_met": self.is_met}

    def row(self) -> str:
        """Write the figure as a row of a Markdown table."""
        goal = "" if self.is_met is None else f"{'≥' if self.most is None else '≤'} {number(self.least or self.most)}"
        verdict = {True: "met", False: "**missed**", None: ""}[self.is_met]
        runs = f" ({number(min(self.values))}-{number(max(self.values))})" if len(self.values) > 1 else ""
        cpu = "" if self.cpu_ms is None else f"{self.cpu_ms:.2f}"
        rss = "" if self.rss_mb is None else f"{self.rss_mb:.0f}"
        work = f"{self.work}; {self.note}" if self.note else self.work
        return f"| {work} | {number(self.value)}{runs} {self.unit} | {goal} | {verdict} | {cpu} | {rss} |"


HEAD = "| work | found | goal | | CPU ms an item | peak RSS MB |\n|---|---|---|---|---|---|"


def number(value: float | None) -> str:
    """Write a number with three digits, or all of a large one's."""
    if value is None:
        return ""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


@dataclass
class Board:
    """Where figures are put as they are found."""

    figures: list[Figure] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)

    def put(self, figure: Figure) -> None:
        self.figures.append(figure)
        print(figure.row(), flush=True)

    def skip(self, what: str) -> None:
        """Note that something could not be measured, and why."""
        self.skipped.append(what)
        print(f"skipped: {what}", flush=True)


def in_turn(runs: int, contenders: Mapping[str, Callable[[], Sample]]) -> dict[str, list[Sample]]:
    """Run each contender, and all of them again: what disturbs one run disturbs the others."""
    samples: dict[str, list[Sample]] = {name: [] for name in contenders}
    for _ in range(runs):
        for name, run in contenders.items():
            samples[name].append(run())
    return samples


def rates(samples: Sequence[Sample], *, over: float = 1.0) -> list[float]:
    return [sample.rate / over for sample in samples]


def cpu_ms(samples: Sequence[Sample]) -> float:
    return statistics.median(sample.cpu_ms for sample in samples)


def rss_mb(samples: Sequence[Sample]) -> float:
    return max(sample.rss_mb for sample in samples)
