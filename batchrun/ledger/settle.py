"""Moving items by what their attempts came to: settle, adopt and correct. One transaction for all of it.

An attempt's outcome is always recorded, whoever owns the item by now: a paid answer is never dropped. The item moves
only where its guard holds.
"""

from collections.abc import Sequence
from enum import StrEnum
from typing import Any

from sqlalchemy import Connection, bindparam, exists, or_, select, update

from batchrun.core.retry import Decision, without_resend
from batchrun.core.states import AttemptState, ItemState
from batchrun.ledger.events import record_event
from batchrun.ledger.guards import lock_jobs, move_money, stands_in
from batchrun.ledger.ledger import storable
from batchrun.ledger.outcomes import Settlement as Settlement
from batchrun.ledger.outcomes import (
    keep_answers,
    keep_traces,
    objection,
    read_known,
    record,
    record_open,
    teaches,
    without_contents,
)
from batchrun.ledger.replays import with_one_bill
from batchrun.ledger.rounds import Round
from batchrun.ledger.schema import attempt_key, attempts, items, split_key


class Settled(StrEnum):
    """What became of one settlement."""

    MOVED = "moved"  # the item moved as decided
    ADOPTED = "adopted"  # late, and the item had no answer: now it has this one
    CORRECTED = "corrected"  # late, and the doubt about this attempt is over
    RECORDED = "recorded"  # only the attempt: the item had gone on without it
    REPEATED = "repeated"  # the ledger knew it already


_OWNED = (
    items.c.id == bindparam("the_item"),
    items.c.fence == bindparam("the_fence"),
    items.c.worker_id == bindparam("the_worker"),
    stands_in("settle"),
)
_COMPLETE = Round(
    update(items)
    .where(*_OWNED)
    .values(
        state=ItemState.COMPLETED.value,
        worker_id=None,
        answer_key=bindparam("the_key"),
        tries=items.c.tries + 1,
        cause=None,
        message=None,
    )
)
_AS_DECIDED = {
    "state": bindparam("to"),
    "answer_key": bindparam("the_answer"),
    "tries": items.c.tries + bindparam("counted"),
    "throttled_s": items.c.throttled_s + bindparam("throttled"),
    "reasks": items.c.reasks + bindparam("reasked"),
    "not_before_at": bindparam("ready_at"),
    "wait_s": bindparam("waits"),
    "cause": bindparam("why"),
    "message": bindparam("words"),
}
_SETTLE = update(items).where(*_OWNED).values({**_AS_DECIDED, "worker_id": None})
_ADOPT = (
    update(items)
    .where(
        items.c.id == bindparam("the_item"),
        or_(items.c.answer_key.is_(None), items.c.state == ItemState.FAILED.value),  # failed: an invalid one
        stands_in("adopt"),
    )
    .values(
        state=ItemState.COMPLETED.value,
        fence=items.c.fence + 1,
        worker_id=None,
        answer_key=bindparam("the_key"),
        cause=None,
        message=None,
    )
)
_CORRECT = (
    update(items)
    .where(
        items.c.id == bindparam("the_item"),
        # A rescue has raised the fence by one; a later attempt would mean that the doubt is another's.
        or_(items.c.fence == bindparam("the_fence"), items.c.fence == bindparam("the_fence") + 1),
        ~exists().where(attempts.c.key == bindparam("the_next_key")),
        stands_in("correct"),
    )
    .values({**_AS_DECIDED, "fence": items.c.fence + 1})
)


def settle_answers(connection: Connection, settlements: Sequence[Settlement]) -> bool:
    """running -> completed for a whole group of answers; False where any guard failed: then roll back and go singly."""
    if not settlements:
        return True
    lock_jobs(connection, [one.job_id for one in settlements])
    if not record_open(connection, settlements):
        return False
    # crash point: answers-recorded
    moves = [{**_names(one), "the_worker": one.worker_id, "the_key": one.key} for one in settlements]
    if _COMPLETE.execute(connection, moves) != len(settlements):
        return False
    # crash point: answers-moved
    keep_answers(connection, settlements)
    keep_traces(connection, settlements)
    for job_id in {one.job_id for one in settlements}:
        mine = [one for one in settlements if one.job_id == job_id]
        spent = sum(one.cost_pusd or 0 for one in mine)
        move_money(connection, job_id, spent=spent, reserved=sum(one.kept_pusd - one.reserved_pusd for one in mine))
    return True


