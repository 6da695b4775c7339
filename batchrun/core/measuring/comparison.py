"""Two measurements side by side: which loads face each other, how each figure differs, and may they be compared at all.

Two results are of the same thing only where the same was asked of both: workload, seed, output limit and parameters.
The endpoint may differ, and so may the model's name where two servers give one model two names, if the user says so.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from batchrun.core.measuring.document import Group, Load, Setup, figure_names
from batchrun.core.measuring.ladder import Difference, Range, difference

# A word on what is better, for the figures that have a better side.
MORE_IS_BETTER = frozenset(
    {"request_throughput", "output_throughput", "total_token_throughput", "success_rate", "goodput", "attainment"}
)
TOLD = (
    "request_throughput",
    "output_throughput",
    "total_token_throughput",
    "success_rate",
    "goodput",
    "attainment",
    *(f"{point}_{latency}" for latency in ("ttft", "tpot", "itl", "e2el") for point in ("p50", "p95", "p99")),
)


@dataclass(frozen=True, slots=True)
class Side:
    """What is compared: a group of a measurement, with all its loads."""

    name: str  # as the reader is to know it
    group: Group
    setup: Setup
    loads: tuple[Load, ...]


@dataclass(frozen=True, slots=True)
class FigurePair:
    """One figure of two loads that face each other."""

    level: float
    max_tokens: int | None
    figure: str
    a: Range | None
    b: Range | None

    @property
    def difference(self) -> Difference | None:
        """How B stands to A; None where one of them has no such figure."""
        return None if self.a is None or self.b is None else difference(self.a, self.b)

    @property
    def is_better(self) -> bool | None:
        """True where B is clearly better, False where clearly worse; None where nothing is clear."""
        found = self.difference
        if found is None or not found.is_clear or self.a is None or self.b is None:
            return None
        return (self.b.median > self.a.median) is (self.figure in MORE_IS_BETTER)


def differences_of(a: Side, b: Side) -> list[str]:
    """Say in what two sides were not asked the same; nothing: they may be compared."""
    pairs: list[tuple[str, Any, Any]] = [
        ("model", a.group.model, b.group.model),
        ("endpoint", a.group.endpoint, b.group.endpoint),
        *_parameters(a.group.params, b.group.params),
    ]
    if a.setup is not b.setup:
        ours, theirs = a.setup.workload, b.setup.workload
        pairs += [
            (name, getattr(ours, name), getattr(theirs, name))
            for name in ("name", "requests", "max_tokens", "seed", "is_varied", "shared_prefix_tokens")
        ]
        pairs += [("arrivals", a.setup.arrivals.kind, b.setup.arrivals.kind)]
    return [f"{name}: {ours!r} and {theirs!r}" for name, ours, theirs in pairs if ours != theirs]


def _parameters(a: Mapping[str, Any], b: Mapping[str, Any]) -> Iterable[tuple[str, Any, Any]]:
    return ((f"parameter {name}", a.get(name), b.get(name)) for name in sorted({*a, *b}))


def pair_up(a: Side, b: Side, *, figures: Sequence[str] = TOLD) -> list[FigurePair]:
    """Put the loads that both sides have beside each other; of a side with one load alone, that one."""
    theirs = {(load.level, load.max_tokens): load for load in b.loads}
    facing = [
        (load, theirs[load.level, load.max_tokens]) for load in a.loads if (load.level, load.max_tokens) in theirs
    ]
    if not facing and len(a.loads) == len(b.loads) == 1:
        facing = [(a.loads[0], b.loads[0])]
    return [
        FigurePair(load.level, load.max_tokens, name, load.figures.get(name), other.figures.get(name))
        for load, other in facing
        for name in figures
        if name in load.figures or name in other.figures
    ]


# -- limits -----------------------------------------------------------------------------------------------------------


ROUNDING = 1e-9  # of a quotient: exactly +10% is not more than +10%
_LIMIT = re.compile(r"\s*(\w+)\s*([<>])\s*([+-]?\d+(?:\.\d+)?)\s*%\s*")


@dataclass(frozen=True, slots=True)
class Limit:
    """By how much a figure of B may differ from A's: "p95_e2el>+10%" is broken where it is more than 10 % above."""

    text: str
    figure: str
    is_above: bool
    change: float

    @classmethod
    def parse(cls, text: str, *, also: Sequence[str] = ()) -> "Limit":
        """Read one limit; `also` names figures beyond those of a measurement.

        Raises:
            ValueError: in words for the user.
        """
        found = _LIMIT.fullmatch(text)
        if found is None:
            raise ValueError(f"{text!r} is no limit: write FIGURE>+N% or FIGURE<-N%, as in p95_e2el>+10%")
        known = (*figure_names(), *also)
        if found[1] not in known:
            raise ValueError(f"{text!r} names no figure: it may be one of {', '.join(known)}")
        return cls(text, found[1], found[2] == ">", float(found[3]) / 100)

    def is_broken(self, a: float, b: float) -> bool:
        """Say whether B's value breaks the limit, against A's. Against nothing, any more is more than any share."""
        change = (b / a - 1) if a else (0.0 if b == a else float("inf") if b > a else float("-inf"))
        return change > self.change + ROUNDING if self.is_above else change < self.change - ROUNDING


@dataclass(frozen=True, slots=True)
class Break:
    """A limit that is broken, or that could not be judged."""

    limit: Limit
    words: str


def broken_limits(limits: Sequence[Limit], pairs: Sequence[FigurePair]) -> list[Break]:
    """Return the limits that some load breaks, by the medians of its rounds. What cannot be judged counts as broken."""
    found = []
    for limit in limits:
        faced = [pair for pair in pairs if pair.figure == limit.figure]
        known = [(pair, pair.a, pair.b) for pair in faced if pair.a is not None and pair.b is not None]
        if not known or len(known) < len(faced):
            found.append(Break(limit, f"{limit.text}: not judged, since one side has no {limit.figure}"))
        found += [
            Break(limit, f"{limit.text}: {a.median:.4g} -> {b.median:.4g} at {pair.level:g}{_clearness(pair)}")
            for pair, a, b in known
            if limit.is_broken(a.median, b.median)
        ]
    return found


def _clearness(pair: FigurePair) -> str:
    found = pair.difference
    return "" if found is None or found.is_clear else " (the ranges over the rounds do not make it clear)"
