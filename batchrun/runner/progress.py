"""How far a job is, for those who watch: one value, made from the ledger's counts and this process's own."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from batchrun.core.states import ItemState, JobState, is_final
from batchrun.ledger.jobs import Job
from batchrun.runner.standing import Standing
from batchrun.runner.tally import Tally


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


def moment(
    job: Job,
    tally: Tally,
    *,
    base: Mapping[ItemState, int],
    phase: str,
    trial_only: bool,
    note: str | None,
    now: float,
) -> Progress:
    """Make a moment of the job that this process performs.

    Args:
        base: the ledger's counts when this process began; the tally is added to them.
        now: monotonic seconds.
    """
    counts = dict(base)
    for state, count in tally.moved.items():
        counts[state] += count
    open_before = base[ItemState.PENDING] + base[ItemState.RUNNING]
    counts[ItemState.RUNNING] = tally.in_flight
    counts[ItemState.PENDING] = max(0, open_before - sum(tally.moved.values()) - tally.in_flight)
    items_per_s, tokens_per_s = tally.rates(now)
    total = min(job.total, int(job.spec["trial"]["size"])) if trial_only else job.total
    return Progress(
        task_id=job.task_id,
        phase=phase,
        counts=counts,
        scope_total=total,
        scope_done=min(total, done(counts)),
        in_flight=tally.in_flight,
        concurrency=job.concurrency,
        items_per_s=items_per_s,
        tokens_per_s=tokens_per_s,
        e2el_p50_s=tally.latency(50),
        e2el_p95_s=tally.latency(95),
        spent_pusd=job.spent_pusd,
        budget_pusd=job.max_cost_pusd,
        last_failure=tally.last_failure,
        note=note,
    )


def done(counts: Mapping[ItemState, int]) -> int:
    """Count the items that need nothing more in this run."""
    return sum(count for state, count in counts.items() if is_final(state))


def progress_of(standing: Standing, *, phase: str) -> Progress:
    """Make a moment of progress from what the ledger says."""
    job = standing.job
    return Progress(
        task_id=job.task_id,
        phase=phase,
        counts=standing.counts,
        scope_total=job.total,
        scope_done=done(standing.counts),
        in_flight=standing.in_flight,
        concurrency=job.concurrency,
        items_per_s=standing.items_per_s,
        e2el_p50_s=standing.e2el_p50_s,
        e2el_p95_s=standing.e2el_p95_s,
        spent_pusd=job.spent_pusd,
        budget_pusd=job.max_cost_pusd,
        note=job.message if job.state is JobState.PAUSED else None,
    )
