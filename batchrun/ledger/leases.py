"""A shared job's concurrency, lent to its living workers: what all of them may have in flight never exceeds it."""

from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, delete, func, insert, select, update

from batchrun.core.shares import shares
from batchrun.ledger.guards import is_alive, lock_jobs
from batchrun.ledger.schema import jobs, leases


@dataclass(frozen=True, slots=True)
class Load:
    """What a worker does on one job, as its lease tells others."""

    wants: int  # requests that it could have in flight
    in_flight: int
    items_per_s: float | None = None
    tokens_per_s: float | None = None
    keeps: int = 0  # slots that it may be using until it has heard of fewer


def lease(connection: Connection, job_id: int, *, worker_id: int, load: Load) -> int:
    """Renew this worker's lease of a job's concurrency; return its slots from now on, 0 where it was declared dead.

    A worker keeps what it may be using: where its share became smaller it hears so, starts nothing until it is below
    it, and gives the rest up with its next renewal. What it gave up is another's at that one's. So the sum is never
    above the job's concurrency; but after the concurrency itself was lowered, until the workers have come down to it.
    """
    lock_jobs(connection, [job_id])
    if not connection.execute(select(is_alive(worker_id))).scalar():
        return 0
    concurrency: int = connection.execute(select(jobs.c.concurrency).where(jobs.c.id == job_id)).scalar_one()
    rows = connection.execute(select(leases).where(leases.c.job_id == job_id)).all()
    others: dict[int, Any] = {row.worker_id: row for row in rows if row.worker_id != worker_id}
    wants = {key: row.wants for key, row in others.items()} | {worker_id: load.wants}
    share: int = shares(concurrency, wants)[worker_id]
    free = max(0, concurrency - sum(row.slots for row in others.values()))
    slots: int = max(load.in_flight, load.keeps, min(share, free))
    values = {
        "wants": load.wants,
        "slots": slots,
        "in_flight": load.in_flight,
        "items_per_s": load.items_per_s,
        "tokens_per_s": load.tokens_per_s,
    }
    mine = (leases.c.job_id == job_id, leases.c.worker_id == worker_id)
    if len(others) < len(rows):
        connection.execute(update(leases).where(*mine).values(values))
    else:
        connection.execute(insert(leases).values(job_id=job_id, worker_id=worker_id, **values))
    return min(share, slots)


def give_back(connection: Connection, job_id: int, *, worker_id: int) -> None:
    """End a worker's lease: nothing of the job is in flight with it any more."""
    connection.execute(delete(leases).where(leases.c.job_id == job_id, leases.c.worker_id == worker_id))


def total_load(connection: Connection, job_id: int) -> Load:
    """Return what all workers together have and do of a job; its `wants` are the slots that are lent."""
    query = select(
        func.coalesce(func.sum(leases.c.slots), 0),
        func.coalesce(func.sum(leases.c.in_flight), 0),
        func.sum(leases.c.items_per_s),
        func.sum(leases.c.tokens_per_s),
    )
    return Load(*connection.execute(query.where(leases.c.job_id == job_id)).one())
