"""Doubts: what they are, and what a person decides about them."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from batchrun.core.outcome import Charge
from batchrun.core.states import ItemState
from batchrun.errors import UsageFault
from batchrun.ledger import jobs as job_moves
from batchrun.ledger.consents import Stopped, give_up, stopped_items
from batchrun.ledger.doubts import doubtful_attempts
from batchrun.ledger.jobs import Job
from batchrun.ledger.ledger import Ledger


@dataclass(frozen=True, slots=True)
class Doubt:
    """One item in doubt and the attempt that made it so."""

    item: Stopped
    attempt_id: str
    sent_at: float | None  # UTC unix seconds; None: not known whether it was sent at all
    endpoint: str
    possible_pusd: int | None
    is_charged: bool  # for certain, as a gateway's log told; only the answer is not known
    cost_pusd: int | None
    host: str | None  # of the worker that may hold more evidence
    folder: str | None


def list_doubts(ledger: Ledger, task_id: str, *, custom_ids: Sequence[str] = ()) -> tuple[Job, list[Doubt]]:
    """List a job's doubts, in input order.

    Raises:
        UsageFault: an item was named that is not in doubt.
    """
    with ledger.read() as connection:
        job = job_moves.find_job(connection, task_id)
        stopped = stopped_items(connection, job.id, state=ItemState.IN_DOUBT, custom_ids=custom_ids)
        attempts = doubtful_attempts(connection, [one.item_id for one in stopped])
    if missing := sorted(set(custom_ids) - {one.custom_id for one in stopped}):
        raise UsageFault(
            f"item {missing[0]!r} is not in doubt", hint=f"batchrun reconcile {task_id} lists those that are"
        )
    return job, [_doubt(ledger, one, attempts[one.item_id]) for one in stopped if one.item_id in attempts]


def _doubt(ledger: Ledger, item: Stopped, row: Any) -> Doubt:
    return Doubt(
        item=item,
        attempt_id=ledger.attempt_id(row["key"]),
        sent_at=row["sent_at"],
        endpoint=row["endpoint"],
        possible_pusd=row["reserved_pusd"] or None,
        is_charged=row["charge"] == Charge.CERTAIN,
        cost_pusd=row["cost_pusd"],
        host=row["host"],
        folder=row["folder"],
    )


def fail_doubts(ledger: Ledger, job: Job, doubts: Sequence[Doubt]) -> int:
    """in_doubt -> failed for exactly these; return how many moved. What they may have cost stays possible.

    A job that had ended writes its outputs anew, unless it is purged.
    """
    now = time.time()
    with ledger.write() as connection:
        moved = give_up(connection, job.id, [doubt.item for doubt in doubts], now=now)
        if moved:
            job_moves.move_job(connection, job.id, "rewrite", now=now)
    return moved
