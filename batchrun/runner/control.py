"""Deciding about a job from any terminal: cancel."""

import time
from contextlib import suppress
from dataclasses import dataclass

from batchrun.core.states import ItemState, JobState
from batchrun.errors import JobBusy
from batchrun.ledger import jobs as job_moves
from batchrun.ledger.ledger import Ledger
from batchrun.ledger.liveness import Worker
from batchrun.ledger.reports import count_items
from batchrun.runner.finalize import finalize
from batchrun.runner.gear import Gear
from batchrun.runner.hold import holding, sweep_all, working


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
    return Cancelled(
        task_id=task_id,
        items=items,
        in_flight=before[ItemState.RUNNING],
        kept=before[ItemState.COMPLETED],
        was_applied=not dry_run and job.state not in (JobState.CANCELLED, JobState.CANCELLING),
    )


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
