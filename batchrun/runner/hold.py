"""Being a worker of a ledger, becoming a job's holder, and clearing up after dead ones."""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from batchrun.core.answer_check import check_of
from batchrun.errors import JobBusy, LedgerFault
from batchrun.ledger.cache import Accounts
from batchrun.ledger.intact import WORKERS
from batchrun.ledger.jobs import Job, take
from batchrun.ledger.ledger import Ledger
from batchrun.ledger.liveness import Observer, Worker, enter
from batchrun.runner.epoch import let_go, refuse_copy
from batchrun.runner.gear import Gear
from batchrun.runner.means import Way
from batchrun.runner.standing import read_standing
from batchrun.runner.sweep import Swept, sweep
from batchrun.runner.twins import Twins

ROOM_PER_SLOT_BYTES = 16_384
SMALLEST_ROOM_BYTES = 1 << 18


@contextmanager
def working(ledger: Ledger, gear: Gear, *, concurrency: int) -> Iterator[Worker]:
    """Be a worker of this ledger for a while.

    Raises:
        LedgerFault: no space for the spool.
    """
    room_bytes = max(SMALLEST_ROOM_BYTES, concurrency * ROOM_PER_SLOT_BYTES)
    try:
        worker = enter(ledger, name=gear.worker_name, now=time.time(), room_bytes=room_bytes)
    except OSError as error:
        where = str(ledger.folder / WORKERS)
        message = f"{where!r} cannot hold this worker's spool: {error.strerror}"
        raise LedgerFault(message, hint="free disk space") from None
    try:
        yield worker
    finally:
        worker.leave(ledger, now=time.time())


def try_to_hold(ledger: Ledger, job: Job, worker: Worker, observer: Observer, *, goes_on: bool = True) -> bool:
    """Become the job's holder where nobody is, or where the holder is dead.

    Args:
        goes_on: something of the job may be sent or written while it is held.

    Raises:
        LedgerCopied: it may, and another copy of this ledger has gone on with the job.
        LedgerFault: it may, and the epoch file beside the output cannot be read.
    """
    if goes_on:
        refuse_copy(ledger, job)
    if job.holder == worker.id:
        return True
    if job.holder is not None and not observer.is_dead(job.holder):
        return False
    with ledger.write() as connection:
        is_taken = take(connection, job.id, worker_id=worker.id, instead_of=job.holder, now=time.time())
    # crash point: hold-taken
    return is_taken


def sweep_all(ledger: Ledger, gear: Gear, worker: Worker, observer: Observer | None = None) -> Swept:
    """Adopt and rescue whatever dead workers of this ledger have left."""
    observer = observer or Observer(ledger, dead_after_s=gear.dead_after_s)
    return sweep(ledger, observer, except_worker=worker.id, rules_of=gear.rules_of)


@contextmanager
def holding(ledger: Ledger, job: Job, worker: Worker, gear: Gear, *, goes_on: bool = True) -> Iterator[None]:
    """Hold a job for a moment, so that nobody else changes or performs it meanwhile.

    Args:
        goes_on: something of it may be sent or written meanwhile.

    Raises:
        JobBusy: another living process holds it.
        LedgerCopied: another copy of this ledger has gone on with the job.
    """
    if not try_to_hold(ledger, job, worker, Observer(ledger, dead_after_s=gear.dead_after_s), goes_on=goes_on):
        who = read_standing(ledger, job.task_id).performer
        raise JobBusy(f"job {job.task_id!r} is performed by {who}", hint=f"batchrun status {job.task_id} -w")
    try:
        yield
    finally:
        let_go(ledger, job, worker, active_s=0.0)


def make_twins(ledger: Ledger, gear: Gear, job: Job, worker: Worker, ways: Sequence[Way]) -> Twins | None:
    """Make the cache of a job's performer; None where the job has none."""
    if not job.spec.get("cache"):
        return None
    observer = Observer(ledger, dead_after_s=gear.dead_after_s)
    return Twins(
        ledger,
        job_id=job.id,
        worker_id=worker.id,
        accounts=Accounts.of((way.address, gear.account_of(job, way.address)) for way in ways),
        check=check_of(job.spec),
        sweep=lambda: sweep_all(ledger, gear, worker, observer),
    )
