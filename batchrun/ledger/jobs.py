"""Jobs: registering, finding, holding, and every move of the job-move table."""

import difflib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from sqlalchemy import ColumnElement, Connection, exists, func, insert, or_, select, update
from sqlalchemy.exc import IntegrityError

from batchrun.core.climb import Climb
from batchrun.core.concurrency import Concurrency
from batchrun.core.spec import prices_of
from batchrun.core.states import JOB_MOVES, ItemState, JobState
from batchrun.errors import IllegalMove, JobNotFound
from batchrun.ledger.climbs import allowing, read_climb
from batchrun.ledger.consents import cancel_pending
from batchrun.ledger.events import record_event
from batchrun.ledger.guards import CLOCK_SLACK_S, lock_jobs
from batchrun.ledger.ledger import storable
from batchrun.ledger.schema import items, jobs


@dataclass(frozen=True, slots=True)
class Job:
    """A job's row as it was read."""

    id: int
    task_id: str
    state: JobState
    reason: str | None
    message: str | None
    was_cancelled: bool
    spec: Mapping[str, Any]
    input_digest: str
    params_digest: str
    total: int
    phase: Literal["trial", "full"]
    trial_verdict: Literal["passed", "failed", "skipped"] | None
    on_unknown: Literal["hold", "retry"]
    concurrency: int
    climb: Climb | None
    retry_times: int
    rpm: int | None
    tpm: int | None
    max_cost_pusd: int | None
    spent_pusd: int
    reserved_pusd: int
    throttle_until_at: float | None
    throttle_wait_s: float | None
    is_shared: bool
    holder: int | None
    held_since_at: float | None
    created_at: float
    started_at: float | None
    ended_at: float | None
    active_s: float
    epoch: int
    epoch_token: str | None
    written_at: float | None
    purge_began_at: float | None
    purged_at: float | None

    @property
    def allowed(self) -> Concurrency:
        """What its concurrency may be."""
        return self.climb.bounds if self.climb else Concurrency(self.concurrency, self.concurrency)

    @property
    def is_purged(self) -> bool:
        """True from the moment at which a purge began: contents may be missing."""
        return self.purge_began_at is not None

    def held_for_s(self, now: float) -> float | None:
        """Return what is left of a pause that its endpoint asked for; None where there is none, or none is left.

        One that is longer than it was asked for belongs to a clock that was set back.
        """
        if self.throttle_until_at is None or self.throttle_wait_s is None:
            return None
        left_s = self.throttle_until_at - now
        return left_s if 0 < left_s <= self.throttle_wait_s else None


def _job(row: Any) -> Job:
    values = dict(row._mapping)
    parsed = {
        "state": JobState(values["state"]),
        "spec": json.loads(values["spec"]),
        "climb": read_climb(values["climb"]),
    }
    return Job(**values | parsed)


def register_job(
    connection: Connection,
    *,
    task_id: str,
    spec: Mapping[str, Any],
    input_digest: str,
    params_digest: str,
    total: int,
    phase: str,
    on_unknown: str,
    concurrency: Concurrency,
    retry_times: int,
    max_cost_pusd: int | None,
    holder: int,
    now: float,
    rpm: int | None = None,
    tpm: int | None = None,
) -> Job | None:
    """- -> validating, held by this process; None when a job of this name was registered in the meantime."""
    try:
        with connection.begin_nested():
            connection.execute(
                insert(jobs).values(
                    task_id=task_id,
                    state=JobState.VALIDATING,
                    was_cancelled=False,
                    spec=json.dumps(spec),
                    input_digest=input_digest,
                    params_digest=params_digest,
                    total=total,
                    phase=phase,
                    on_unknown=on_unknown,
                    **allowing(concurrency),
                    retry_times=retry_times,
                    rpm=rpm,
                    tpm=tpm,
                    max_cost_pusd=max_cost_pusd,
                    spent_pusd=0,
                    reserved_pusd=0,
                    is_shared=False,
                    holder=holder,
                    held_since_at=now,
                    created_at=now,
                    active_s=0.0,
                    epoch=0,
                )
            )
    except IntegrityError:
        return None
    job = find_job(connection, task_id)
    # The prices as they were: the spec holds those of the day only.
    prices = {"price": spec.get("price")} | prices_of(spec)
    detail = {"total": total, "input_digest": input_digest} | ({"prices": prices} if prices["price"] else {})
    record_event(connection, job.id, "registered", at=now, detail=detail)
    return job


def find_job(connection: Connection, task_id: str) -> Job:
    """Return the job of this name.

    Raises:
        JobNotFound: there is none.
    """
    row = connection.execute(select(jobs).where(jobs.c.task_id == task_id)).one_or_none()
    if row is None:
        raise _not_found(connection, task_id)
    return _job(row)


