"""Seeing to it that no other copy of the ledger goes on with a job: its epoch, in the ledger and beside its output.

The ledger is written first and the file after it, so the file may be one behind, after a crash for instance, and never
ahead; and who compares them reads the file first. What is ahead was written by another copy.
"""

import errno
from pathlib import Path

from batchrun.errors import LedgerCopied, LedgerFault, LedgerFull
from batchrun.files.epoch import Epoch, alone_at, epoch_file, read_epoch, write_epoch
from batchrun.ledger.epochs import advance_epoch, begin_epoch, read_epoch_of
from batchrun.ledger.jobs import Job, drop
from batchrun.ledger.ledger import Ledger
from batchrun.ledger.liveness import Worker
from batchrun.runner.export import output_paths


def refuse_copy(ledger: Ledger, job: Job) -> None:
    """Refuse to go on with a job with which another copy of this ledger has gone on.

    Raises:
        LedgerCopied: the file beside the output is ahead of this ledger.
        LedgerFault: that file cannot be read.
    """
    output = _output(job)
    there = read_epoch(output)
    if there is None:
        return
    with ledger.read() as connection:
        known, token = read_epoch_of(connection, job.id)
    if there.is_beyond(Epoch(ledger.ledger_id, job.task_id, known, token or "")):
        path = epoch_file(output)
        raise LedgerCopied(
            f"another copy of {ledger.where} has gone on with job {job.task_id!r} since this one was made: "
            f"{str(path)!r} is at {there.epoch}, this ledger at {known}. Nothing was sent",
            hint=f"go on with that one; if it is lost, rm {path}: what it has sent since then is sent, and may be "
            "billed, again",
        )


def begin(ledger: Ledger, job: Job, worker: Worker) -> bool:
    """Begin to perform a job as its holder, and say so beside its output, before anything is claimed.

    Returns:
        False where this process does not hold it any more.

    Raises:
        LedgerCopied: another copy of this ledger has gone on with the job.
        LedgerFull, LedgerFault: the file beside the output cannot be read or written.
    """
    output = _output(job)
    with alone_at(output):  # or after a while all the same: a process that is stopped may have the lock
        refuse_copy(ledger, job)
        with ledger.write() as connection:
            epoch = begin_epoch(connection, job.id, worker_id=worker.id, token=worker.incarnation)
        if epoch is None:
            return False
        # crash point: epoch-begun
        try:
            _write(output, Epoch(ledger.ledger_id, job.task_id, epoch, worker.incarnation))
        except OSError as error:
            raise _cannot_be_written(job, error) from None
    return True


def move_epoch_on(ledger: Ledger, job: Job, worker: Worker) -> LedgerCopied | None:
    """Move the epoch of a job that this process performs on, so that copies that are made meanwhile stay behind.

    Returns:
        What is wrong, where another copy of this ledger performs the job as well. No other failure is any harm: the
        file stays behind, and the next move of many brings it up.
    """
    try:
        with ledger.write() as connection:
            epoch = advance_epoch(connection, job.id, worker_id=worker.id, token=worker.incarnation)
    except LedgerFault:
        return None
    return None if epoch is None else _keep(ledger, job, worker, epoch)


def _keep(ledger: Ledger, job: Job, worker: Worker, epoch: int) -> LedgerCopied | None:
    """Bring the file beside the output to the epoch that the ledger has."""
    output = _output(job)
    now = Epoch(ledger.ledger_id, job.task_id, epoch, worker.incarnation)
    try:
        with alone_at(output, patience_s=0.0) as is_alone:
            if not is_alone:
                return None
            refuse_copy(ledger, job)
            there = read_epoch(output)
            if there is None or not (there.token == now.token and there.epoch >= now.epoch):
                _write(output, now)
    except LedgerCopied as copied:
        return copied
    except (LedgerFault, OSError):
        return None
    return None


def let_go(ledger: Ledger, job: Job, worker: Worker, *, active_s: float) -> None:
    """Stop being the job's holder. What this ledger knows by now is beyond every copy of it that was made before."""
    with ledger.write() as connection:
        epoch = advance_epoch(connection, job.id, worker_id=worker.id, token=worker.incarnation)
        drop(connection, job.id, worker_id=worker.id, active_s=active_s)
    # crash point: hold-let-go
    if epoch is not None:
        _keep(ledger, job, worker, epoch)


def _output(job: Job) -> Path:
    return output_paths(job)[0]


def _write(output: Path, epoch: Epoch) -> None:
    """Write the file where the outputs are to lie on this host."""
    if output.parent.is_dir():
        write_epoch(output, epoch)


def _cannot_be_written(job: Job, error: OSError) -> LedgerFault:
    path = epoch_file(_output(job))
    kind = LedgerFull if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG) else LedgerFault
    return kind(
        f"{str(path)!r} cannot be written: {error.strerror or error}. Nothing was sent",
        hint=f"make room, or let the folder be written to, then `batchrun resume {job.task_id}`",
    )
