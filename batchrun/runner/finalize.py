"""The end of a job: its outputs written, and its state final. What was done is not repeated, what was not is."""

import time
from collections.abc import Callable

from batchrun.core.states import JobState
from batchrun.ledger import jobs as job_moves
from batchrun.ledger.consents import cancel_pending, retry_by_policy
from batchrun.ledger.jobs import Job
from batchrun.ledger.ledger import Ledger
from batchrun.runner.export import Outputs, output_paths, write_outputs
from batchrun.runner.partial import PartialOutput


def finalize(
    ledger: Ledger,
    job: Job,
    *,
    holder: int,
    wrote: Callable[[int], object] | None = None,
    is_written: bool = True,
) -> Outputs | None:
    """Write a finished job's outputs and close it; None while it is not finished. Repeats nothing that is done.

    Args:
        is_written: write the files; else another host does, or `export`.
        wrote: told after each line how many there are; what it raises leaves the job `finalizing`, as a fault does.

    Raises:
        LedgerFull: the outputs could not be written; the job stays `finalizing`, and `resume` tries again.
    """
    now = time.time()
    with ledger.write() as connection:
        job = job_moves.read_job(connection, job.id)
        if job.state is JobState.CANCELLING:
            cancel_pending(connection, job.id)  # what became pending after the cancel's own sweep
        elif job.is_shared and job.state is JobState.IN_PROGRESS and job.on_unknown == "retry":
            # Any process may have swept up after a dead worker; what it left in doubt is due once more.
            retry_by_policy(connection, job.id, retry_times=job.retry_times, now=now)
        job_moves.move_job(
            connection, job.id, "finalize", now=now, reason=job.reason, message=job.message, holder=holder
        )
        job = job_moves.read_job(connection, job.id)
    # crash point: end-begun
    if job.is_purged:
        return None
    output, errors = output_paths(job)
    if job.state in (JobState.COMPLETED, JobState.CANCELLED):
        # Files that are there may be of an earlier run, or of a pause: the ledger knows whether this end's are written.
        if job.written_at is not None and output.exists() and errors.exists():
            return None
        written = write_outputs(ledger, job, wrote=wrote)
        with ledger.write() as connection:
            job_moves.note_written(connection, job.id, now=time.time())
        return written
    if job.state is not JobState.FINALIZING:
        return None
    outputs = write_outputs(ledger, job, wrote=wrote) if is_written else None
    # crash point: end-written
    PartialOutput(ledger, job.id, output).remove()  # before the end: nobody looks after a job that has ended
    # crash point: end-tidy
    with ledger.write() as connection:
        if outputs is not None:
            job_moves.note_written(connection, job.id, now=time.time())
        name = "close" if job.was_cancelled else "complete"
        reason = job.reason if job.was_cancelled else None
        job_moves.move_job(connection, job.id, name, now=time.time(), reason=reason, holder=holder)
    # crash point: end-durable
    return outputs
