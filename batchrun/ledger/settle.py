"""Recording what attempts came to, and moving their items: settle, adopt, correct and rescue. One transaction for all.

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
from batchrun.core.states import AttemptState, ItemState
from batchrun.ledger.events import record_event
from batchrun.ledger.guards import lock_jobs, move_money, stands_in
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


_OUTCOME_COLUMNS = (
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
_RECORD_OUTCOME = (
    update(attempts)
    .where(attempts.c.key == bindparam("the_key"))
    .values({column: bindparam(f"a_{column}") for column in _OUTCOME_COLUMNS})
)
_RECORD_OPEN_OUTCOME = _RECORD_OUTCOME.where(
    attempts.c.state == AttemptState.INTENT.value, attempts.c.reserved_pusd == bindparam("was_reserved")
)
_COMPLETE = (
    update(items)
    .where(
        items.c.id == bindparam("the_item"),
        items.c.fence == bindparam("the_fence"),
        items.c.worker_id == bindparam("the_worker"),
        stands_in("settle"),
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
    lock_jobs(connection, [one.job_id for one in settlements])
    outcomes = [{**_outcome(one), "was_reserved": one.reserved_pusd} for one in settlements]
    if connection.execute(_RECORD_OPEN_OUTCOME, outcomes).rowcount != len(settlements):
        return False
    moves = [
        {"the_item": item_id, "the_fence": fence, "the_worker": one.worker_id, "the_key": one.key}
        for one in settlements
        for item_id, fence in (split_key(one.key),)
    ]
    if connection.execute(_COMPLETE, moves).rowcount != len(settlements):
        return False
    _keep_answers(connection, settlements)
    for job_id in {one.job_id for one in settlements}:
        mine = [one for one in settlements if one.job_id == job_id]
        move_money(
            connection,
            job_id,
            spent=sum(one.cost_pusd or 0 for one in mine),
            reserved=sum(_kept(one) - one.reserved_pusd for one in mine),
        )
    return True


def settle(connection: Connection, one: Settlement) -> Settled:
    """Record one attempt's outcome and move its item, whatever has happened to either in the meantime.

    Raises:
        LookupError: the ledger has no intent of this attempt.
    """
    lock_jobs(connection, [one.job_id])
    query = select(attempts.c.state, attempts.c.cost_pusd, attempts.c.reserved_pusd).where(attempts.c.key == one.key)
    known = connection.execute(query).one_or_none()
    if known is None:
        raise LookupError(f"attempt {one.key} has no intent in this ledger")
    outcome = one.evidence.outcome
    if known.state == outcome:
        return Settled.REPEATED
    if event := _objection(AttemptState(known.state), outcome):
        detail = {"attempt": one.key, "recorded": known.state, "evidence": outcome, "cause": one.evidence.cause}
        record_event(connection, one.job_id, event, at=one.now, item_id=split_key(one.key)[0], detail=detail)
    if not _teaches(AttemptState(known.state), outcome):
        return Settled.RECORDED
    connection.execute(_RECORD_OUTCOME, _outcome(one))
    if one.evidence.raw is not None:
        connection.execute(delete(answers).where(answers.c.key == one.key))  # a part of the body, kept with the doubt
    _keep_answers(connection, [one])
    move_money(
        connection,
        one.job_id,
        spent=(one.cost_pusd or 0) - (known.cost_pusd or 0),
        reserved=_kept(one) - known.reserved_pusd,
    )
    return _move_item(connection, one)


def _objection(known: AttemptState, outcome: AttemptState) -> str | None:
    """Name the event that evidence against the recorded state is written down as; None where it agrees."""
    if known is AttemptState.INTENT:
        return None
    if known is AttemptState.UNKNOWN:
        return "doubt_stands" if outcome is AttemptState.NOT_SENT else None
    if outcome is AttemptState.UNKNOWN and known is not AttemptState.NOT_SENT:
        return None  # whoever does not know contradicts nobody, unless the request was certainly never sent
    return "invariant_alarm"


def _teaches(known: AttemptState, outcome: AttemptState) -> bool:
    """Say whether the evidence is put in the place of what is recorded.

    A doubt is never talked away: only a reply ends it. What was called unsent and was sent after all may have been
    paid for. A paid answer is always kept.
    """
    match known:
        case AttemptState.INTENT | AttemptState.NOT_SENT:
            return True
        case AttemptState.UNKNOWN:
            return outcome is not AttemptState.NOT_SENT
        case AttemptState.REFUSED | AttemptState.UNUSABLE:
            return outcome is AttemptState.ANSWERED
        case AttemptState.ANSWERED:
            return False


def has_moved(connection: Connection, one: Settlement) -> bool:
    """Say whether a settlement that was REPEATED had moved its own item, and the item still stands there."""
    item_id, fence = split_key(one.key)
    row = connection.execute(select(items.c.fence, items.c.state).where(items.c.id == item_id)).one()
    return bool(row.fence == fence and row.state != ItemState.RUNNING)


def _move_item(connection: Connection, one: Settlement) -> Settled:
    if _settle_item(connection, one):
        return Settled.MOVED
    match one.evidence.outcome:
        case AttemptState.ANSWERED:
            return Settled.ADOPTED if _adopt(connection, one) else Settled.RECORDED
        case AttemptState.REFUSED | AttemptState.UNUSABLE:
            return Settled.CORRECTED if _correct(connection, one) else Settled.RECORDED
        case _:
            return Settled.RECORDED


def _settle_item(connection: Connection, one: Settlement) -> bool:
    """running -> what was decided, for the owner."""
    item_id, fence = split_key(one.key)
    owned = (items.c.id == item_id, items.c.fence == fence, items.c.worker_id == one.worker_id)
    decision = _in_force(connection, one)
    values = {**_item_values(one, decision), "tries": items.c.tries + decision.counted, "worker_id": None}
    return bool(connection.execute(update(items).where(*owned, stands_in("settle")).values(values)).rowcount)


def _adopt(connection: Connection, one: Settlement) -> bool:
    """Any state without an answer -> completed; an attempt that is newer keeps its reservation until its outcome."""
    item_id, _ = split_key(one.key)
    unanswered = (items.c.id == item_id, items.c.answer_key.is_(None), stands_in("adopt"))
    values = {
        "state": ItemState.COMPLETED,
        "fence": items.c.fence + 1,
        "worker_id": None,
        "answer_key": one.key,
        "cause": None,
        "message": None,
    }
    return bool(connection.execute(update(items).where(*unanswered).values(values)).rowcount)


def _correct(connection: Connection, one: Settlement) -> bool:
    """in_doubt -> what settle would have given, where the doubt is about this very attempt."""
    item_id, fence = split_key(one.key)
    # A rescue has raised the fence by one; a later attempt would mean that the doubt is another's.
    later = exists().where(attempts.c.key == attempt_key(item_id, fence + 1))
    doubted = (items.c.id == item_id, items.c.fence.in_((fence, fence + 1)), stands_in("correct"), ~later)
    decision = _in_force(connection, one)
    # The doubt was counted as a try when it arose.
    tries = items.c.tries + decision.counted - 1
    values = {**_item_values(one, decision), "tries": tries, "fence": items.c.fence + 1}
    return bool(connection.execute(update(items).where(*doubted).values(values)).rowcount)


def _in_force(connection: Connection, one: Settlement) -> Decision:
    """Return the decision as the job's row lets it stand now, whatever the settler knew of the job.

    Nothing is sent again in a job that is being cancelled, and under hold nothing that may have been paid for.
    """
    row = connection.execute(select(jobs.c.was_cancelled, jobs.c.on_unknown).where(jobs.c.id == one.job_id)).one()
    may_be_billed = one.evidence.outcome in (AttemptState.UNKNOWN, AttemptState.UNUSABLE)
    if not row.was_cancelled and not (row.on_unknown == "hold" and may_be_billed):
        return one.decision
    decision = without_resend(one.decision, one.evidence)
    if decision.to is ItemState.PENDING:
        return Decision(ItemState.CANCELLED, counted=decision.counted, cause=decision.cause, message=decision.message)
    return decision


def _item_values(one: Settlement, decision: Decision) -> dict[str, Any]:
    return {
        "state": decision.to.value,
        "answer_key": one.key if decision.to is ItemState.COMPLETED else None,
        "throttled_s": items.c.throttled_s + decision.throttled_s,
        "not_before_at": one.now + decision.wait_s,
        "wait_s": decision.wait_s,
        "cause": decision.cause,
        "message": storable(decision.message),
    }


def _outcome(one: Settlement) -> dict[str, Any]:
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
    """Return what stays reserved: nothing where it was free or is priced, else the worst case."""
    if one.evidence.charge is Charge.NONE or one.cost_pusd is not None:
        return 0
    return one.reserved_pusd


def _keep_answers(connection: Connection, settlements: Sequence[Settlement]) -> None:
    rows = [{"key": one.key, "raw": one.evidence.raw} for one in settlements if one.evidence.raw is not None]
    if rows:
        connection.execute(insert(answers), rows)


def rescue(connection: Connection, *, job_id: int, worker_id: int, now: float) -> list[int]:
    """running -> in_doubt for everything that dead worker `worker_id` holds of the job; return the attempts' keys.

    Its spool has been adopted before. What it had claimed and not sent cannot be told from what it had sent. Attempts
    whose item has gone on without them (another attempt's answer was adopted) become unknown too.
    """
    lock_jobs(connection, [job_id])
    rows = connection.execute(
        update(items)
        .where(items.c.job_id == job_id, items.c.is_current, items.c.worker_id == worker_id, stands_in("rescue"))
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
    opened = connection.execute(
        update(attempts)
        .where(attempts.c.job_id == job_id, attempts.c.worker_id == worker_id, attempts.c.state == AttemptState.INTENT)
        .values(state=AttemptState.UNKNOWN, cause="worker_lost", message="the worker died", ended_at=now)
    ).rowcount
    if rows or opened:
        record_event(connection, job_id, "rescued", at=now, detail={"worker": worker_id, "in_doubt": len(rows)})
    return [attempt_key(row.id, row.fence - 1) for row in rows]