def _not_found(connection: Connection, task_id: str) -> JobNotFound:
    """Make the error for a name that is nearly, or not at all, a job's."""
    names = list(connection.execute(select(jobs.c.task_id).order_by(jobs.c.id.desc()).limit(1_000)).scalars())
    if not names:
        return JobNotFound(f"no job {task_id!r}: this ledger holds no job yet", hint="batchrun submit jobs/job.json")
    known = "one job" if len(names) == 1 else "other jobs"
    close = difflib.get_close_matches(task_id, names, n=1) or (names if len(names) == 1 else [])
    guess = f"did you mean {close[0]!r}? " if close else ""
    return JobNotFound(f"no job {task_id!r}: this ledger holds {known}", hint=f"{guess}batchrun ls lists them")


def read_job(connection: Connection, job_id: int) -> Job:
    """Return the job with this key."""
    return _job(connection.execute(select(jobs).where(jobs.c.id == job_id)).one())


def list_jobs(connection: Connection) -> list[Job]:
    """Return every job, latest first."""
    return [_job(row) for row in connection.execute(select(jobs).order_by(jobs.c.id.desc()))]


def take(connection: Connection, job_id: int, *, worker_id: int, instead_of: int | None, now: float) -> bool:
    """Become the job's holder instead of `instead_of`: nobody, or one found dead. False when another was faster."""
    same = jobs.c.holder.is_(None) if instead_of is None else jobs.c.holder == instead_of
    return bool(
        connection.execute(
            update(jobs).where(jobs.c.id == job_id, same).values(holder=worker_id, held_since_at=now)
        ).rowcount
    )


def note_written(connection: Connection, job_id: int, *, now: float) -> None:
    """Note that the outputs of a job that has ended are written."""
    connection.execute(update(jobs).where(jobs.c.id == job_id).values(written_at=now))


def share(connection: Connection, job_id: int, *, is_shared: bool) -> None:
    """Open a job to every worker of this ledger, or keep it for its holder alone."""
    connection.execute(update(jobs).where(jobs.c.id == job_id).values(is_shared=is_shared))


def keep_spec(connection: Connection, job_id: int, *, spec: str) -> None:
    """Replace a job's spec (JSON) where only what is said about how it is performed has changed."""
    connection.execute(update(jobs).where(jobs.c.id == job_id).values(spec=spec))


def shared_jobs(connection: Connection) -> list[Job]:
    """Return the shared jobs that workers have something to do for, the oldest first."""
    states = (JobState.IN_PROGRESS, JobState.PAUSED, JobState.CANCELLING, JobState.FINALIZING)
    query = select(jobs).where(jobs.c.is_shared, jobs.c.state.in_(states)).order_by(jobs.c.id)
    return [_job(row) for row in connection.execute(query)]


def drop(connection: Connection, job_id: int, *, worker_id: int, active_s: float) -> None:
    """Stop being the holder; add the time this process worked on the job."""
    connection.execute(
        update(jobs)
        .where(jobs.c.id == job_id, jobs.c.holder == worker_id)
        .values(holder=None, held_since_at=None, active_s=jobs.c.active_s + active_s)
    )


def move_job(
    connection: Connection,
    job_id: int,
    name: str,
    *,
    now: float,
    reason: str | None = None,
    message: str | None = None,
    only_reason: str | None = None,
    holder: int | None = None,
) -> bool:
    """Make one move of the job-move table; False when the job is not in one of its from-states.

    Args:
        only_reason: the move is made only while the job's reason is this one (a probe lifts its own pause).
        holder: the move is made only while this worker holds the job.
    """
    move = JOB_MOVES[name]
    lock_jobs(connection, [job_id])  # the guard below looks at the items too, which must not move meanwhile
    guard = [jobs.c.id == job_id, jobs.c.state.in_(move.sources), *_beside(name, job_id)]
    if only_reason is not None:
        guard.append(jobs.c.reason == only_reason)
    if holder is not None:
        guard.append(jobs.c.holder == holder)
    values = {"state": move.target, "reason": reason, "message": storable(message), **_brings(name, now)}
    if not connection.execute(update(jobs).where(*guard).values(values)).rowcount:
        return False
    record_event(connection, job_id, name, at=now, detail={"reason": reason, "message": message} if reason else None)
    return True


def write_anew(connection: Connection, job_id: int, *, now: float) -> None:
    """Make a job that had ended write its outputs anew; where items became pending again, perform it again.

    A cancelled job stays cancelled: nothing of it becomes pending by itself.
    """
    if move_job(connection, job_id, "rewrite", now=now):
        pending = exists().where(items.c.job_id == job_id, items.c.is_current, items.c.state == ItemState.PENDING)
        if connection.execute(select(pending)).scalar():
            move_job(connection, job_id, "reopen", now=now)


def _beside(name: str, job_id: int) -> list[ColumnElement[bool]]:
    """Build what must hold for a move beside the job's state."""
    mine = (items.c.job_id == job_id, items.c.is_current)
    match name:
        case "open":
            return [select(func.count()).select_from(items).where(*mine).scalar_subquery() == jobs.c.total]
        case "finalize":
            return [~exists().where(*mine, items.c.state.in_((ItemState.PENDING, ItemState.RUNNING)))]
        case "complete" | "close":
            return [jobs.c.was_cancelled.is_(name == "close")]
        case "rewrite" | "reopen":
            return [jobs.c.purge_began_at.is_(None)]
        case _:
            return []


