"""What failed or is in doubt, grouped by cause, with what to do about each."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from batchrun.core.outcome import CAUSES
from batchrun.core.states import ItemState
from batchrun.ledger import jobs as job_moves
from batchrun.ledger.consents import stopped_items
from batchrun.ledger.ledger import Ledger
from batchrun.ledger.reports import causes as read_causes


@dataclass(frozen=True)
class FailureGroup:
    """Items that stopped for one cause."""

    cause: str
    state: str
    kind: str  # permanent, retryable, in doubt, rejected
    count: int
    sample_item: str
    sample_message: str | None
    hint: str


def group_failures(ledger: Ledger, task_id: str) -> list[FailureGroup]:
    """Return a job's failures, doubts and rejected lines by cause, the largest group first."""
    with ledger.read() as connection:
        job = job_moves.find_job(connection, task_id)
        found = read_causes(connection, job.id)
    groups = []
    for one in found:
        known = CAUSES.get(one.cause or "")
        if one.state is ItemState.REJECTED:
            kind, hint = "rejected", "mend the line and submit with --accept-changes"
        elif one.state is ItemState.IN_DOUBT:
            kind, hint = "in doubt", known.hint if known else f"batchrun reconcile {task_id}"
        else:
            kind = "permanent" if known and known.is_permanent else "retryable"
            hint = known.hint if known else f"batchrun retry-failed {task_id}"
        groups.append(
            FailureGroup(
                one.cause or "unknown", one.state.value, kind, one.count, one.sample_custom_id, one.sample_message, hint
            )
        )
    return groups


def list_failures(ledger: Ledger, task_id: str, *, causes: Sequence[str] = ()) -> list[dict[str, Any]]:
    """Return a job's failed and doubtful items one by one, in input order."""
    with ledger.read() as connection:
        job = job_moves.find_job(connection, task_id)
        stopped = [
            one
            for state in (ItemState.FAILED, ItemState.IN_DOUBT)
            for one in stopped_items(connection, job.id, state=state, causes=causes)
        ]
    return [
        {"custom_id": one.custom_id, "state": one.state.value, "cause": one.cause, "message": one.message}
        for one in stopped
    ]
