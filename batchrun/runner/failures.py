"""What failed or is in doubt, grouped by cause, with what to do about each in the job's own figures."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from batchrun.core.request_view import read_request
from batchrun.core.states import ItemState
from batchrun.ledger import jobs as job_moves
from batchrun.ledger.jobs import Job
from batchrun.ledger.ledger import Ledger
from batchrun.ledger.reports import CauseReport, count_items
from batchrun.ledger.reports import causes as read_causes
from batchrun.ledger.stopped import stream_stopped
from batchrun.ledger.trial import request_bodies
from batchrun.runner.hints import Seen, hint_for, kind_of

# Causes whose hint speaks of the request itself: for these the sample's body is read.
READ_FOR = frozenset({"context_length", "model_not_found"})


@dataclass(frozen=True)
class FailureGroup:
    """Items that stopped for one cause, and the first of them as a sample."""

    cause: str
    state: str
    kind: str  # permanent, transient, doubtful, ours
    count: int
    sample_item: str
    sample_line_no: int
    sample_message: str | None  # the endpoint's words, or ours
    hint: str
    next_command: str


@dataclass(frozen=True)
class Failures:
    """A job's failures by cause, the largest group first."""

    job: Job
    counts: dict[ItemState, int]
    groups: list[FailureGroup]


def group_failures(ledger: Ledger, task_id: str, *, causes: Sequence[str] = ()) -> Failures:
    """Group a job's failed, doubtful and rejected items by cause.

    Args:
        causes: only these; none means all.

    Raises:
        JobNotFound: there is no such job.
    """
    with ledger.read() as connection:
        job = job_moves.find_job(connection, task_id)
        counts = count_items(connection, job.id)
        found = [one for one in read_causes(connection, job.id) if not causes or one.cause in causes]
        bodies = request_bodies(connection, [one.sample_item_id for one in found if one.cause in READ_FOR])
    has_answers = counts[ItemState.COMPLETED] > 0
    groups = [_group(job, one, bodies.get(one.sample_item_id), has_answers=has_answers) for one in found]
    return Failures(job, counts, groups)


def _group(job: Job, one: CauseReport, body: bytes | None, *, has_answers: bool) -> FailureGroup:
    request = read_request(body) if body else None
    hint = hint_for(job, one.cause, one.state, Seen(one.sample_message, request, has_answers))
    return FailureGroup(
        cause=one.cause or "unknown",
        state=one.state.value,
        kind=kind_of(one.cause, one.state).value,
        count=one.count,
        sample_item=one.sample_custom_id,
        sample_line_no=one.sample_line_no,
        sample_message=one.sample_message,
        hint=hint.words,
        next_command=hint.command,
    )


def list_failures(ledger: Ledger, task_id: str, *, causes: Sequence[str] = ()) -> Iterator[dict[str, Any]]:
    """Yield a job's failed, doubtful and rejected items one by one, in input order.

    Raises:
        JobNotFound: there is no such job.
    """
    with ledger.read() as connection:
        job = job_moves.find_job(connection, task_id)
    for row in stream_stopped(ledger, job.id, causes=causes):
        state = ItemState(row.state)
        yield {
            "custom_id": row.custom_id,
            "line_no": row.line_no,
            "state": state.value,
            "cause": row.cause,
            "cause_kind": kind_of(row.cause, state).value,
            "message": row.message,
        }
