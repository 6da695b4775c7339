"""The items that stopped short of an answer, one by one, for people to look through. Reading only."""

from collections.abc import Collection, Iterator, Sequence
from typing import Any

from sqlalchemy import Row, Select, select

from batchrun.core.states import ItemState
from batchrun.ledger.ledger import Ledger
from batchrun.ledger.schema import items

STOPPED = (ItemState.FAILED, ItemState.IN_DOUBT, ItemState.REJECTED)


def stream_stopped(
    ledger: Ledger,
    job_id: int,
    *,
    causes: Sequence[str] = (),
    states: Collection[ItemState] = STOPPED,
    chunk: int = 2_000,
) -> Iterator[Row[Any]]:
    """Yield a job's stopped items in input order, `chunk` to a transaction: custom_id, line_no, state, cause, message.

    Args:
        causes: only these; none means all.
    """
    columns = (items.c.position, items.c.custom_id, items.c.line_no, items.c.state, items.c.cause, items.c.message)
    query: Select[Any] = (
        select(*columns)
        .where(items.c.job_id == job_id, items.c.is_current, items.c.state.in_([state.value for state in states]))
        .order_by(items.c.position)
        .limit(chunk)
    )
    if causes:
        query = query.where(items.c.cause.in_(causes))
    after = -1
    while True:
        with ledger.read() as connection:
            rows = connection.execute(query.where(items.c.position > after)).all()
        yield from rows
        if len(rows) < chunk:
            return
        after = rows[-1].position
