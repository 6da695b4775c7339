"""- -> pending or rejected: writing a job's items."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from sqlalchemy import Connection, delete, select, update

from batchrun.core.states import ItemState, JobState
from batchrun.errors import IllegalMove
from batchrun.ledger.bulk import insert_many, refresh_statistics
from batchrun.ledger.guards import lock_jobs
from batchrun.ledger.ledger import Ledger, storable
from batchrun.ledger.schema import items, jobs, ledgers, requests

CHUNK = 10_000
CHUNK_BYTES = 16_000_000  # of request bodies: a few large lines fill a chunk as well


class Line(NamedTuple):
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
    rank: int = 0  # in the order of claims


def write_items(ledger: Ledger, job_id: int, lines: Iterable[Line], *, trial: Collection[int], now: float) -> int:
    """Write a validating job's items in chunks, each chunk one transaction; return how many.

    Args:
        trial: positions of the items that are tried first.

    Raises:
        IllegalMove: another process has taken the registration over; nothing more was written.
    """
    with ledger.read() as connection:
        registrar = _registrar(connection, job_id)
    count = 0
    for chunk in chunks(lines):
        with ledger.write() as connection:
            lock_jobs(connection, [job_id])
            if registrar is None or _registrar(connection, job_id) != registrar:
                raise IllegalMove(
                    "the job is not, or no longer, being registered by this process", hint="submit its spec again"
                )
            insert_lines(connection, job_id, [(line, 1) for line in chunk], trial=trial, now=now)
        # crash point: register-chunk
        count += len(chunk)
    refresh_statistics(ledger, items)
    return count


def _registrar(connection: Connection, job_id: int) -> tuple[Any, ...] | None:
    """Return who registers the job, and since when; None when nobody does."""
    query = select(jobs.c.holder, jobs.c.held_since_at)
    row = connection.execute(query.where(jobs.c.id == job_id, jobs.c.state == JobState.VALIDATING)).one_or_none()
    return None if row is None else tuple(row)


def forget_items(ledger: Ledger, job_id: int) -> None:
    """Delete what a registration that died had written. None of it was ever claimable.

    Raises:
        IllegalMove: the job is registered, and its items may have been sent. Nothing was deleted.
    """
    with ledger.write() as connection:
        lock_jobs(connection, [job_id])
        if _registrar(connection, job_id) is None:
            raise IllegalMove(
                "the items of a registered job are not forgotten: they may have been sent", hint="submit its spec again"
            )
        mine = select(items.c.id).where(items.c.job_id == job_id)
        connection.execute(delete(requests).where(requests.c.item_id.in_(mine)))
        connection.execute(delete(items).where(items.c.job_id == job_id))


def chunks(lines: Iterable[Line]) -> Iterator[Sequence[Line]]:
    """Yield lines in parts that one transaction may write."""
    chunk: list[Line] = []
    size_bytes = 0
    for line in lines:
        chunk.append(line)
        size_bytes += len(line.body or b"")
        if len(chunk) >= CHUNK or size_bytes >= CHUNK_BYTES:
            yield chunk
            chunk, size_bytes = [], 0
    if chunk:
        yield chunk


def _reserve_ids(connection: Connection, count: int) -> int:
    following: int = connection.execute(
        update(ledgers).values(next_item_id=ledgers.c.next_item_id + count).returning(ledgers.c.next_item_id)
    ).scalar_one()
    return following - count


def insert_lines(
    connection: Connection, job_id: int, lines: Sequence[tuple[Line, int]], *, trial: Collection[int], now: float
) -> None:
    """Write items, each with its revision, and their requests."""
    pending, rejected, bodies = [], [], []
    for item_id, (line, revision) in enumerate(lines, _reserve_ids(connection, len(lines))):
        row = _item(item_id, line, revision, is_trial=line.position in trial)
        if line.body is None:
            rejected.append((*row, storable(line.note)))
        else:
            pending.append(row)
            bodies.append((item_id, line.path, line.body))
    fresh = {**_FRESH, "job_id": job_id, "not_before_at": now}
    insert_many(connection, items, _ITEM_COLUMNS, pending, alike={**fresh, **_PENDING})
    insert_many(connection, items, (*_ITEM_COLUMNS, "message"), rejected, alike={**fresh, **_REJECTED})
    # crash point: register-items
    insert_many(connection, requests, ("item_id", "path", "body"), bodies)


_FRESH = {  # of an item that nobody has claimed yet
    "is_current": True,
    "fence": 0,
    "tries": 0,
    "throttled_s": 0.0,
    "reasks": 0,
    "consents": 0,
    "wait_s": 0.0,
}
_PENDING = {"state": ItemState.PENDING.value}
_REJECTED = {"state": ItemState.REJECTED.value, "cause": "rejected"}
_ITEM_COLUMNS = (
    "id",
    "position",
    "line_no",
    "custom_id",
    "revision",
    "is_trial",
    "request_digest",
    "model",
    "note",
    "rank",
    "worst_pusd",
)


def _item(item_id: int, line: Line, revision: int, *, is_trial: bool) -> tuple[Any, ...]:
    """Return one row of `_ITEM_COLUMNS`."""
    return (
        item_id,
        line.position,
        line.line_no,
        line.custom_id,
        revision,
        is_trial,
        line.request_digest,
        storable(line.model),
        storable(line.note),
        line.rank,
        line.worst_pusd,
    )
