"""Items with the attempt that tells their story, for outputs and samples. Reading only, in short transactions."""

from array import array
from collections.abc import Collection, Iterator, Sequence
from functools import cache
from itertools import starmap
from typing import Any, NamedTuple

from sqlalchemy import Connection, Select, bindparam, case, false, func, select

from batchrun.core.states import AttemptState, ItemState
from batchrun.ledger.ledger import Ledger
from batchrun.ledger.schema import FENCE_BITS, answers, attempts, copies, items, requests


class Result(NamedTuple):
    """An item, and the attempt that tells its story. Its fields are the columns of `_query`, in that order."""

    id: int
    position: int
    line_no: int
    custom_id: str
    state: str
    fence: int
    model: str | None
    item_cause: str | None
    item_message: str | None
    attempts_count: int  # requests made or begun
    key: int | None  # of the telling attempt; None where there was none
    attempt_state: str | None
    endpoint: str | None
    sent_at: float | None
    duration_s: float | None
    http_status: int | None
    finish_reason: str | None
    warning: str | None
    prompt_tokens: int | None
    completion_tokens: int | None
    charge: str | None
    cost_pusd: int | None
    reserved_pusd: int | None
    request_id: str | None
    response_id: str | None
    is_copied: bool  # the answer is another item's
    raw: bytes | None
    path: str | None = None  # of the request, where that was asked for
    body: bytes | None = None


