"""Recording what attempts came to, and moving their items: settle, adopt and correct. One transaction for all of it.

An attempt's outcome is always recorded, whoever owns the item by now: a paid answer is never dropped. The item moves
only where its guard holds.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from sqlalchemy import Connection, bindparam, delete, exists, insert, select, update

from batchrun.core.outcome import Charge, Evidence
from batchrun.core.retry import Decision, without_resend
from batchrun.core.states import ITEM_MOVES, AttemptState, ItemState, JobState
from batchrun.ledger.events import record_event
from batchrun.ledger.ledger import storable
from batchrun.ledger.schema import answers, attempt_key, attempts, items, jobs, split_key


class Settled(StrEnum):
    """What became of one settlement."""

    MOVED = "moved"  # the item moved as decided
    ADOPTED = "adopted"  # late, and the item had no answer: now it has this one
    CORRECTED = "corrected"  # late, and the doubt about this attempt is over
    RECORDED = "recorded"  # only the attempt: the item had gone on without it
    REPEATED = "repeated"  # the ledger knew it already


@dataclass(frozen=True, slots=True)
class Settlement:
    """One attempt's evidence and the decision for its item."""

    key: int
    job_id: int
    worker_id: int
    evidence: Evidence
    decision: Decision
    cost_pusd: int | None  # by usage; None: not known
    reserved_pusd: int
    now: float


_FAST_ATTEMPT = (
    update(attempts)
    .where(attempts.c.key == bindparam("the_key"), attempts.c.state == AttemptState.INTENT.value)
    .values(
        {
            column: bindparam(f"a_{column}")
            for column in (
                "state",
                "charge",
                "cost_pusd",
                "reserved_pusd",
                "sent_at",
                "first_byte_at",
                "ended_at",
                "duration_s",
                "http_status",
                "cause",
                "message",
                "finish_reason",
                "warning",
                "prompt_tokens",
                "completion_tokens",
                "request_id",
                "response_id",
            )
        }
    )
)
_FAST_ITEM = (
    update(items)
    .where(
        items.c.id == bindparam("the_item"),
        items.c.fence == bindparam("the_fence"),
        items.c.worker_id == bindparam("the_worker"),
        items.c.state == ItemState.RUNNING.value,
    )
    .values(
        state=ItemState.COMPLETED.value,
        worker_id=None,
        answer_key=bindparam("the_key"),
        tries=items.c.tries + 1,
        cause=None,
        message=None,
    )
)


def settle_answers(connection: Connection, settlements: Sequence[Settlement]) -> bool:
    """running -> completed for a whole group of answers; False where any guard failed: then roll back and go singly."""
    rows = connection.execute(_FAST_ATTEMPT, [_attempt_values(one) for one in settlements]).rowcount
    if rows != len(settlements):
        return False
    _keep_answers(connection, settlements)
    moved = connection.execute(
        _FAST_ITEM,
        [
            {"the_item": item_id, "the_fence": fence, "the_worker": one.worker_id, "the_key": one.key}
            for one in settlements
            for item_id, fence in (split_key(one.key),)
        ],
    ).rowcount
    if moved != len(settlements):
        return False
    for job_id in {one.job_id for one in settlements}:
        mine = [one for one in settlements if one.job_id == job_id]
        _move_money(
            connection,
            job_id,
            spent=sum(one.cost_pusd or 0 for one in mine),
            unreserved=sum(one.reserved_pusd - _kept(one) for one in mine),
        )
    return True


def settle(connection: Connection, one: Settlement) -> Settled:
    """Record one attempt's outcome and move its item, whatever has happened to either in the meantime."""
    known = connection.execute(
        select(attempts.c.state, attempts.c.reserved_pusd).where(attempts.c.key == one.key)
    ).one_or_none()
    if known is None:
        raise LookupError(f"attempt {one.key} has no intent in this ledger")
    outcome = one.evidence.outcome
    if known.state == outcome:
        return Settled.REPEATED
    if known.state not in (AttemptState.INTENT, AttemptState.UNKNOWN):
        item_id, _ = split_key(one.key)
        detail = {"attempt": one.key, "recorded": known.state, "evidence": outcome.value, "cause": one.evidence.cause}
        record_event(connection, one.job_id, "invariant_alarm", at=one.now, item_id=item_id, detail=detail)
        if outcome is not AttemptState.ANSWERED or known.state == AttemptState.ANSWERED:
            return Settled.RECORDED
    if known.state == AttemptState.UNKNOWN and outcome is AttemptState.NOT_SENT:
        return Settled.RECORDED  # a doubt is never talked away: only evidence of a reply ends it
    connection.execute(
        update(attempts)
        .where(attempts.c.key == one.key)
        .values({name.removeprefix("a_"): value for name, value in _attempt_values(one).items() if name != "the_key"})
    )
    if one.evidence.raw is not None:
        connection.execute(delete(answers).where(answers.c.key == one.key))  # a part of the body, kept with the doubt
    _keep_answers(connection, [one])
    _move_money(connection, one.job_id, spent=one.cost_pusd or 0, unreserved=known.reserved_pusd - _kept(one))
    return _move_item(connection, one)


