"""completed <-> failed (invalid_answer): a stored answer judged anew. Nothing is sent, and nothing is paid."""

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import Connection, bindparam, update

from batchrun.core.outcome import INVALID_ANSWER
from batchrun.core.states import ItemState
from batchrun.ledger.guards import has_contents, lock_jobs, stands_in
from batchrun.ledger.ledger import storable
from batchrun.ledger.schema import FENCE_BITS, attempts, items


@dataclass(frozen=True, slots=True)
class Verdict:
    """What one item's answer is, judged anew: the item must still stand as it was read."""

    item_id: int
    fence: int
    answer_key: int
    was: ItemState  # completed, or failed for an invalid answer
    fault: str | None  # why it is invalid; None: it is what the job wants

    @property
    def is_move(self) -> bool:
        return (self.was is ItemState.COMPLETED) == (self.fault is not None)


_AS_READ = (
    items.c.id == bindparam("the_item"),
    items.c.fence == bindparam("the_fence"),
    items.c.answer_key == bindparam("the_answer"),
    items.c.is_current,
    stands_in("revalidate"),
    has_contents(),
)
_FAIL = (
    update(items)
    .where(*_AS_READ, items.c.state == ItemState.COMPLETED.value)
    .values(
        state=ItemState.FAILED.value, cause=INVALID_ANSWER, message=bindparam("words"), fence=bindparam("the_fence") + 1
    )
)
_IS_INVALID = (items.c.state == ItemState.FAILED.value, items.c.cause == INVALID_ANSWER)
_COMPLETE = (
    update(items)
    .where(*_AS_READ, *_IS_INVALID)
    .values(state=ItemState.COMPLETED.value, cause=None, message=None, fence=bindparam("the_fence") + 1)
)
_EXPLAIN = update(items).where(*_AS_READ, *_IS_INVALID).values(message=bindparam("words"))
# The attempt says the same as its item; what it came to and what it cost stays.
_NOTE = (
    update(attempts)
    .where(
        attempts.c.key == bindparam("the_answer"),
        attempts.c.key // (1 << FENCE_BITS) == bindparam("the_item"),  # a copy's is another item's
    )
    .values(cause=bindparam("why"), message=bindparam("words"))
)


def revalidate(connection: Connection, job_id: int, verdicts: Sequence[Verdict]) -> tuple[int, int]:
    """Move each item as its verdict says, where it stands as it was read; return how many (completed, failed)."""
    lock_jobs(connection, [job_id])
    completed = failed = 0
    for one in verdicts:
        words = storable(one.fault)
        read = {"the_item": one.item_id, "the_fence": one.fence, "the_answer": one.answer_key}
        statement = _EXPLAIN if not one.is_move else _COMPLETE if one.fault is None else _FAIL
        values = read if statement is _COMPLETE else {**read, "words": words}
        if not connection.execute(statement, values).rowcount:
            continue
        why = None if one.fault is None else INVALID_ANSWER
        connection.execute(_NOTE, {"the_answer": one.answer_key, "the_item": one.item_id, "why": why, "words": words})
        completed += one.is_move and one.fault is None
        failed += one.is_move and one.fault is not None
    return completed, failed
