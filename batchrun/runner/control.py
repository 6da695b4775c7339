"""Deciding about a job from any terminal: pause, change its limits, cancel."""

import time
from contextlib import suppress
from dataclasses import dataclass

from batchrun.core.concurrency import Concurrency
from batchrun.core.states import FINAL_JOB_STATES, ItemState, JobState
from batchrun.errors import IllegalMove, JobBusy, UsageFault
from batchrun.ledger import jobs as job_moves
from batchrun.ledger.ledger import Ledger
from batchrun.ledger.liveness import Worker
from batchrun.ledger.reports import count_items
from batchrun.runner.finalize import finalize
from batchrun.runner.gear import Gear
from batchrun.runner.hold import holding, sweep_all, working
from batchrun.runner.outage import ENDPOINT_DOWN
from batchrun.runner.pricing import refuse_unbounded


@dataclass(frozen=True, slots=True)
class Cancelled:
    """What a cancel did."""

    task_id: str
    items: int  # that will not be sent
    in_flight: int  # that finish first
    kept: int  # answers
    was_applied: bool


def cancel(ledger: Ledger, task_id: str, *, dry_run: bool = False) -> Cancelled:
    """in_progress or paused -> cancelling; pending items -> cancelled. Cancelling again changes nothing.

    Raises:
        JobNotFound, IllegalMove: there is no such job, or it has ended.
    """
    now = time.time()
    with ledger.read() as connection:
        job = job_moves.find_job(connection, task_id)
        before = count_items(connection, job.id)
    items = before[ItemState.PENDING]
    if not dry_run:
        with ledger.write() as connection:
            items = job_moves.cancel_job(connection, job.id, now=now)
        # crash point: cancel-begun
    return Cancelled(
        task_id=task_id,
        items=items,
        in_flight=before[ItemState.RUNNING],
        kept=before[ItemState.COMPLETED],
        was_applied=not dry_run and job.state not in (JobState.CANCELLED, JobState.CANCELLING),
    )


@dataclass(frozen=True, slots=True)
class Paused:
    """What a pause did."""

    in_flight: int  # that finish
    was_applied: bool


def pause(ledger: Ledger, task_id: str, *, dry_run: bool = False) -> Paused:
    """in_progress -> paused, by a person. A pause that an endpoint's outage made becomes theirs: no probe lifts it.

    Raises:
        JobNotFound, IllegalMove: there is no such job, or nothing of it is being sent.
    """
    now = time.time()
    with ledger.read() as connection:
        job = job_moves.find_job(connection, task_id)
        in_flight = count_items(connection, job.id)[ItemState.RUNNING]
    is_waiting = job.state is JobState.PAUSED and job.reason == ENDPOINT_DOWN
    if job.state is JobState.PAUSED and not is_waiting:
        return Paused(in_flight, was_applied=False)
    if job.state is not JobState.IN_PROGRESS and not is_waiting:
        raise IllegalMove(
            f"job {task_id!r} is {job.state} and cannot be paused: nothing of it is being sent",
            hint=f"batchrun status {task_id}",
        )
    if dry_run:
        return Paused(in_flight, was_applied=False)
    with ledger.write() as connection:
        job_moves.move_job(connection, job.id, "resume", now=now, only_reason=ENDPOINT_DOWN)
        applied = job_moves.move_job(
            connection, job.id, "pause", now=now, reason="paused_by_user", message="paused by you"
        )
    return Paused(in_flight, was_applied=applied)


Setting = int | Concurrency | None
Change = tuple[str, Setting, Setting]  # a setting, what it was, what it is


def change(ledger: Ledger, task_id: str, *, dry_run: bool = False, **wanted: Setting) -> list[Change]:
    """Change a job's concurrency, rpm, tpm or max_cost_pusd; return what is different now.

    Args:
        wanted: None leaves a setting as it is; 0 lifts `rpm` and `tpm`.

    Raises:
        JobNotFound, IllegalMove: there is no such job, or it has ended.
        UsageFault: a limit on the cost of a job without prices, or with items that nothing bounds.
    """
    with ledger.write() as connection:
        job = job_moves.find_job(connection, task_id)
        if job.state in FINAL_JOB_STATES:
            raise IllegalMove(
                f"job {task_id!r} is {job.state}: there is nothing left to limit", hint=f"batchrun status {task_id}"
            )
        if wanted.get("max_cost_pusd") is not None and job.spec["price"] is None:
            raise UsageFault(
                f"job {task_id!r} has no prices, so its cost cannot be limited", hint="add price to its spec, submit it"
            )
        if wanted.get("max_cost_pusd") is not None:
            refuse_unbounded(connection, job)
        if job.spec.get("endpoints") and not {"rpm", "tpm"}.isdisjoint(name for name in wanted if wanted[name]):
            raise UsageFault(
                f"job {task_id!r} has several endpoints, each with its own rpm and tpm",
                hint="change them in its spec, and submit it again",
            )
        given = {name: value for name, value in wanted.items() if value is not None}
        before = {"concurrency": job.allowed}
        changes = [(name, before.get(name, getattr(job, name)), value or None) for name, value in given.items()]
        changes = [(name, old, new) for name, old, new in changes if old != new]
        if not dry_run:
            job_moves.change_settings(connection, job.id, now=time.time(), **given)
    return changes


def close_cancelled(ledger: Ledger, task_id: str, gear: Gear) -> None:
    """Bring a cancelled job to its end where no living process does: sweep, and write the outputs."""
    with working(ledger, gear, concurrency=1) as worker:
        sweep_all(ledger, gear, worker)
        close_if_over(ledger, task_id, worker, gear)


def close_if_over(ledger: Ledger, task_id: str, worker: Worker, gear: Gear) -> None:
    """Write the outputs of a job that has nothing left to do, unless a living process performs it."""
    with ledger.read() as connection:
        job = job_moves.find_job(connection, task_id)
    with suppress(JobBusy), holding(ledger, job, worker, gear):
        finalize(ledger, job, holder=worker.id)
