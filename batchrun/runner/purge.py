"""`purge`: a job's prompts and answers are forgotten, its counts and its money stay."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from batchrun.core.states import FINAL_JOB_STATES, ItemState, JobState
from batchrun.errors import BatchrunError, IllegalMove, JobBusy
from batchrun.ledger import jobs as job_moves
from batchrun.ledger.compaction import Compaction, compact
from batchrun.ledger.jobs import Job
from batchrun.ledger.ledger import Ledger
from batchrun.ledger.liveness import Observer, Worker, holds_lock
from batchrun.ledger.purge import (
    Contents,
    begin_purge,
    delete_contents,
    end_purge,
    ended_before,
    has_attempt_among,
    is_at_work,
    measure_contents,
    performers,
)
from batchrun.ledger.reports import count_items
from batchrun.ledger.spool import read_frames
from batchrun.runner.export import output_paths
from batchrun.runner.finalize import finalize
from batchrun.runner.gear import Gear
from batchrun.runner.hold import holding, sweep_all, working
from batchrun.runner.partial import PartialOutput


@dataclass(frozen=True, slots=True)
class Purged:
    """One job whose contents were deleted, or would be."""

    job: Job
    contents: Contents
    in_doubt: int  # items that can then no longer be sent again
    was_purged: bool  # by an earlier purge, to its end
    files: tuple[Path, ...]  # its output files, which are the user's and are left alone


@dataclass(frozen=True, slots=True)
class PurgeReport:
    """What a purge came to."""

    purged: Sequence[Purged]
    left: Sequence[tuple[str, BatchrunError]]  # jobs that could not be purged now, and why
    compaction: Compaction | None  # of the ledger's file; None where nothing was deleted, or on a dry run
    before_bytes: int | None  # size of the ledger's file; None where it is no file
    after_bytes: int | None


def jobs_to_purge(ledger: Ledger, task_id: str | None, *, older_than_s: float | None) -> list[str]:
    """Return the names of the jobs that are meant.

    Raises:
        JobNotFound: there is no job of this name.
        IllegalMove: the named job has not ended, or not so long ago.
    """
    ended_by = time.time() - (older_than_s or 0.0)
    with ledger.read() as connection:
        if task_id is None:
            return [name for _, name in ended_before(connection, ended_by)]
        job = job_moves.find_job(connection, task_id)
    _refuse_unended(job)
    if older_than_s is not None and (job.ended_at is None or job.ended_at > ended_by):
        raise IllegalMove(f"job {task_id!r} ended later than that", hint=f"batchrun purge {task_id}")
    return [task_id]


def _refuse_unended(job: Job) -> None:
    if job.state in FINAL_JOB_STATES:
        return
    what = f"job {job.task_id!r} is {job.state.value.replace('_', ' ')}: only a job that has ended can be purged"
    raise IllegalMove(what, hint=f"let it end (batchrun resume {job.task_id}), or batchrun cancel {job.task_id}")


def plan_purge(ledger: Ledger, names: Sequence[str]) -> PurgeReport:
    """Say what a purge of these jobs would delete. Nothing is changed."""
    plans = []
    for name in names:
        with ledger.read() as connection:
            job = job_moves.find_job(connection, name)
        plans.append(_purged(ledger, job, measure_contents(ledger, job.id), was_purged=job.purged_at is not None))
    size = _size_bytes(ledger)
    return PurgeReport(plans, [], None, size, size)


def purge_jobs(ledger: Ledger, gear: Gear, names: Sequence[str], *, is_named: bool) -> PurgeReport:
    """Forget the contents of these jobs, one after another, and then write the ledger's file anew.

    What was deleted before a failure stays deleted, and the same purge again goes on from there.

    Args:
        is_named: the job was named by the user: what keeps it from being purged is raised, and not only reported.

    Raises:
        IllegalMove: the named job has not ended.
        JobBusy: somebody holds the named job, or may have answers of it in their spool.
        LedgerFull, LedgerFault: the ledger cannot be written. The purge can be taken up again.
    """
    purged: list[Purged] = []
    left: list[tuple[str, BatchrunError]] = []
    before_bytes = _size_bytes(ledger)
    with working(ledger, gear, concurrency=1) as worker:
        observer = Observer(ledger, dead_after_s=gear.dead_after_s)
        for name in names:
            try:
                purged.append(_purge_job(ledger, gear, name, worker, observer))
            except (IllegalMove, JobBusy) as error:
                if is_named:
                    raise
                left.append((name, error))
    compaction = compact(ledger) if purged else None
    return PurgeReport(purged, left, compaction, before_bytes, _size_bytes(ledger))


def _purge_job(ledger: Ledger, gear: Gear, task_id: str, worker: Worker, observer: Observer) -> Purged:
    with ledger.read() as connection:
        job = job_moves.find_job(connection, task_id)
    if job.purged_at is not None:
        return _purged(ledger, job, Contents(), was_purged=True)
    _refuse_unended(job)
    with holding(ledger, job, worker, gear, goes_on=False):
        _await_performers(ledger, gear, job, worker, observer)
        if _read(ledger, job).state is JobState.FINALIZING:
            finalize(ledger, job, holder=worker.id)  # an answer was found in a spool: it belongs into the outputs first
        _refuse_unended(_read(ledger, job))
        with ledger.write() as connection:
            begin_purge(connection, job.id, holder=worker.id, now=time.time())
        # crash point: purge-marked
        contents = delete_contents(ledger, job.id)
        with ledger.write() as connection:
            end_purge(connection, job.id, forgotten=contents, now=time.time())
        # crash point: purge-ended
        PartialOutput(ledger, job.id, output_paths(job)[0]).remove()
    return _purged(ledger, _read(ledger, job), contents, was_purged=False)


def _await_performers(ledger: Ledger, gear: Gear, job: Job, worker: Worker, observer: Observer) -> None:
    """See to it that no spool holds answers of the job: those of the dead are adopted, the living are left in peace.

    Raises:
        JobBusy: the spool of a living process holds answers of the job, or may.
        IllegalMove: a dead one has left answers that cannot be judged here.
    """
    deadline = time.monotonic() + 4 * gear.dead_after_s  # a slow machine asks less often, and must ask anew
    while True:
        sweep_all(ledger, gear, worker, observer)
        found = _with_answers(ledger, job, worker)
        # Whether a process of another host is dead shows with time; that it lives shows as soon as it says so.
        is_open = any(
            holds_lock(Path(one.folder), one.incarnation) is None and not observer.has_moved(one.id) for one in found
        )
        if not is_open or time.monotonic() > deadline:
            break
        time.sleep(gear.dead_after_s / 8)
    if not found:
        return
    one = found[0]
    who = f"{one.name} (pid {one.pid} on {one.host})"
    if observer.is_dead(one.id):
        what = f"{who} died and left answers in {one.folder!r}, which cannot be read without its endpoint's key"
        raise IllegalMove(what, hint=f"set the key, then batchrun reconcile {job.task_id}")
    what = f"{who}, which performed job {job.task_id!r}, is at work, and may have answers of it in its spool"
    raise JobBusy(what, hint=f"batchrun purge {job.task_id} when it is idle or has ended")


def _with_answers(ledger: Ledger, job: Job, worker: Worker) -> list[Any]:
    """Return the workers whose spools hold, or may hold, answers of the job."""
    with ledger.read() as connection:
        found = performers(connection, job.id, except_worker=worker.id)
        return [one for one in found if _may_hold_answers(connection, job, one)]


def _may_hold_answers(connection: Any, job: Job, one: Any) -> bool:
    """Look into a spool of this host; of another host's process ask whether it has anything in hand.

    One that has not has overwritten its spool.
    """
    if holds_lock(Path(one.folder), one.incarnation) is None:
        return is_at_work(connection, one.id)
    keys = [frame.key for frame in read_frames(Path(one.folder), one.incarnation)]
    return has_attempt_among(connection, job.id, keys)


def _read(ledger: Ledger, job: Job) -> Job:
    with ledger.read() as connection:
        return job_moves.read_job(connection, job.id)


def _purged(ledger: Ledger, job: Job, contents: Contents, *, was_purged: bool) -> Purged:
    with ledger.read() as connection:
        in_doubt = count_items(connection, job.id)[ItemState.IN_DOUBT]
    files = tuple(path for path in output_paths(job) if path.exists())
    return Purged(job, contents, in_doubt, was_purged, files)


def _size_bytes(ledger: Ledger) -> int | None:
    """Return the size of a SQLite ledger's files."""
    if ledger.file is None:
        return None
    parts = (ledger.file, ledger.file.with_name(f"{ledger.file.name}-wal"))
    return sum(part.stat().st_size for part in parts if part.exists())
