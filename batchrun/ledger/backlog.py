"""What of a job is still to be done, in the order in which it is claimed. Reading only."""

from collections.abc import Sequence
from typing import NamedTuple

from sqlalchemy import ColumnElement, Connection, func, select

from batchrun.core.states import ItemState
from batchrun.ledger.guards import is_claimable
from batchrun.ledger.schema import items


class Place(NamedTuple):
    """Where an item stands in its job's order of claims."""

    rank: int
    item_id: int


START = Place(-1, -1)  # before every item


def claimable(
    connection: Connection, job_id: int, *, after: Place, limit: int, trial_only: bool, now: float
) -> list[Place]:
    """Return the next items that may be claimed, in order."""
    found: list[Place] = []
    query = select(items.c.rank, items.c.id).where(*_of_scope(job_id, trial_only), is_claimable(now))
    # Two questions, since SQLite answers `(rank, id) > (?, ?)` by going through all that has this rank.
    for behind in ((items.c.rank == after.rank, items.c.id > after.item_id), (items.c.rank > after.rank,)):
        if len(found) < limit:
            following = query.where(*behind).order_by(items.c.rank, items.c.id).limit(limit - len(found))
            found += [Place(row.rank, row.id) for row in connection.execute(following)]
    return found


def place_of(connection: Connection, item_id: int) -> Place:
    """Return where an item stands."""
    return Place(connection.execute(select(items.c.rank).where(items.c.id == item_id)).scalar_one(), item_id)


def ranks_of(connection: Connection, item_ids: Sequence[int]) -> list[int]:
    """Return the ranks of these items, in the order given."""
    found = connection.execute(select(items.c.id, items.c.rank).where(items.c.id.in_(item_ids)))
    ranks = {row.id: row.rank for row in found}
    return [ranks[item_id] for item_id in item_ids]


def is_over(connection: Connection, job_id: int, *, trial_only: bool) -> bool:
    """Say whether no item of the job, or of its trial, is pending or running, wherever it runs."""
    unfinished = items.c.state.in_((ItemState.PENDING, ItemState.RUNNING))
    found = select(items.c.id).where(*_of_scope(job_id, trial_only), items.c.is_current, unfinished).limit(1)
    return connection.execute(found).scalar() is None


def next_ready_at(connection: Connection, job_id: int, *, trial_only: bool) -> float | None:
    """Return when the next pending item's wait is over; None when nothing is pending."""
    pending = (*_of_scope(job_id, trial_only), items.c.is_current, items.c.state == ItemState.PENDING)
    return connection.execute(select(func.min(items.c.not_before_at)).where(*pending)).scalar()


def _of_scope(job_id: int, trial_only: bool) -> tuple[ColumnElement[bool], ...]:
    """Build the condition on the items of a job, or of its trial: those few are looked up first, and then the rest."""
    if not trial_only:
        return (items.c.job_id == job_id,)
    tried = items.alias("tried")
    return (items.c.id.in_(select(tried.c.id).where(tried.c.job_id == job_id, tried.c.is_trial)),)
