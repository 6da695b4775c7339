"""What the ledger knows of a trial beside its answers: requests, setbacks, what is left. Reading only."""

from collections.abc import Sequence

from sqlalchemy import Connection, func, select

from batchrun.core.outcome import RELEASED
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


def pending_bytes(connection: Connection, job_id: int) -> int:
    """Return how large the request bodies of the items still pending are, all together."""
    waiting = (items.c.job_id == job_id, items.c.is_current, items.c.state == ItemState.PENDING)
    total = connection.execute(
        select(func.sum(func.length(requests.c.body))).join(items, items.c.id == requests.c.item_id).where(*waiting)
    ).scalar()
    return int(total or 0)


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


def answered_routes(connection: Connection, job_id: int, *, endpoint: str) -> set[str]:
    """Return the routes on which this endpoint has answered items of the job. Reads all of its answered attempts."""
    rows = connection.execute(
        select(requests.c.path)
        .join(attempts, requests.c.item_id == attempts.c.key // (1 << FENCE_BITS))
        .where(attempts.c.job_id == job_id, attempts.c.state == AttemptState.ANSWERED, attempts.c.endpoint == endpoint)
        .distinct()
    ).scalars()
    return set(rows)
