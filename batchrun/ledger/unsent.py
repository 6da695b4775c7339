"""What is worked out of requests before they are sent, when a job's spec is told anew: cost at most, and order."""

from collections.abc import Iterator, Sequence

from sqlalchemy import Connection, bindparam, func, select, update

from batchrun.core.states import ItemState
from batchrun.ledger.ledger import Ledger
from batchrun.ledger.schema import items, requests

CHUNK = 500
_OF_ITEM = update(items).where(items.c.id == bindparam("the_item"))
_WORST = _OF_ITEM.values(worst_pusd=bindparam("worst"))
_RANK = _OF_ITEM.values(rank=bindparam("the_rank"))


def requests_left(ledger: Ledger, job_id: int) -> Iterator[list[tuple[int, str, bytes]]]:
    """Yield id, path and body of the items that may yet be sent, some at a time."""
    after = -1
    mine = (items.c.job_id == job_id, items.c.is_current, items.c.state != ItemState.COMPLETED)
    query = select(items.c.id, requests.c.path, requests.c.body).join(requests, requests.c.item_id == items.c.id)
    while True:
        with ledger.read() as connection:
            found = connection.execute(query.where(*mine, items.c.id > after).order_by(items.c.id).limit(CHUNK)).all()
        if not found:
            return
        yield [(row.id, row.path, bytes(row.body)) for row in found]
        after = found[-1].id


def count_unbounded(connection: Connection, job_id: int) -> int:
    """Count the items that may yet be sent of which it is not known how much they can cost."""
    ended = (ItemState.COMPLETED, ItemState.REJECTED)
    query = select(func.count()).where(
        items.c.job_id == job_id, items.c.is_current, items.c.state.not_in(ended), items.c.worst_pusd.is_(None)
    )
    return connection.execute(query).scalar_one()


def write_worst(ledger: Ledger, worst: Sequence[tuple[int, int | None]]) -> None:
    """Note the most that an attempt of each of these can cost. What is reserved already stays as it is."""
    with ledger.write() as connection:
        connection.execute(_WORST, [{"the_item": item_id, "worst": pusd} for item_id, pusd in worst])


def write_ranks(ledger: Ledger, ranks: Sequence[tuple[int, int]]) -> None:
    """Give each of these its rank in the order of claims."""
    with ledger.write() as connection:
        connection.execute(_RANK, [{"the_item": item_id, "the_rank": rank} for item_id, rank in ranks])
