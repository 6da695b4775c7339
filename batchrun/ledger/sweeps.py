"""What a sweeper asks the ledger: who may have died, what their open attempts are, and when their files may go."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, delete, exists, or_, select, update

from batchrun.core.retry import Tries
from batchrun.core.states import AttemptState, ItemState
from batchrun.ledger.schema import attempts, items, jobs, leases, split_key, workers

_IS_OPEN = attempts.c.state == AttemptState.INTENT
_WITHOUT_REPLY = (AttemptState.INTENT, AttemptState.UNKNOWN, AttemptState.NOT_SENT)


@dataclass(frozen=True, slots=True)
class Incarnation:
    """A worker that has not said goodbye."""

    worker_id: int
    incarnation: str
    host: str
    folder: Path
    name: str
    pid: int
    boot_id: str | None  # of the machine's run in which it lived


@dataclass(frozen=True, slots=True)
class OpenAttempt:
    """An attempt without an answer, and its item's account before it."""

    key: int
    job_id: int
    worker_id: int
    tries: Tries
    reserved_pusd: int
    endpoint: str


def incarnations(connection: Connection, *, except_worker: int) -> list[Incarnation]:
    """Return the workers that have not left in order or that still have open attempts, this one excepted."""
    # Looked for job by job: there is an index of each job's open attempts, and they are few.
    owners = select(attempts.c.worker_id).where(attempts.c.job_id.in_(select(jobs.c.id)), _IS_OPEN)
    is_left = or_(workers.c.ended_at.is_(None), workers.c.id.in_(owners))
    rows = connection.execute(select(workers).where(is_left, workers.c.id != except_worker).order_by(workers.c.id))
    return [_incarnation(row, Path(row.folder)) for row in rows]


def buried_with_files(connection: Connection, folder: Path) -> list[Incarnation]:
    """Return the workers that are buried and have files in `folder`, which whoever buried them may not have seen."""
    here = {path.name.split(".")[0] for path in folder.glob("*.*")}
    query = select(workers).where(workers.c.incarnation.in_(here), workers.c.ended_at.is_not(None))
    return [_incarnation(row, folder) for row in connection.execute(query)]


def _incarnation(row: Any, folder: Path) -> Incarnation:
    return Incarnation(row.id, row.incarnation, row.host, folder, row.name, row.pid, row.boot_id)


def open_attempt(connection: Connection, key: int) -> OpenAttempt | None:
    """Return the attempt with this key if its fate is open, unknown or said to be nothing; None where a reply is known.

    Evidence of an attempt that is called unsent is worth an alarm, and must not be dropped.
    """
    item_id, _ = split_key(key)
    row = connection.execute(
        select(attempts, items.c.tries, items.c.throttled_s, items.c.reasks)
        .join(items, items.c.id == item_id)
        .where(attempts.c.key == key, attempts.c.state.in_(_WITHOUT_REPLY))
    ).one_or_none()
    if row is None:
        return None
    # A doubt has been counted already when it was made.
    counted = max(0, row.tries - 1) if row.state == AttemptState.UNKNOWN else row.tries
    tries = Tries(counted, row.throttled_s, row.reasks)
    return OpenAttempt(key, row.job_id, row.worker_id, tries, row.reserved_pusd, row.endpoint)


def jobs_of(connection: Connection, worker_id: int) -> list[int]:
    """Return the jobs in which a worker runs items or has open attempts, in ascending order."""
    has_open = exists().where(attempts.c.job_id == jobs.c.id, attempts.c.worker_id == worker_id, _IS_OPEN)
    is_mine = (items.c.job_id == jobs.c.id, items.c.is_current, items.c.worker_id == worker_id)
    runs = exists().where(*is_mine, items.c.state == ItemState.RUNNING)
    return list(connection.execute(select(jobs.c.id).where(or_(runs, has_open)).order_by(jobs.c.id)).scalars())


def end_leases(connection: Connection, worker_id: int) -> None:
    """Free a worker's share of the concurrency of all shared jobs."""
    connection.execute(delete(leases).where(leases.c.worker_id == worker_id))


def bury(connection: Connection, worker_id: int, *, now: float) -> None:
    """Note that a worker is dead. It claims nothing from here on, should it wake; what it held has been rescued.

    Its share of the concurrency of shared jobs is free for the others.
    """
    end_leases(connection, worker_id)
    connection.execute(update(workers).where(workers.c.id == worker_id).values(ended_at=now))