def settle(connection: Connection, one: Settlement) -> Settled:
    """Record one attempt's outcome and move its item, whatever has happened to either in the meantime.

    Raises:
        LookupError: the ledger has no intent of this attempt.
    """
    lock_jobs(connection, [one.job_id])
    known = read_known(connection, one.key)
    state, outcome = AttemptState(known.state), one.evidence.outcome
    if state is outcome:
        return Settled.REPEATED
    if event := objection(state, outcome):
        detail = {"attempt": one.key, "recorded": state, "evidence": outcome, "cause": one.evidence.cause}
        record_event(connection, one.job_id, event, at=one.now, item_id=split_key(one.key)[0], detail=detail)
    if not teaches(state, outcome):
        return Settled.RECORDED
    one = with_one_bill(connection, one, known)
    if known.is_purged:
        one = without_contents(one)
    record(connection, one)
    # crash point: outcome-recorded
    spent = (one.cost_pusd or 0) - (known.cost_pusd or 0)
    move_money(connection, one.job_id, spent=spent, reserved=one.kept_pusd - known.reserved_pusd)
    decision = _in_force(one, known)
    return _move_item(connection, one, decision)


def has_moved(connection: Connection, one: Settlement) -> bool:
    """Say whether a settlement that was REPEATED had moved its own item, and the item still stands there."""
    item_id, fence = split_key(one.key)
    row = connection.execute(select(items.c.fence, items.c.state).where(items.c.id == item_id)).one()
    return bool(row.fence == fence and row.state != ItemState.RUNNING)


def _in_force(one: Settlement, known: Any) -> Decision:
    """Return the decision as the job's row lets it stand now, whatever the settler knew of the job.

    Nothing is sent again in a job that is being cancelled or is purged, and under hold nothing that may have been paid
    for.
    """
    is_held = known.on_unknown == "hold" and one.evidence.outcome.needs_consent
    if not known.was_cancelled and not known.is_purged and not is_held:
        return one.decision
    decision = without_resend(one.decision, one.evidence)
    if decision.to is ItemState.PENDING:
        to = ItemState.CANCELLED if known.was_cancelled else ItemState.FAILED
        return Decision(to, counted=decision.counted, cause=decision.cause, message=decision.message)
    return decision


def _move_item(connection: Connection, one: Settlement, decision: Decision) -> Settled:
    names = _names(one)
    values = {**names, **_moves(one, decision)}
    if connection.execute(_SETTLE, {**values, "the_worker": one.worker_id}).rowcount:
        return Settled.MOVED
    match one.evidence.outcome:
        case AttemptState.ANSWERED if decision.to is ItemState.COMPLETED:
            # A newer attempt, if there is one, keeps its reservation until its own outcome.
            adopted = connection.execute(_ADOPT, {"the_item": names["the_item"], "the_key": one.key}).rowcount
            return Settled.ADOPTED if adopted else Settled.RECORDED
        case AttemptState.ANSWERED | AttemptState.REFUSED | AttemptState.UNUSABLE:
            next_key = attempt_key(names["the_item"], names["the_fence"] + 1)
            # The doubt was counted as a try when it arose.
            values |= {"the_next_key": next_key, "counted": decision.counted - 1}
            return Settled.CORRECTED if connection.execute(_CORRECT, values).rowcount else Settled.RECORDED
        case _:
            return Settled.RECORDED


def _names(one: Settlement) -> dict[str, int]:
    item_id, fence = split_key(one.key)
    return {"the_item": item_id, "the_fence": fence}


def _moves(one: Settlement, decision: Decision) -> dict[str, Any]:
    has_answer = one.evidence.outcome is AttemptState.ANSWERED and decision.to is not ItemState.PENDING
    return {
        "to": decision.to.value,
        "the_answer": one.key if has_answer else None,
        "counted": decision.counted,
        "throttled": decision.throttled_s,
        "reasked": decision.reasks,
        "ready_at": one.now + decision.wait_s,
        "waits": decision.wait_s,
        "why": decision.cause,
        "words": storable(decision.message),
    }
