"""What cannot be done with a purged job any more, and the words for it."""

from datetime import UTC, datetime

from batchrun.errors import IllegalMove
from batchrun.ledger.jobs import Job

SEND = "its requests are deleted, so nothing of it can be sent again"
WRITE = "its answers are deleted, so its outputs cannot be written again"
CHANGE = "its requests are deleted, so another input or other parameters cannot be compared with it"


def refuse_purged(job: Job, why: str) -> None:
    """Refuse what needs a job's contents where they are purged, or a purge of them has begun.

    Args:
        why: one of this module's sentences.

    Raises:
        IllegalMove: they are. Nothing was changed or sent.
    """
    if not job.is_purged:
        return
    hint = f"give the spec another task_id to run it anew (all of it is paid again); batchrun status {job.task_id}"
    if why is WRITE:
        hint = f"the files written before the purge are where they were; batchrun status {job.task_id}"
    raise IllegalMove(f"job {job.task_id!r} was purged {purged_when(job)}: {why}", hint=hint)


def purged_when(job: Job) -> str:
    """Say when a purged job's contents were deleted, in UTC."""
    at = job.purged_at or job.purge_began_at or 0.0
    return datetime.fromtimestamp(at, UTC).strftime("on %Y-%m-%d at %H:%M:%S UTC")