@cache
def _query(with_requests: bool = False) -> Select[Any]:
    """Build the query once. The telling attempt is the one that answered, or else the last one made."""
    mine = (
        attempts.c.key > items.c.id * (1 << FENCE_BITS),
        attempts.c.key < (items.c.id + 1) * (1 << FENCE_BITS),
    )
    last = select(func.max(attempts.c.key)).where(*mine).scalar_subquery()
    is_copied = func.coalesce(items.c.answer_key // (1 << FENCE_BITS) != items.c.id, false())
    made = (
        select(func.count())
        .select_from(attempts)
        .where(*mine, attempts.c.state != AttemptState.NOT_SENT.value)
        .scalar_subquery()
    )
    telling = attempts.alias("telling")
    query = (
        select(
            items.c.id,
            items.c.position,
            items.c.line_no,
            items.c.custom_id,
            items.c.state,
            items.c.fence,
            items.c.model,
            items.c.cause.label("item_cause"),
            items.c.message.label("item_message"),
            made.label("attempts_count"),
            telling.c.key,
            telling.c.state.label("attempt_state"),
            telling.c.endpoint,
            telling.c.sent_at,
            telling.c.duration_s,
            telling.c.http_status,
            telling.c.finish_reason,
            telling.c.warning,
            telling.c.prompt_tokens,
            telling.c.completion_tokens,
            telling.c.charge,
            telling.c.cost_pusd,
            telling.c.reserved_pusd,
            telling.c.request_id,
            telling.c.response_id,
            is_copied.label("is_copied"),
            case((is_copied, copies.c.raw), else_=answers.c.raw).label("raw"),
        )
        .select_from(items)
        .outerjoin(telling, telling.c.key == func.coalesce(items.c.answer_key, last))
        .outerjoin(answers, answers.c.key == telling.c.key)
        .outerjoin(copies, copies.c.item_id == items.c.id)
        .where(items.c.is_current)
        .order_by(items.c.position)
    )
    if not with_requests:
        return query
    return query.outerjoin(requests, requests.c.item_id == items.c.id).add_columns(requests.c.path, requests.c.body)


def results_of(
    connection: Connection, job_id: int, item_ids: Collection[int], *, with_requests: bool = False
) -> Sequence[Result]:
    """Return these items in input order."""
    # Without the sum both databases would be tempted to walk through all of the job.
    query = _query(with_requests).where(items.c.id.in_(item_ids), items.c.job_id + 0 == job_id)
    return list(starmap(Result, connection.execute(query)))


def stream_results(
    ledger: Ledger,
    job_id: int,
    *,
    states: Collection[ItemState] = tuple(ItemState),
    chunk: int = 1_000,
    with_requests: bool = False,
) -> Iterator[Result]:
    """Yield the job's items in these states in input order, at most `chunk` to a transaction; of large ones fewer.

    Args:
        with_requests: each row has the request's `path` and `body` too; None where there is none.
    """
    query = _query(with_requests).where(items.c.job_id == job_id, items.c.position > bindparam("after"))
    query = query.limit(bindparam("how_many"))
    if len(states) < len(ItemState):
        query = query.where(items.c.state.in_([state.value for state in states]))
    after, how_many = -1, min(chunk, _FIRST)
    while True:
        with ledger.read() as connection:
            rows = list(starmap(Result, connection.execute(query, {"after": after, "how_many": how_many})))
        yield from rows
        if len(rows) < how_many:
            return
        after, how_many = rows[-1].position, min(chunk, _fitting(rows))


def in_order_of_finish(ledger: Ledger, job_id: int, *, states: Collection[ItemState]) -> "array[int]":
    """Return the ids of the job's items in these states by the end of their telling attempt; those without one last."""
    mine = (attempts.c.key > items.c.id * (1 << FENCE_BITS), attempts.c.key < (items.c.id + 1) * (1 << FENCE_BITS))
    last = select(func.max(attempts.c.key)).where(*mine).scalar_subquery()
    telling = attempts.alias("telling")
    query = (
        select(items.c.id)
        .outerjoin(telling, telling.c.key == func.coalesce(items.c.answer_key, last))
        .where(items.c.job_id == job_id, items.c.is_current, items.c.state.in_([state.value for state in states]))
        .order_by(telling.c.ended_at.is_(None), telling.c.ended_at, items.c.position)
    )
    with ledger.read() as connection:
        found = connection.execution_options(yield_per=10_000).execute(query).scalars()
        return array("q", found)


def results_in_order(
    ledger: Ledger, job_id: int, item_ids: Sequence[int], *, chunk: int = 1_000, with_requests: bool = False
) -> Iterator[Result]:
    """Yield these items in the order given, at most `chunk` to a transaction; of large ones fewer."""
    start, how_many = 0, min(chunk, _FIRST)
    while start < len(item_ids):
        wanted = list(item_ids[start : start + how_many])
        with ledger.read() as connection:
            rows = results_of(connection, job_id, wanted, with_requests=with_requests)
        by_id = {row.id: row for row in rows}
        yield from (by_id[item_id] for item_id in wanted if item_id in by_id)
        start, how_many = start + how_many, min(chunk, _fitting(rows))


def answered_by_name(connection: Connection, job_id: int, custom_ids: Sequence[str]) -> dict[str, bytes | None]:
    """Return the answers of these items as they came, by name; without an answer they are not there, purged: None."""
    found = select(items.c.id).where(
        items.c.job_id == job_id,
        items.c.is_current,
        items.c.custom_id.in_(custom_ids),
        items.c.state == ItemState.COMPLETED.value,
    )
    ids = connection.execute(found).scalars().all()
    return {row.custom_id: row.raw for row in results_of(connection, job_id, ids)}


def paths_of(connection: Connection, item_ids: Sequence[int]) -> dict[int, str]:
    """Return the paths of these items' requests, as far as they are there: a purge takes them."""
    found: dict[int, str] = {}
    for start in range(0, len(item_ids), 500):
        chunk = item_ids[start : start + 500]
        rows = connection.execute(select(requests.c.item_id, requests.c.path).where(requests.c.item_id.in_(chunk)))
        found |= {row.item_id: row.path for row in rows}
    return found


def asks_for(connection: Connection, job_id: int, *, path: str) -> bool:
    """Say whether any request of the job goes to this path."""
    asked = select(requests.c.item_id).join(items, items.c.id == requests.c.item_id)
    found = asked.where(items.c.job_id == job_id, items.c.is_current, requests.c.path == path).limit(1)
    return connection.execute(found).first() is not None


_FIRST = 50  # how large the items are is not known yet
_CHUNK_BYTES = 16_000_000


def _fitting(rows: Sequence[Result]) -> int:
    """Return how many more items like these fit into a chunk, and at most twice as many as there were."""
    size_bytes = sum(len(row.raw or b"") + len(row.body or b"") for row in rows)
    return max(1, min(2 * len(rows), len(rows) * _CHUNK_BYTES // max(1, size_bytes)))
