"""How far a job is, for those who watch: one value, made from the ledger's counts and this process's own."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from batchrun.core.states import ItemState, is_final
from batchrun.ledger.jobs import Job
from batchrun.runner.forecast import Forecast
from batchrun.runner.tally import Failure, Tally


@dataclass(frozen=True, slots=True)
class Progress:
    """One moment of a job. Rates are per second over the last ten seconds, None where nothing was measured."""

    task_id: str
    phase: str  # validating, trial, running, waiting, draining, finalizing
    scope_total: int  # what this phase is about, in `unit`; 0 where nobody here can see how far it is
    scope_done: int
    unit: str = "items"  # items, bytes, lines
    counts: Mapping[ItemState, int] = field(default_factory=dict)  # empty before there are items
    in_flight: int = 0
    concurrency: int = 0
    items_per_s: float | None = None
    tokens_per_s: float | None = None
    silent_s: float = 0.0  # for how long no answer has come
    e2el_p50_s: float | None = None
    e2el_p95_s: float | None = None
    spent_pusd: int | None = None  # None where no price is known
    budget_pusd: int | None = None
    left_s: tuple[float, float] | None = None  # how long it may still take, in seconds: from, to
    last_failure: Failure | None = None
    failed_ago_s: float | None = None
    note: str | None = None  # what it waits for, or what is done

    @property
    def percent(self) -> int | None:
        """How far this phase is; never 100, for whoever sees it sees something that is not over."""
        return min(99, 100 * self.scope_done // self.scope_total) if self.scope_total else None


Watcher = Callable[[Progress], None]


@dataclass
class Meter:
    """Makes the moments of a job that this process performs."""

    base: Mapping[ItemState, int]  # the ledger's counts when this process began; the tally is added to them
    trial_base: Mapping[ItemState, int]  # the same of the trial's items
    forecast: Forecast = field(default_factory=Forecast)

    def moment(
        self, job: Job, tally: Tally, *, phase: str, trial_only: bool, note: str | None, is_away: bool, now: float
    ) -> Progress:
        """Make a moment.

        Args:
            trial_only: the phase is about the trial's items; `tally` has seen no others.
            is_away: the endpoint is: such a wait is no measure for the time that is left, as one for its own pace is.
            now: monotonic seconds.
        """
        counts = {state: count + tally.moved.get(state, 0) for state, count in self.base.items()}
        counts[ItemState.RUNNING] = tally.in_flight
        counts[ItemState.PENDING] = max(0, self.left(tally) - tally.in_flight)
        whole = done(counts)
        items_per_s, tokens_per_s = tally.rates(now)
        p50_s, p95_s = tally.latencies()
        is_measured = phase in ("running", "waiting") and not is_away
        if is_measured:
            self.forecast.saw(now, whole, wave=job.concurrency)
        else:
            self.forecast.rest()
        left_s = self.forecast.left_s(job.total - whole, last_s=p95_s) if is_measured else None
        failure = tally.last_failure
        return Progress(
            task_id=job.task_id,
            phase=phase,
            scope_total=sum(self.trial_base.values()) if trial_only else job.total,
            scope_done=done(self.trial_base) + sum(tally.moved.values()) if trial_only else whole,
            counts=counts,
            in_flight=tally.in_flight,
            concurrency=job.concurrency,
            items_per_s=items_per_s,
            tokens_per_s=tokens_per_s,
            silent_s=tally.silent_s(now),
            e2el_p50_s=p50_s,
            e2el_p95_s=p95_s,
            spent_pusd=spent_of(job),
            budget_pusd=job.max_cost_pusd,
            left_s=left_s,
            last_failure=failure,
            failed_ago_s=None if failure is None else now - failure.at,
            note=note,
        )

    def left(self, tally: Tally) -> int:
        """Return how many items are not settled, as far as this process knows; those in flight among them."""
        return max(0, self.base[ItemState.PENDING] + self.base[ItemState.RUNNING] - sum(tally.moved.values()))


def spent_of(job: Job) -> int | None:
    """Return what the job has certainly cost, in picodollars; None where no price is known."""
    return job.spent_pusd if job.spec["price"] else None


def done(counts: Mapping[ItemState, int]) -> int:
    """Count the items that need nothing more in this run."""
    return sum(count for state, count in counts.items() if is_final(state))
