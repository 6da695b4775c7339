"""The log of what happened to a job: for people and for the proof; nothing is decided by it."""

import json
from collections.abc import Mapping
from typing import Any

from sqlalchemy import Connection, insert, select

from batchrun.ledger.schema import events


def record_event(
    connection: Connection,
    job_id: int,
    kind: str,
    *,
    at: float,
    item_id: int | None = None,
    detail: Mapping[str, Any] | None = None,
) -> None:
    """Write one event."""
    text = None if detail is None else json.dumps(detail, default=str)
    connection.execute(insert(events).values(job_id=job_id, item_id=item_id, at=at, kind=kind, detail=text))


def read_events(
    connection: Connection, job_id: int, *, kind: str | None = None, latest: int | None = None
) -> list[dict[str, Any]]:
    """Return a job's events, oldest first; only so many of the latest ones where that is said."""
    query = select(events).where(events.c.job_id == job_id)
    if kind is not None:
        query = query.where(events.c.kind == kind)
    newest_first = connection.execute(query.order_by(events.c.id.desc()).limit(latest)).all()
    return [
        {
            "at": row.at,
            "kind": row.kind,
            "item_id": row.item_id,
            "detail": json.loads(row.detail) if row.detail else None,
        }
        for row in reversed(newest_first)
    ]
