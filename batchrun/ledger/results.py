"""Items with the attempt that tells their story, for outputs and samples. Reading only, in short transactions."""

from collections.abc import Collection, Iterator, Sequence
from functools import cache
from typing import Any

from sqlalchemy import Connection, Row, Select, bindparam, func, select

from batchrun.core.states import AttemptState, ItemState
from batchrun.ledger.ledger import Ledger
from batchrun.ledger.schema import FENCE_BITS, answers, attempts, items

Result = Row[Any]


@cache
def _query() -> Select[Any]:
    """Build the query once. The telling attempt is the one that answered, or else the last one made."""
    mine = (
        attempts.c.key > items.c.id * (1 << FENCE_BITS),
        attempts.c.key < (items.c.id + 1) * (1 << FENCE_BITS),
    )
    last = select(func.max(attempts.c.key)).where(*mine).scalar_subquery()
    made = (
        select(func.count())
        .select_from(attempts)
        .where(*mine, attempts.c.state != AttemptState.NOT_SENT.value)
        .scalar_subquery()
    )
    telling = attempts.alias("telling")
    return (
        select(
            items.c.id,
            items.c.position,
            items.c.custom_id,
            items.c.state,
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
            answers.c.raw,
        )
        .select_from(items)
        .outerjoin(telling, telling.c.key == func.coalesce(items.c.answer_key, last))
        .outerjoin(answers, answers.c.key == telling.c.key)
        .where(items.c.is_current)
        .order_by(items.c.position)
    )


def results_of(connection: Connection, job_id: int, item_ids: Collection[int]) -> Sequence[Result]:
    """Return these items in input order."""
    # `=` on the job would tempt Postgres to walk through all of it.
    query = _query().where(items.c.id.in_(item_ids), items.c.job_id.is_not_distinct_from(job_id))
    return connection.execute(query).all()


def stream_results(
    ledger: Ledger, job_id: int, *, states: Collection[ItemState] = tuple(ItemState), chunk: int = 1_000
) -> Iterator[Result]:
    """Yield the job's items in these states in input order, `chunk` to a transaction."""
    query = _query().where(items.c.job_id == job_id, items.c.position > bindparam("after")).limit(chunk)
    if len(states) < len(ItemState):
        query = query.where(items.c.state.in_([state.value for state in states]))
    after = -1
    while True:
        with ledger.read() as connection:
            rows = connection.execute(query, {"after": after}).all()
        yield from rows
        if len(rows) < chunk:
            return
        after = rows[-1].position