def _brings(name: str, now: float) -> dict[str, Any]:
    """Return what a move writes beside the state."""
    match name:
        case "complete" | "close" | "fail":
            return {"ended_at": now}
        case "reopen":
            return {"ended_at": None, "was_cancelled": False, "written_at": None}
        case "rewrite":
            return {"written_at": None}
        case "cancel":
            return {"was_cancelled": True}
        case _:
            return {}


def cancel_job(connection: Connection, job_id: int, *, now: float) -> int:
    """in_progress or paused -> cancelling, and its pending items -> cancelled; return how many items.

    Raises:
        IllegalMove: the job has ended.
    """
    if not move_job(connection, job_id, "cancel", now=now, reason="cancelled", message="cancelled by you"):
        job = read_job(connection, job_id)
        if job.state not in (JobState.CANCELLING, JobState.CANCELLED):
            raise IllegalMove(
                f"job {job.task_id!r} is {job.state} and cannot be cancelled: nothing of it is still to be sent",
                hint=f"batchrun status {job.task_id}",
            )
    return cancel_pending(connection, job_id)


_OF_AN_END = ("reason", "message", "ended_at", "purge_began_at", "purged_at")


def restart_registration(
    connection: Connection, job_id: int, *, total: int, input_digest: str, params_digest: str
) -> None:
    """Begin a registration again that had died or failed; none of its items was ever claimable.

    Raises:
        IllegalMove: it has ended well in the meantime, and its items may have been sent.
    """
    values = {"total": total, "input_digest": input_digest, "params_digest": params_digest}
    restarted = connection.execute(
        update(jobs)
        .where(jobs.c.id == job_id, jobs.c.state.in_(JOB_MOVES["restart"].sources))
        .values(state=JobState.VALIDATING, **dict.fromkeys(_OF_AN_END), **values)
    )
    if not restarted.rowcount:
        job = read_job(connection, job_id)
        raise IllegalMove(f"job {job.task_id!r} is {job.state}: its registration has ended", hint="submit it again")


def start(connection: Connection, job_id: int, *, now: float) -> None:
    """Note when the job's first request could leave."""
    connection.execute(update(jobs).where(jobs.c.id == job_id, jobs.c.started_at.is_(None)).values(started_at=now))


def set_phase(
    connection: Connection, job_id: int, *, phase: str, verdict: str | None, now: float, holder: int | None = None
) -> bool:
    """Open the full run, or note what the trial came to; False when `holder` is given and does not hold the job."""
    is_mine = jobs.c.holder == holder if holder is not None else jobs.c.id == job_id
    change = update(jobs).where(jobs.c.id == job_id, is_mine).values(phase=phase, trial_verdict=verdict)
    if not connection.execute(change).rowcount:
        return False
    record_event(connection, job_id, "phase", at=now, detail={"phase": phase, "trial": verdict})
    return True


def set_throttle(connection: Connection, job_id: int, *, wait_s: float, now: float) -> None:
    """Let nothing of the job be claimed for `wait_s`; a wait already longer stands."""
    until = now + wait_s
    connection.execute(
        update(jobs)
        .where(
            jobs.c.id == job_id,
            or_(
                jobs.c.throttle_until_at.is_(None),
                jobs.c.throttle_until_at < until,
                jobs.c.throttle_until_at > now + jobs.c.throttle_wait_s + CLOCK_SLACK_S,
            ),
        )
        .values(throttle_until_at=until, throttle_wait_s=wait_s)
    )


def change_settings(connection: Connection, job_id: int, *, now: float, **values: Any) -> None:
    """Change what is no part of the job's identity (concurrency, retry_times, on_unknown, limits); an event says so.

    None leaves a setting as it is; 0 lifts `rpm` and `tpm`. A `concurrency` is a `Concurrency`: what may be. Where that
    is what it was, the limit that was found stands.
    """
    lifted = {name: None for name in ("rpm", "tpm") if values.get(name) == 0}
    values = {name: value for name, value in values.items() if value is not None} | lifted
    allowed = values.pop("concurrency", None)
    if allowed is not None and (job := read_job(connection, job_id)).allowed != allowed:
        values |= allowing(allowed, now=job.concurrency)
    if not values:
        return
    before = connection.execute(select(*(jobs.c[name] for name in values)).where(jobs.c.id == job_id)).one()
    changed = {name: value for name, value in values.items() if getattr(before, name) != value}
    if changed:
        connection.execute(update(jobs).where(jobs.c.id == job_id).values(changed))
        told = {name: value for name, value in changed.items() if name != "climb"}
        if allowed is not None and "climb" in values:
            told["concurrency"] = allowed.written
        record_event(connection, job_id, "settings", at=now, detail=told)
