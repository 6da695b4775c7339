"""What a sweeper asks the ledger: who may have died, what their open attempts are, and when their files may go."""

from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import Connection, select, update

from batchrun.core.retry import Tries
from batchrun.core.states import AttemptState, ItemState
from batchrun.ledger.schema import attempts, items, split_key, workers


@dataclass(frozen=True, slots=True)
class Incarnation:
    """A worker that has not said goodbye."""

    worker_id: int
    incarnation: str
    host: str
    folder: Path


@dataclass(frozen=True, slots=True)
class OpenAttempt:
    """An attempt without an answer, and its item's account before it."""

    key: int
    job_id: int
    worker_id: int
    tries: Tries
    reserved_pusd: int


def incarnations(connection: Connection, *, except_worker: int) -> list[Incarnation]:
    """Return the workers that have not left in order, this one excepted."""
    rows = connection.execute(
        select(workers).where(workers.c.ended_at.is_(None), workers.c.id != except_worker).order_by(workers.c.id)
    )
    return [Incarnation(row.id, row.incarnation, row.host, Path(row.folder)) for row in rows]


def open_attempt(connection: Connection, key: int) -> OpenAttempt | None:
    """Return the attempt with this key if its fate is still open or unknown; None when there is nothing to learn."""
    item_id, fence = split_key(key)
    row = connection.execute(
        select(attempts, items.c.tries, items.c.throttled_s, items.c.fence)
        .join(items, items.c.id == item_id)
        .where(attempts.c.key == key, attempts.c.state.in_((AttemptState.INTENT, AttemptState.UNKNOWN)))
    ).one_or_none()
    if row is None:
        return None
    # A doubt has been counted already when it was made.
    counted = row.tries if row.state == AttemptState.INTENT else max(0, row.tries - 1)
    return OpenAttempt(key, row.job_id, row.worker_id, Tries(counted, row.throttled_s), row.reserved_pusd)


def jobs_of(connection: Connection, worker_id: int) -> list[int]:
    """Return the jobs of which a worker holds running items."""
    query = select(items.c.job_id).where(items.c.worker_id == worker_id, items.c.state == ItemState.RUNNING).distinct()
    return list(connection.execute(query).scalars())


def bury(connection: Connection, worker_id: int, *, now: float) -> None:
    """Note that a worker is dead and that nothing it had in hand is open any more."""
    connection.execute(update(workers).where(workers.c.id == worker_id).values(ended_at=now))