def _move_item(connection: Connection, one: Settlement) -> Settled:
    decision = _unless_cancelling(connection, one)
    item_id, fence = split_key(one.key)
    mine = (items.c.id == item_id, items.c.fence == fence)
    moved = connection.execute(
        update(items)
        .where(*mine, items.c.worker_id == one.worker_id, items.c.state.in_(ITEM_MOVES["settle"].sources))
        .values(**_item_values(one, decision), worker_id=None)
    )
    if moved.rowcount:
        return Settled.MOVED
    if one.evidence.outcome is AttemptState.ANSWERED:
        adopted = connection.execute(
            update(items)
            .where(
                items.c.id == item_id,
                items.c.answer_key.is_(None),
                items.c.state.in_(ITEM_MOVES["adopt"].sources),
            )
            .values(
                state=ItemState.COMPLETED,
                fence=items.c.fence + 1,
                worker_id=None,
                answer_key=one.key,
                cause=None,
                message=None,
            )
        )
        return Settled.ADOPTED if adopted.rowcount else Settled.RECORDED
    if one.evidence.outcome in (AttemptState.REFUSED, AttemptState.UNUSABLE):
        # A rescue has raised the fence by one; a later attempt would mean that the doubt is another's.
        later = exists().where(attempts.c.key == attempt_key(item_id, fence + 1))
        corrected = connection.execute(
            update(items)
            .where(
                items.c.id == item_id,
                items.c.fence.in_((fence, fence + 1)),
                items.c.state.in_(ITEM_MOVES["correct"].sources),
                ~later,
            )
            .values(**_item_values(one, decision), fence=items.c.fence + 1)
        )
        return Settled.CORRECTED if corrected.rowcount else Settled.RECORDED
    return Settled.RECORDED


def _unless_cancelling(connection: Connection, one: Settlement) -> Decision:
    job = connection.execute(select(jobs.c.state, jobs.c.was_cancelled).where(jobs.c.id == one.job_id)).one()
    is_cancelled = job.state in (JobState.CANCELLING, JobState.CANCELLED) or job.was_cancelled
    if not is_cancelled:
        return one.decision
    decision = without_resend(one.decision, one.evidence)
    if decision.to is ItemState.PENDING:
        return Decision(ItemState.CANCELLED, cause=decision.cause, message=decision.message)
    return decision


def _item_values(one: Settlement, decision: Decision) -> dict[str, Any]:
    is_done = decision.to is ItemState.COMPLETED
    return {
        "state": decision.to.value,
        "answer_key": one.key if is_done else None,
        "tries": items.c.tries + decision.counted,
        "throttled_s": items.c.throttled_s + decision.throttled_s,
        "not_before_at": one.now + decision.wait_s,
        "wait_s": decision.wait_s,
        "cause": decision.cause,
        "message": storable(decision.message),
    }


def _attempt_values(one: Settlement) -> dict[str, Any]:
    evidence = one.evidence
    timing = evidence.timing
    return {
        "the_key": one.key,
        "a_state": evidence.outcome.value,
        "a_charge": evidence.charge.value,
        "a_cost_pusd": one.cost_pusd,
        "a_reserved_pusd": _kept(one),
        "a_sent_at": timing.sent_at if timing else None,
        "a_first_byte_at": timing.first_byte_at if timing else None,
        "a_ended_at": timing.ended_at if timing else one.now,
        "a_duration_s": timing.duration_s if timing else None,
        "a_http_status": evidence.status,
        "a_cause": evidence.cause,
        "a_message": storable(evidence.message),
        "a_finish_reason": storable(evidence.finish_reason),
        "a_warning": evidence.warning,
        "a_prompt_tokens": evidence.usage.prompt_tokens,
        "a_completion_tokens": evidence.usage.completion_tokens,
        "a_request_id": storable(evidence.request_id),
        "a_response_id": storable(evidence.response_id),
    }


def _kept(one: Settlement) -> int:
    """Return what stays reserved: nothing for what was free or is priced, the worst case for what may have been billed."""
    if one.evidence.charge is Charge.NONE or one.cost_pusd is not None:
        return 0
    return one.reserved_pusd


def _keep_answers(connection: Connection, settlements: Sequence[Settlement]) -> None:
    rows = [{"key": one.key, "raw": one.evidence.raw} for one in settlements if one.evidence.raw is not None]
    if rows:
        connection.execute(insert(answers), rows)


def _move_money(connection: Connection, job_id: int, *, spent: int, unreserved: int) -> None:
    if spent or unreserved:
        connection.execute(
            update(jobs)
            .where(jobs.c.id == job_id)
            .values(spent_pusd=jobs.c.spent_pusd + spent, reserved_pusd=jobs.c.reserved_pusd - unreserved)
        )


def rescue(connection: Connection, *, job_id: int, worker_id: int, now: float) -> list[int]:
    """running -> in_doubt for everything that dead worker `worker_id` holds of the job; return the attempts' keys.

    Its spool has been adopted before. What it had claimed and not sent cannot be told from what it had sent.
    """
    rows = connection.execute(
        update(items)
        .where(
            items.c.job_id == job_id, items.c.worker_id == worker_id, items.c.state.in_(ITEM_MOVES["rescue"].sources)
        )
        .values(
            state=ItemState.IN_DOUBT,
            fence=items.c.fence + 1,
            worker_id=None,
            tries=items.c.tries + 1,
            cause="worker_lost",
            message="the worker died while this request was, or was about to be, under way",
        )
        .returning(items.c.id, items.c.fence)
    ).all()
    keys = [attempt_key(row.id, row.fence - 1) for row in rows]
    if keys:
        connection.execute(
            update(attempts)
            .where(attempts.c.key == bindparam("the_key"), attempts.c.state == AttemptState.INTENT)
            .values(state=AttemptState.UNKNOWN, cause="worker_lost", message="the worker died", ended_at=now),
            [{"the_key": key} for key in keys],
        )
        record_event(connection, job_id, "rescued", at=now, detail={"worker": worker_id, "in_doubt": len(keys)})
    return keys
