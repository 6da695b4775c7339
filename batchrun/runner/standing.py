"""Where a job stands, as one value: what `status --json` prints, and what a command's exit code follows from."""

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from batchrun.core.states import ItemState, JobState
from batchrun.core.stats import percentile
from batchrun.errors import JobNotFound
from batchrun.ledger.climbs import LIMIT_EVENT
from batchrun.ledger.events import read_events
from batchrun.ledger.jobs import Job, find_job, list_jobs
from batchrun.ledger.ledger import Ledger
from batchrun.ledger.liveness import holds_lock
from batchrun.ledger.reports import AttemptReport, count_items, heartbeat, recent_latencies, report_attempts, warnings
from batchrun.ledger.watching import work_on
from batchrun.runner.hints import Hint, hint_for_stop

LIMITS_TOLD = 10
AUTH_REASONS = frozenset({"auth", "forbidden"})
# Pauses that a person asked for, or that simply end a command's work, rather than a guard's stop.
QUIET_REASONS = frozenset({"paused_by_user", "trial_only", "declined"})


@dataclass(frozen=True, slots=True)
class Standing:
    """A job as the ledger has it at one instant."""

    job: Job
    counts: dict[ItemState, int]
    attempts: AttemptReport
    warnings: dict[str, int]
    e2el_p50_s: float | None
    e2el_p95_s: float | None
    items_per_s: float | None
    tokens_per_s: float | None  # output tokens
    in_flight: int
    holder: dict[str, Any] | None  # name, host, pid of the process that performs it
    limits: list[dict[str, Any]]  # the latest changes of an adaptive concurrency: at, before, after, reason, message
    slots: int | None  # what workers hold of a shared job's concurrency; None for a job of one process
    has_died: bool  # its holder is certainly dead: seen on its own host only
    held_for_s: float | None  # what is left of a pause that its endpoint asked for
    active_s: float  # how long processes have worked on it, pauses between them left out

    @property
    def is_worked_on(self) -> bool:
        """True while a living process, or for a shared job any worker, is at it as far as can be seen from here."""
        if self.slots is not None:
            return self.slots > 0
        return self.holder is not None and not self.has_died

    @property
    def hint(self) -> Hint | None:
        """What can be done about the stop; None where the job did not stop, or a person stopped it."""
        is_stopped = self.job.state is JobState.PAUSED and self.job.reason not in QUIET_REASONS
        has_answers = self.counts[ItemState.COMPLETED] > 0
        return hint_for_stop(self.job, has_answers=has_answers) if is_stopped else None

    @property
    def mend(self) -> str | None:
        """The hint's words."""
        return self.hint.words if self.hint else None

    @property
    def performer(self) -> str:
        """Say who has the job, and since when."""
        who, since_at = self.holder or {}, self.job.held_since_at
        since = time.strftime("%H:%M:%S", time.localtime(since_at)) if since_at else "just now"
        return f"{who.get('name')} (pid {who.get('pid')} on {who.get('host')}) since {since}"

    @property
    def exit_code(self) -> int:
        """The exit code of a command that leaves the job like this (UX.md): 5, then 6, then 3."""
        if self.job.state is JobState.PAUSED:
            if self.job.reason in AUTH_REASONS:
                return 4
            return 0 if self.job.reason in QUIET_REASONS else 5
        if self.job.state is JobState.FAILED:
            return 2  # its registration: the input was at fault
        if self.job.state not in (JobState.COMPLETED, JobState.CANCELLED):
            return 8
        if self.counts[ItemState.IN_DOUBT]:
            return 6
        unhappy = (ItemState.FAILED, ItemState.REJECTED, ItemState.CANCELLED)
        return 3 if any(self.counts[state] for state in unhappy) else 0


def read_standing(ledger: Ledger, task_id: str) -> Standing:
    """Read where one job stands.

    Raises:
        JobNotFound: there is no such job.
    """
    with ledger.read() as connection:
        job = find_job(connection, task_id)
        latencies = recent_latencies(connection, job.id)
        holder = heartbeat(connection, job.holder) if job.holder is not None else None
        is_gone = holder is not None and holds_lock(Path(holder["folder"]), holder["incarnation"]) is False
        load = work_on(connection, job)
        return Standing(
            job=job,
            counts=count_items(connection, job.id),
            attempts=report_attempts(connection, job.id),
            warnings=warnings(connection, job.id),
            e2el_p50_s=percentile(latencies, 50),
            e2el_p95_s=percentile(latencies, 95),
            items_per_s=load.items_per_s if load else None,
            tokens_per_s=load.tokens_per_s if load else None,
            in_flight=load.in_flight if load else 0,
            limits=_latest_limits(connection, job),
            slots=load.wants if load and job.is_shared else None,
            holder={name: holder[name] for name in ("name", "host", "pid")} if holder else None,
            has_died=is_gone and not job.is_shared,  # another worker takes a shared job's chores over by itself
            held_for_s=job.held_for_s(time.time()) if job.state is JobState.IN_PROGRESS else None,
            active_s=job.active_s + (time.time() - job.held_since_at if job.held_since_at is not None else 0.0),
        )


def _latest_limits(connection: Any, job: Job) -> list[dict[str, Any]]:
    found = read_events(connection, job.id, kind=LIMIT_EVENT, latest=LIMITS_TOLD) if job.climb else []
    return [{"at": event["at"], **event["detail"]} for event in found]


def latest_job(ledger: Ledger) -> str:
    """Return the name of the job registered last.

    Raises:
        JobNotFound: there is none.
    """
    with ledger.read() as connection:
        found = list_jobs(connection)
    if not found:
        raise JobNotFound("this ledger holds no job yet", hint="batchrun submit jobs/job.json makes one")
    return found[0].task_id


def list_standings(ledger: Ledger) -> list[tuple[Job, dict[ItemState, int]]]:
    """Return every job with its counts, latest first."""
    with ledger.read() as connection:
        return [(job, count_items(connection, job.id)) for job in list_jobs(connection)]
