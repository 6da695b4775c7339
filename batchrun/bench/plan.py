"""What is to be measured: groups, loads, rounds, and the order of the runs."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from batchrun.bench.arrivals import MOST_IN_FLIGHT, Pattern
from batchrun.bench.workload import RequestSet
from batchrun.core.measuring.targets import Targets

LADDER = (1.0, 4.0, 8.0, 16.0, 32.0)
ROUNDS = 3
PAUSE_S = 2.0
REQUESTS = 50
WARM_UP = 4


class Step(NamedTuple):
    """One run."""

    group: str
    level: float
    max_tokens: int | None
    round_no: int

    @property
    def name(self) -> str:
        """Return what its job is called, after the measurement's own name."""
        level = f"{self.level:g}".replace(".", "p")
        limit = "" if self.max_tokens is None else f"-m{self.max_tokens}"
        return f"{self.group}-l{level}{limit}-r{self.round_no}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """One group: an endpoint and a model."""

    name: str
    base_url: str
    model: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A whole measurement before it begins."""

    id: str
    folder: Path  # where the jobs' inputs and answers lie
    candidates: tuple[Candidate, ...]
    requests: RequestSet
    seed: int
    pattern: Pattern = field(default_factory=Pattern)
    levels: tuple[float, ...] = LADDER
    max_tokens: tuple[int, ...] = ()  # a ladder of limits in the place of the set's own
    rounds: int = ROUNDS
    warm_up: int = WARM_UP
    pause_s: float = PAUSE_S
    shared_prefix_tokens: int = 0
    most_in_flight: int = MOST_IN_FLIGHT
    endpoint: str = "/v1/chat/completions"
    params: dict[str, Any] = field(default_factory=dict)
    targets: Targets = field(default_factory=Targets)
    timeout_s: float = 600.0
    api_key_env: str | None = None

    def steps(self) -> Iterator[Step]:
        """Yield the runs in their order: load by load, the groups alternating so that a drift favours neither."""
        for max_tokens in self.max_tokens or (None,):
            for level in self.levels:
                for group, round_no in order([one.name for one in self.candidates], self.rounds):
                    yield Step(group, level, max_tokens, round_no)

    def concurrency(self, level: float) -> int:
        """Return how many requests may be out at once under a load."""
        return int(level) if self.pattern.is_closed else self.most_in_flight


def order(groups: Sequence[str], rounds: int) -> Iterator[tuple[str, int]]:
    """Yield groups and round numbers: A B B A A B for two groups and three rounds."""
    for round_no in range(1, rounds + 1):
        for group in groups if round_no % 2 else reversed(groups):
            yield group, round_no
