"""How far a job is, for those who watch: one value, made from the ledger's counts and this process's own."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from batchrun.core.states import ItemState, is_final


@dataclass(frozen=True, slots=True)
class Progress:
    """One moment of a job. Rates are per second over the last ten seconds, None where nothing was measured."""

    task_id: str
    phase: str  # validating, trial, running, waiting, draining, finalizing, following
    counts: Mapping[ItemState, int]
    scope_total: int  # the items this phase is about
    scope_done: int
    in_flight: int
    concurrency: int
    items_per_s: float | None = None
    tokens_per_s: float | None = None
    e2el_p50_s: float | None = None
    e2el_p95_s: float | None = None
    spent_pusd: int | None = None
    budget_pusd: int | None = None
    last_failure: str | None = None
    note: str | None = None  # why it waits

    @property
    def left_s(self) -> tuple[float, float] | None:
        """How long it may still take, as a range in seconds: the rate may be a quarter off either way."""
        left = self.scope_total - self.scope_done
        if not self.items_per_s or left <= 0:
            return None
        expected = left / self.items_per_s
        return expected * 0.8, expected * 1.3


Watcher = Callable[[Progress], None]


def done(counts: Mapping[ItemState, int]) -> int:
    """Count the items that need nothing more in this run."""
    return sum(count for state, count in counts.items() if is_final(state))
