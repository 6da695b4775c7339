"""- -> pending or rejected: writing a job's items, and comparing a changed input with what the ledger has."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from sqlalchemy import Connection, and_, delete, exists, func, insert, or_, select, update

from batchrun.core.states import ItemState
from batchrun.errors import IllegalMove
from batchrun.ledger.events import record_event
from batchrun.ledger.ledger import Ledger
from batchrun.ledger.schema import incoming, items, jobs, ledgers, requests

CHUNK = 10_000


@dataclass(frozen=True, slots=True)
class Line:
    """One input line as the ledger takes it; without a body it is a rejected line."""

    position: int
    line_no: int
    custom_id: str
    request_digest: bytes | None
    model: str | None
    note: str | None
    path: str | None
    body: bytes | None
    worst_pusd: int | None


@dataclass(frozen=True, slots=True)
class Changes:
    """How a changed input differs from the job's items, in items."""

    unchanged: int
    changed: int
    new: int
    removed: int
    busy: int  # changed or removed ones that are running or in doubt

    @property
    def is_none(self) -> bool:
        return not (self.changed or self.new or self.removed)


def write_items(ledger: Ledger, job_id: int, lines: Iterable[Line], *, trial: Collection[int], now: float) -> int:
    """Write a validating job's items in chunks, each chunk one transaction; return how many.

    Args:
        trial: positions of the items that are tried first.
    """
    count = 0
    for chunk in _chunks(lines):
        with ledger.write() as connection:
            _insert(connection, job_id, chunk, trial=trial, now=now)
        count += len(chunk)
    return count


def forget_items(ledger: Ledger, job_id: int) -> None:
    """Delete what a registration that died had written. None of it was ever claimable."""
    with ledger.write() as connection:
        mine = select(items.c.id).where(items.c.job_id == job_id)
        connection.execute(delete(requests).where(requests.c.item_id.in_(mine)))
        connection.execute(delete(items).where(items.c.job_id == job_id))


def _chunks(lines: Iterable[Line]) -> Iterator[Sequence[Line]]:
    iterator = iter(lines)
    while chunk := list(islice(iterator, CHUNK)):
        yield chunk


def _reserve_ids(connection: Connection, count: int) -> int:
    following: int = connection.execute(
        update(ledgers).values(next_item_id=ledgers.c.next_item_id + count).returning(ledgers.c.next_item_id)
    ).scalar_one()
    return following - count


def _insert(
    connection: Connection, job_id: int, lines: Sequence[Line], *, trial: Collection[int], now: float, revision: int = 1
) -> None:
    first = _reserve_ids(connection, len(lines))
    connection.execute(
        insert(items),
        [
            {
                "id": first + number,
                "job_id": job_id,
                "position": line.position,
                "line_no": line.line_no,
                "custom_id": line.custom_id,
                "revision": revision,
                "is_current": True,
                "is_trial": line.position in trial,
                "request_digest": line.request_digest,
                "model": line.model,
                "note": line.note,
                "state": (ItemState.REJECTED if line.body is None else ItemState.PENDING).value,
                "fence": 0,
                "tries": 0,
                "throttled_s": 0.0,
                "consents": 0,
                "not_before_at": now,
                "wait_s": 0.0,
                "worst_pusd": line.worst_pusd,
                "cause": "rejected" if line.body is None else None,
                "message": line.note if line.body is None else None,
            }
            for number, line in enumerate(lines)
        ],
    )
    bodies = [
        {"item_id": first + number, "path": line.path, "body": line.body}
        for number, line in enumerate(lines)
        if line.body is not None
    ]
    if bodies:
        connection.execute(insert(requests), bodies)


def stage(ledger: Ledger, job_id: int, lines: Iterable[Line]) -> None:
    """Write the lines of a changed input beside the job, to be compared. Nothing of the job changes."""
    with ledger.write() as connection:
        connection.execute(delete(incoming).where(incoming.c.job_id == job_id))
    for chunk in _chunks(lines):
        with ledger.write() as connection:
            connection.execute(
                insert(incoming),
                [
                    {
                        "job_id": job_id,
                        **{name: getattr(line, name) for name in Line.__dataclass_fields__},
                    }
                    for line in chunk
                ],
            )


