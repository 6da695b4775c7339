"""A job's epoch: a number that grows whenever a process takes the job, and while it performs it.

Two copies of a ledger have the same number at the moment of the copy, and never again once one of them goes on.
"""

from sqlalchemy import Connection, select, update

from batchrun.ledger.schema import jobs


def take_epoch(
    connection: Connection, job_id: int, *, worker_id: int, token: str, instead_of: int | None, now: float
) -> int | None:
    """Become the job's holder instead of `instead_of` to perform it; return its epoch, None when another was faster."""
    same = jobs.c.holder.is_(None) if instead_of is None else jobs.c.holder == instead_of
    values = {"holder": worker_id, "held_since_at": now, "epoch": jobs.c.epoch + 1, "epoch_token": token}
    taken = update(jobs).where(jobs.c.id == job_id, same).values(values).returning(jobs.c.epoch)
    return connection.execute(taken).scalar()


def advance_epoch(connection: Connection, job_id: int, *, worker_id: int, token: str) -> int | None:
    """Move a job's epoch on, and return it; None where this process does not perform the job, or no longer."""
    mine = (jobs.c.id == job_id, jobs.c.holder == worker_id, jobs.c.epoch_token == token)
    advanced = update(jobs).where(*mine).values(epoch=jobs.c.epoch + 1).returning(jobs.c.epoch)
    return connection.execute(advanced).scalar()


def read_epoch_of(connection: Connection, job_id: int) -> tuple[int, str | None]:
    """Return a job's epoch, and the token of the process that took it last."""
    return tuple(connection.execute(select(jobs.c.epoch, jobs.c.epoch_token).where(jobs.c.id == job_id)).one())
