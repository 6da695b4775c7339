"""What must hold before a move: guards on the item, on its job and on who asks, and the lock that keeps them true.

A guard takes values, or their names: statements of the hot path are built once, with names in the place of values,
since to build one anew costs more than to run it.
"""

from collections.abc import Iterable, Sequence

from sqlalchemy import BigInteger, ColumnElement, Connection, Float, and_, bindparam, case, exists, or_, select, update
from sqlalchemy import BindParameter as Name

from batchrun.core.prices import MOST_PUSD
from batchrun.core.states import ITEM_MOVES, ItemState, JobState
from batchrun.ledger.schema import items, jobs, leases, workers

CLOCK_SLACK_S = 1.0  # a wait that ends this much further ahead than it is long belongs to a clock that was set back


# The names of values that come when a statement is executed.
NOW = bindparam("now", type_=Float)
THE_JOB = bindparam("the_job", type_=BigInteger)
THE_WORKER = bindparam("the_worker", type_=BigInteger)

_LOCK = (
    select(jobs.c.id)
    .where(jobs.c.id.in_(bindparam("the_jobs", expanding=True)))
    .order_by(jobs.c.id)
    .with_for_update(key_share=True)
)


def among(values: Sequence[int]) -> list[int]:
    """Return values for an expanding name: the last is repeated, so that statements come in few lengths.

    The database reads and plans each text anew, and forgets the older ones.
    """
    length = 1 << max(0, len(values) - 1).bit_length()
    return list(values) + [values[-1]] * (length - len(values)) if values else []


def lock_jobs(connection: Connection, job_ids: Iterable[int]) -> None:
    """Hold the rows of these jobs until the transaction ends.

    Every transaction that moves items does this first, and for all its jobs at once: what it then reads of the job
    stays true, and as everybody begins with the same rows in the same order, nobody waits in a circle. SQLite's
    BEGIN IMMEDIATE holds everything already.
    """
    if connection.dialect.name == "sqlite":
        return
    connection.execute(_LOCK, {"the_jobs": sorted(set(job_ids))}).all()


def _added(column: ColumnElement[int], name: str) -> ColumnElement[int]:
    """Add to a sum of money, but never past what 64 bits hold: absurd counts of a server must not stop the ledger."""
    return case((column > bindparam(f"most_{name}"), MOST_PUSD), else_=column + bindparam(f"more_{name}"))


_MOVE_MONEY = (
    update(jobs)
    .where(jobs.c.id == bindparam("the_job"))
    .values(
        spent_pusd=_added(jobs.c.spent_pusd, "spent"),
        reserved_pusd=_added(jobs.c.reserved_pusd, "reserved"),
    )
)


def move_money(connection: Connection, job_id: int, *, spent: int = 0, reserved: int = 0) -> None:
    """Add to what a job has spent for certain and to what it keeps reserved, in picodollars; either may be negative."""
    if spent or reserved:
        values = {"the_job": job_id}
        for name, more in (("spent", spent), ("reserved", reserved)):
            more = min(more, MOST_PUSD)
            values |= {f"more_{name}": more, f"most_{name}": MOST_PUSD - max(0, more)}
        connection.execute(_MOVE_MONEY, values)


def stands_in(move: str) -> ColumnElement[bool]:
    """Build the guard on an item's from-state; unlike `in_` it can be part of a statement for many rows."""
    return or_(*(items.c.state == state.value for state in sorted(ITEM_MOVES[move].sources)))


def is_claimable(now: float | Name[float]) -> ColumnElement[bool]:
    """Build the guard on an item alone: pending, current, and its wait passed."""
    return and_(
        stands_in("claim"),
        items.c.is_current,
        or_(items.c.not_before_at <= now, items.c.not_before_at > now + items.c.wait_s + CLOCK_SLACK_S),
    )


def job_allows(job_id: int | Name[int], worker_id: int | Name[int], now: float | Name[float]) -> ColumnElement[bool]:
    """Build the guard on the job of the items: in progress, not throttled, this phase, and this worker may work on it.

    A job is its holder's; a shared one is of all workers that have a lease of its concurrency.

    It does not depend on the item, but for the phase: so the database asks it once and not for every item.
    """
    has_lease = exists().where(leases.c.job_id == job_id, leases.c.worker_id == worker_id, leases.c.slots > 0)
    allows = exists().where(
        jobs.c.id == job_id,
        jobs.c.state == JobState.IN_PROGRESS,
        or_(
            and_(~jobs.c.is_shared, or_(jobs.c.holder.is_(None), jobs.c.holder == worker_id)),
            and_(jobs.c.is_shared, has_lease),
        ),
        or_(
            jobs.c.throttle_until_at.is_(None),
            jobs.c.throttle_until_at <= now,
            jobs.c.throttle_until_at > now + jobs.c.throttle_wait_s + CLOCK_SLACK_S,
        ),
    )
    return or_(allows.where(jobs.c.phase == "full"), and_(items.c.is_trial, allows))


def is_alive(worker_id: int | Name[int]) -> ColumnElement[bool]:
    """Build the guard on the worker itself: one that was declared dead starts nothing when it wakes."""
    return exists().where(workers.c.id == worker_id, workers.c.ended_at.is_(None))


def has_contents() -> ColumnElement[bool]:
    """Build the guard on an item's job: its requests are there. Nothing of a purged job goes back to pending."""
    return ~exists().where(jobs.c.id == items.c.job_id, jobs.c.purge_began_at.is_not(None))


def back_to_pending() -> ColumnElement[str]:
    """Build the state of an item that would become pending: cancelled, while its job is or was being cancelled."""
    is_cancelled = exists().where(jobs.c.id == items.c.job_id, jobs.c.was_cancelled)
    return case((is_cancelled, ItemState.CANCELLED.value), else_=ItemState.PENDING.value)
