"""running -> in_doubt, or pending where it is proven that nothing was sent: what dead workers had in hand."""

from collections.abc import Collection
from dataclasses import dataclass

from sqlalchemy import Connection, select, update

from batchrun.core.states import AttemptState, ItemState
from batchrun.ledger.claims import give_back
from batchrun.ledger.events import record_event
from batchrun.ledger.guards import lock_jobs, stands_in
from batchrun.ledger.schema import attempt_key, attempts, items


@dataclass(frozen=True, slots=True)
class Rescued:
    """What became of a job's items that a dead worker had in hand."""

    in_doubt: list[int]  # the attempts' keys
    unsent: int = 0  # attempts that certainly never began


def rescue(
    connection: Connection, *, job_id: int, worker_id: int, now: float, begun: Collection[int] | None = None
) -> Rescued:
    """End whatever dead worker `worker_id` holds of the job. Its spool has been adopted before.

    What it had claimed and not sent cannot be told from what it had sent, but for its marks. Attempts whose item has
    gone on without them (another attempt's answer was adopted) end too.

    Args:
        begun: the attempts that may have begun, where its marks prove that no other has; None: any may have.
    """
    lock_jobs(connection, [job_id])
    unsent = 0 if begun is None else _give_back_unsent(connection, job_id, worker_id, begun, now)
    rows = connection.execute(
        update(items)
        .where(items.c.job_id == job_id, items.c.is_current, items.c.worker_id == worker_id, stands_in("rescue"))
        .values(
            state=ItemState.IN_DOUBT,
            fence=items.c.fence + 1,
            worker_id=None,
            tries=items.c.tries + 1,
            cause="worker_lost",
            message="the worker died while this request was, or was about to be, under way",
        )
        .returning(items.c.id, items.c.fence)
    ).all()
    # crash point: rescue-moved
    opened = connection.execute(
        update(attempts)
        .where(attempts.c.job_id == job_id, attempts.c.worker_id == worker_id, attempts.c.state == AttemptState.INTENT)
        .values(state=AttemptState.UNKNOWN, cause="worker_lost", message="the worker died", ended_at=now)
    ).rowcount
    if rows or opened or unsent:
        detail = {"worker": worker_id, "in_doubt": len(rows), "unsent": unsent}
        record_event(connection, job_id, "rescued", at=now, detail=detail)
    return Rescued([attempt_key(row.id, row.fence - 1) for row in rows], unsent)


def _give_back_unsent(connection: Connection, job_id: int, worker_id: int, begun: Collection[int], now: float) -> int:
    """Give back what never began. An item that was asked for again under its key stays in the doubt that it was in."""
    rows = connection.execute(
        select(attempts.c.key).where(
            attempts.c.job_id == job_id,
            attempts.c.worker_id == worker_id,
            attempts.c.state == AttemptState.INTENT,
            attempts.c.replays.is_(None),
        )
    )
    unsent = [row.key for row in rows if row.key not in begun]
    return give_back(connection, unsent, worker_id=worker_id, now=now) if unsent else 0