def unstage(ledger: Ledger, job_id: int) -> None:
    """Drop the staged lines."""
    with ledger.write() as connection:
        connection.execute(delete(incoming).where(incoming.c.job_id == job_id))


def compare(connection: Connection, job_id: int) -> Changes:
    """Compare the staged lines with the job's current items, by id and request digest."""
    mine = and_(items.c.job_id == job_id, items.c.is_current)
    joined = incoming.join(items, and_(mine, items.c.custom_id == incoming.c.custom_id))
    staged = incoming.c.job_id == job_id
    count = select(func.count())
    both = connection.execute(count.select_from(joined).where(staged)).scalar_one()
    changed = connection.execute(count.select_from(joined).where(staged, _differs())).scalar_one()
    total_staged = connection.execute(count.select_from(incoming).where(staged)).scalar_one()
    total_mine = connection.execute(count.select_from(items).where(mine)).scalar_one()
    busy_states = items.c.state.in_((ItemState.RUNNING, ItemState.IN_DOUBT))
    busy = connection.execute(
        count.select_from(items).where(mine, busy_states, or_(_is_removed(job_id), _is_changed(job_id)))
    ).scalar_one()
    return Changes(
        unchanged=both - changed, changed=changed, new=total_staged - both, removed=total_mine - both, busy=busy
    )


def _differs() -> Any:
    return items.c.request_digest.is_distinct_from(incoming.c.request_digest)


def _is_changed(job_id: int) -> Any:
    return exists().where(incoming.c.job_id == job_id, incoming.c.custom_id == items.c.custom_id, _differs())


def _is_removed(job_id: int) -> Any:
    return ~exists().where(incoming.c.job_id == job_id, incoming.c.custom_id == items.c.custom_id)


def accept(
    ledger: Ledger,
    job_id: int,
    *,
    input_digest: str,
    params_digest: str,
    spec: str,
    trial: Collection[int],
    now: float,
) -> Changes:
    """Make the staged lines the job's input: unchanged items kept, changed ones a new revision, removed ones superseded.

    Raises:
        IllegalMove: a changed or removed item is running or in doubt. Nothing was changed.
    """
    with ledger.write() as connection:
        changes = compare(connection, job_id)
        if changes.busy:
            raise IllegalMove(
                f"{changes.busy:,} changed or removed items are running or in doubt",
                hint="settle them first: batchrun reconcile",
            )
        mine = and_(items.c.job_id == job_id, items.c.is_current)
        was = items.alias("was")
        fresh = connection.execute(
            select(
                incoming,
                func.coalesce(
                    select(func.max(was.c.revision))
                    .where(was.c.job_id == job_id, was.c.custom_id == incoming.c.custom_id)
                    .scalar_subquery(),
                    0,
                ).label("last_revision"),
            ).where(
                incoming.c.job_id == job_id,
                ~exists().where(mine, items.c.custom_id == incoming.c.custom_id, ~_differs()),
            )
        ).all()
        connection.execute(
            update(items)
            .where(mine, or_(_is_removed(job_id), _is_changed(job_id)))
            .values(is_current=False, fence=items.c.fence + 1)
        )
        for field in ("position", "line_no"):
            source = select(incoming.c[field]).where(
                incoming.c.job_id == job_id, incoming.c.custom_id == items.c.custom_id
            )
            connection.execute(update(items).where(mine).values({field: source.scalar_subquery()}))
        by_revision: dict[int, list[Line]] = {}
        for row in fresh:
            line = Line(**{name: getattr(row, name) for name in Line.__dataclass_fields__})
            by_revision.setdefault(row.last_revision + 1, []).append(line)
        for revision, lines in by_revision.items():
            for start in range(0, len(lines), CHUNK):
                _insert(connection, job_id, lines[start : start + CHUNK], trial=trial, now=now, revision=revision)
        total = connection.execute(select(func.count()).select_from(items).where(mine)).scalar_one()
        connection.execute(
            update(jobs)
            .where(jobs.c.id == job_id)
            .values(input_digest=input_digest, params_digest=params_digest, spec=spec, total=total)
        )
        connection.execute(delete(incoming).where(incoming.c.job_id == job_id))
        detail = {name: getattr(changes, name) for name in Changes.__dataclass_fields__}
        record_event(connection, job_id, "changes_accepted", at=now, detail=detail)
        return changes
