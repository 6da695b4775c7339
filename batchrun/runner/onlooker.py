"""How far a job is, seen from another process: by what the ledger and its performer's heartbeat say."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from batchrun.core.states import FINAL_JOB_STATES, ItemState, JobState
from batchrun.core.stats import percentile
from batchrun.ledger.jobs import Job, find_job
from batchrun.ledger.leases import Load
from batchrun.ledger.ledger import Ledger
from batchrun.ledger.reports import count_items, count_trial, recent_latencies
from batchrun.ledger.watching import last_failure, work_on
from batchrun.runner.forecast import Forecast
from batchrun.runner.outage import ENDPOINT_DOWN
from batchrun.runner.progress import Progress, done, spent_of
from batchrun.runner.tally import Failure

LONELY_S = 10.0  # without a worker until that is said: workers look for jobs a few times a second


@dataclass
class Onlooker:
    """Looks at one job again and again. Reads only, and little: totals that take a walk over all attempts are left."""

    ledger: Ledger
    task_id: str
    monotonic: Callable[[], float] = time.monotonic
    _forecast: Forecast = field(default_factory=Forecast)
    _at_work_at: float | None = None  # when somebody was seen at work the last time, or the look began
    _moved: tuple[float, int] | None = None  # since when so many items have been done

    def look(self) -> Progress | None:
        """Return this moment of the job; None where nobody works on it: it has ended, stopped, or its process died.

        One that has ended and is held is looked at for a moment longer: with the hold goes the time that it has taken.

        A job that is shared may wait for its workers: that is no end.

        Raises:
            JobNotFound: there is no such job.
        """
        with self.ledger.read() as connection:
            job = find_job(connection, self.task_id)
            load = None if _has_stopped(job) else work_on(connection, job)
            if load is None:
                return None
            counts = count_items(connection, job.id)
            trial = count_trial(connection, job.id) if job.phase == "trial" else None
            latencies = sorted(recent_latencies(connection, job.id))
            failure = last_failure(connection, job.id)
        return self._moment(job, load, counts, trial, latencies, Failure(**failure) if failure else None)

    def _moment(
        self,
        job: Job,
        load: Load,
        counts: dict[ItemState, int],
        trial: dict[ItemState, int] | None,
        latencies: list[float],
        failure: Failure | None,
    ) -> Progress:
        now, wall = self.monotonic(), time.time()
        self._at_work_at = now if load.wants or self._at_work_at is None else self._at_work_at
        phase, note = _phase(job, wall, is_lonely=now - self._at_work_at > LONELY_S)
        whole, p95_s = done(counts), percentile(latencies, 95)
        if self._moved is None or self._moved[1] != whole:
            self._moved = (now, whole)
        is_measured = phase in ("running", "waiting") and job.state is JobState.IN_PROGRESS and load.wants > 0
        if is_measured:
            self._forecast.saw(now, whole, wave=job.concurrency)
        else:
            self._forecast.rest()
        total, reached = job.total, whole
        if phase == "validating":
            reached = sum(counts.values())
        elif phase == "finalizing":
            total = reached = 0  # how much is written, only the writer knows
        elif phase == "trial" and trial is not None:
            total, reached = sum(trial.values()), done(trial)
        return Progress(
            task_id=job.task_id,
            phase=phase,
            scope_total=total,
            scope_done=reached,
            counts={} if phase == "validating" else counts,
            in_flight=load.in_flight,
            concurrency=job.concurrency,
            items_per_s=load.items_per_s,
            tokens_per_s=load.tokens_per_s,
            silent_s=now - self._moved[0],
            e2el_p50_s=percentile(latencies, 50),
            e2el_p95_s=p95_s,
            spent_pusd=spent_of(job),
            budget_pusd=job.max_cost_pusd,
            left_s=self._forecast.left_s(job.total - whole, last_s=p95_s) if is_measured else None,
            last_failure=failure,
            failed_ago_s=None if failure is None else max(0.0, wall - failure.at),
            note=note,
        )


def _has_stopped(job: Job) -> bool:
    """Say whether nobody will go on with the job by themselves; of one held by a process its holder is what tells."""
    if not job.is_shared:
        return job.holder is None
    return job.state in FINAL_JOB_STATES or (job.state is JobState.PAUSED and job.reason != ENDPOINT_DOWN)


def _phase(job: Job, now: float, *, is_lonely: bool) -> tuple[str, str | None]:
    """Return what the job's performer is about, and why it waits."""
    match job.state:
        case JobState.VALIDATING:
            return "validating", "writing the items to the ledger"
        case JobState.FINALIZING | JobState.COMPLETED | JobState.CANCELLED | JobState.FAILED:
            return "finalizing", "writing the outputs"
        case JobState.PAUSED if job.reason == ENDPOINT_DOWN:
            return "waiting", f"endpoint down: {job.message}"
        case JobState.PAUSED | JobState.CANCELLING:
            return "draining", job.message
        case _ if is_lonely:
            return "waiting", "no worker is at work on this job: batchrun worker starts one"
        case _ if (left_s := job.held_for_s(now)) is not None:
            return "waiting", f"the endpoint asked for a pause: {left_s:,.0f} s of it left"
        case _:
            return ("trial" if job.phase == "trial" else "running"), None
