"""Attempts of unknown outcome: which there are, and what a gateway's word on their bill changes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, and_, select, update

from batchrun.core.outcome import Charge, Usage
from batchrun.core.prices import Cost
from batchrun.core.states import AttemptState
from batchrun.ledger.events import record_event
from batchrun.ledger.guards import lock_jobs, move_money
from batchrun.ledger.schema import FENCE_BITS, attempts, items, split_key, workers

_OF_ITEM = and_(
    attempts.c.key > items.c.id * (1 << FENCE_BITS),
    attempts.c.key < (items.c.id + 1) * (1 << FENCE_BITS),
)
_CHUNK = 500


@dataclass(frozen=True, slots=True)
class Unknown:
    """One attempt nobody knows the outcome of."""

    key: int
    custom_id: str
    endpoint: str
    request_id: str | None  # what the endpoint, or a gateway, called it
    sent_at: float | None
    is_answered: bool  # the item: by another attempt


def doubtful_attempts(connection: Connection, item_ids: Sequence[int]) -> dict[int, Mapping[str, Any]]:
    """Return, for each of these items, its latest attempt of unknown outcome, replays left out, with its worker."""
    found: dict[int, Mapping[str, Any]] = {}
    for start in range(0, len(item_ids), _CHUNK):
        rows = connection.execute(
            select(attempts, items.c.id.label("item_id"), workers.c.host, workers.c.folder)
            .join(items, _OF_ITEM)
            .outerjoin(workers, workers.c.id == attempts.c.worker_id)
            .where(items.c.id.in_(item_ids[start : start + _CHUNK]), _IS_UNKNOWN, attempts.c.replays.is_(None))
            .order_by(attempts.c.key)
        )
        found |= {row.item_id: dict(row._mapping) for row in rows}
    return found


def unknown_attempts(connection: Connection, item_ids: Sequence[int]) -> list[Unknown]:
    """Return all attempts of unknown outcome that these items have made, in the order of the items' ids."""
    found: list[Unknown] = []
    wanted = sorted(item_ids)
    for start in range(0, len(wanted), _CHUNK):
        mine = items.c.id.in_(wanted[start : start + _CHUNK])
        rows = connection.execute(select(*_OF_UNKNOWN).join(items, _OF_ITEM).where(mine, _IS_UNKNOWN).order_by(_KEY))
        found += [Unknown(*row) for row in rows]
    return found


def unknown_of_job(connection: Connection, job_id: int) -> list[Unknown]:
    """Return all attempts of unknown outcome of a job's items, whatever has become of these since."""
    owner = items.c.id == attempts.c.key // (1 << FENCE_BITS)
    mine = (attempts.c.job_id == job_id, _IS_UNKNOWN, items.c.is_current)
    rows = connection.execute(select(*_OF_UNKNOWN).join(items, owner).where(*mine).order_by(_KEY))
    return [Unknown(*row) for row in rows]


_KEY = attempts.c.key
_IS_UNKNOWN = attempts.c.state == AttemptState.UNKNOWN
_OF_UNKNOWN = (
    _KEY,
    items.c.custom_id,
    attempts.c.endpoint,
    attempts.c.request_id,
    attempts.c.sent_at,
    items.c.answer_key.is_not(None).label("is_answered"),
)


def note_charge(
    connection: Connection, key: int, *, usage: Usage, cost: Cost | None, reported_pusd: int | None, now: float
) -> bool:
    """An attempt stays unknown, and is charged for certain; False where that is no news.

    What it may have cost gives way to what it did cost; where that is not known, it stays reserved.
    """
    spent, on_top = (None, None) if cost is None else (cost.certain_pusd, cost.open_pusd)
    job_id = connection.execute(select(attempts.c.job_id).where(attempts.c.key == key)).scalar_one()
    lock_jobs(connection, [job_id])
    doubted = (attempts.c.key == key, attempts.c.state == AttemptState.UNKNOWN, attempts.c.charge == Charge.POSSIBLE)
    reserved = connection.execute(select(attempts.c.reserved_pusd).where(*doubted)).scalar_one_or_none()
    if reserved is None:
        return False
    connection.execute(
        update(attempts)
        .where(*doubted)
        .values(
            charge=Charge.CERTAIN.value,
            prompt_tokens=usage.prompt_tokens,
            completion_tokens=usage.completion_tokens,
            cached_tokens=usage.cached_tokens,
            cost_pusd=spent,
            reserved_pusd=reserved if on_top is None else on_top,
            reported_pusd=reported_pusd,
        )
    )
    move_money(connection, job_id, spent=spent or 0, reserved=0 if on_top is None else on_top - reserved)
    detail = {"attempt": key, "cost_pusd": spent}
    record_event(connection, job_id, "charged", at=now, item_id=split_key(key)[0], detail=detail)
    return True
