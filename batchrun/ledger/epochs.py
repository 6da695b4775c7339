"""A job's epoch: a number that grows when a process begins to perform the job, and while it does.

Two copies of a ledger have the same number at the moment of the copy, and never again once one of them goes on.
"""

from sqlalchemy import Connection, select, update

from batchrun.ledger.schema import jobs


def begin_epoch(connection: Connection, job_id: int, *, worker_id: int, token: str) -> int | None:
    """Begin to perform a job as its holder, and return its epoch; None where this process does not hold it."""
    mine = (jobs.c.id == job_id, jobs.c.holder == worker_id)
    begun = update(jobs).where(*mine).values(epoch=jobs.c.epoch + 1, epoch_token=token).returning(jobs.c.epoch)
    return connection.execute(begun).scalar()


def advance_epoch(connection: Connection, job_id: int, *, worker_id: int, token: str) -> int | None:
    """Move a job's epoch on, and return it; None where this process does not perform the job, or no longer."""
    mine = (jobs.c.id == job_id, jobs.c.holder == worker_id, jobs.c.epoch_token == token)
    advanced = update(jobs).where(*mine).values(epoch=jobs.c.epoch + 1).returning(jobs.c.epoch)
    return connection.execute(advanced).scalar()


def read_epoch_of(connection: Connection, job_id: int) -> tuple[int, str | None]:
    """Return a job's epoch, and the token of the process that took it last."""
    return tuple(connection.execute(select(jobs.c.epoch, jobs.c.epoch_token).where(jobs.c.id == job_id)).one())
