"""Which items are a trial's, and what the ledger knows of it beside its answers: requests, setbacks, what is left."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Select, and_, case, func, select, update

from batchrun.core.outcome import RELEASED, Charge
from batchrun.core.states import AttemptState, ItemState
from batchrun.ledger.schema import FENCE_BITS, attempts, items, requests


def request_bodies(connection: Connection, item_ids: Sequence[int]) -> dict[int, bytes]:
    """Return the request bodies of these items, by item id; a body that is gone is left out."""
    rows = connection.execute(
        select(requests.c.item_id, requests.c.body).where(
            requests.c.item_id.in_(item_ids), requests.c.body.is_not(None)
        )
    )
    return {row.item_id: bytes(row.body) for row in rows}


def trial_setbacks(connection: Connection, job_id: int) -> dict[str, int]:
    """Count the trial's attempts that ended without an answer, by cause, those later made good among them."""
    rows = connection.execute(
        select(attempts.c.cause, func.count().label("how_many"))
        .join(items, items.c.id == attempts.c.key // (1 << FENCE_BITS))
        .where(
            attempts.c.job_id == job_id,
            items.c.is_trial,
            attempts.c.state.in_([state for state in AttemptState if state.is_setback]),
            attempts.c.cause != RELEASED,
        )
        .group_by(attempts.c.cause)
    )
    return {row.cause: row.how_many for row in rows}


def mark_trial(connection: Connection, job_id: int, item_ids: Collection[int]) -> None:
    """Make these items of a job that is being registered the ones that are tried first."""
    ids = sorted(item_ids)
    for start in range(0, len(ids), 500):
        mine = (items.c.job_id == job_id, items.c.id.in_(ids[start : start + 500]))
        connection.execute(update(items).where(*mine).values(is_trial=True))


def stream_lengths(connection: Connection, job_id: int, *, limit: int | None = None) -> Iterator[tuple[int, int]]:
    """Yield id and length, in bytes of the request's body, of each item that has a request, in input order."""
    query = _lengths(job_id, items.c.id, _LENGTH).order_by(items.c.position).limit(limit)
    rows = connection.execute(query.execution_options(yield_per=10_000))
    yield from ((row.id, row.length) for row in rows)


def count_lengths(connection: Connection, job_id: int, *, left_only: bool = False) -> dict[int, int]:
    """Count a job's requests by their length in bytes; with `left_only` those of items that are pending or running."""
    query = _lengths(job_id, _LENGTH, func.count().label("how_many")).group_by(_LENGTH)
    if left_only:
        query = query.where(items.c.state.in_((ItemState.PENDING, ItemState.RUNNING)))
    return {row.length: row.how_many for row in connection.execute(query)}


_LENGTH = func.length(requests.c.body).label("length")


def _lengths(job_id: int, *columns: Any) -> Select[Any]:
    joined = select(*columns).join_from(items, requests, requests.c.item_id == items.c.id)
    return joined.where(items.c.job_id == job_id, items.c.is_current)


@dataclass(frozen=True, slots=True)
class Tried:
    """A trial's item that is no longer under way, and what its attempts came to."""

    item_id: int
    state: ItemState
    cause: str | None
    length: int  # bytes of the request's body
    cost_pusd: int  # certain, and the most that is possible
    unbounded: int  # attempts whose cost nobody can tell


def tried_items(connection: Connection, job_id: int) -> list[Tried]:
    """Return the trial's items that have ended, each with the cost of all its attempts."""
    ended = items.c.state.not_in((ItemState.PENDING, ItemState.RUNNING))
    mine = and_(attempts.c.key > items.c.id * (1 << FENCE_BITS), attempts.c.key < (items.c.id + 1) * (1 << FENCE_BITS))
    is_blank = attempts.c.cost_pusd.is_(None) & (attempts.c.reserved_pusd == 0)
    rows = connection.execute(
        select(
            items.c.id,
            items.c.state,
            items.c.cause,
            _LENGTH,
            func.coalesce(func.sum(func.coalesce(attempts.c.cost_pusd, 0) + attempts.c.reserved_pusd), 0).label("cost"),
            func.sum(case((is_blank & (attempts.c.charge != Charge.NONE.value), 1), else_=0)).label("unbounded"),
        )
        .join_from(items, requests, requests.c.item_id == items.c.id)
        .outerjoin(attempts, mine)
        .where(items.c.job_id == job_id, items.c.is_trial, items.c.is_current, ended)
        .group_by(items.c.id, requests.c.item_id)
    )
    return [
        Tried(row.id, ItemState(row.state), row.cause, int(row.length), int(row.cost), int(row.unbounded or 0))
        for row in rows
    ]


def models_not_found(connection: Connection, job_id: int, *, limit: int = 3) -> list[str]:
    """Return the models that pending items of the job were refused for, the first ones."""
    rows = connection.execute(
        select(items.c.model)
        .where(
            items.c.job_id == job_id,
            items.c.is_current,
            items.c.state == ItemState.PENDING,
            items.c.cause == "model_not_found",
        )
        .group_by(items.c.model)
        .order_by(func.min(items.c.id))
        .limit(limit)
    ).scalars()
    return [model for model in rows if model is not None]


def models_asked(connection: Connection, job_id: int, *, looked_at: int = 1_000, limit: int = 10) -> list[str]:
    """Return the models that the job's first pending items ask for, some of them."""
    first = (
        select(items.c.model)
        .where(items.c.job_id == job_id, items.c.is_current, items.c.state == ItemState.PENDING)
        .limit(looked_at)
        .subquery()
    )
    rows = connection.execute(select(first.c.model).where(first.c.model.is_not(None)).distinct().limit(limit))
    return sorted(rows.scalars())


def answered_routes(connection: Connection, job_id: int, *, endpoint: str) -> set[str]:
    """Return the routes on which this endpoint has answered items of the job. Reads all of its answered attempts."""
    rows = connection.execute(
        select(requests.c.path)
        .join(attempts, requests.c.item_id == attempts.c.key // (1 << FENCE_BITS))
        .where(attempts.c.job_id == job_id, attempts.c.state == AttemptState.ANSWERED, attempts.c.endpoint == endpoint)
        .distinct()
    ).scalars()
    return set(rows)
