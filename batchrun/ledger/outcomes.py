"""What an attempt's row says once its outcome is known, and when new evidence may take the place of old."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import Connection, bindparam, delete, func, insert, select, update

from batchrun.core.outcome import Charge, Evidence
from batchrun.core.quick import quick
from batchrun.core.retry import Decision
from batchrun.core.states import AttemptState
from batchrun.ledger.ledger import storable
from batchrun.ledger.rounds import Round
from batchrun.ledger.schema import answers, attempts, jobs, traces


@quick
@dataclass(frozen=True, slots=True)
class Settlement:
    """One attempt's evidence and the decision for its item."""

    key: int
    job_id: int
    worker_id: int
    evidence: Evidence
    decision: Decision
    cost_pusd: int | None  # for certain, by usage; None: not known
    reserved_pusd: int
    now: float
    open_pusd: int = 0  # what may have to be paid on top of the cost

    @property
    def kept_pusd(self) -> int:
        """What stays reserved: nothing where it was free, what its price leaves open, else the worst case."""
        if self.evidence.charge is Charge.NONE:
            return 0
        return self.reserved_pusd if self.cost_pusd is None else self.open_pusd


_COLUMNS = (
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
    "cached_tokens",
    "reasoning_tokens",
    "reported_pusd",
    "request_id",
    "response_id",
)
_RECORD = (
    update(attempts)
    .where(attempts.c.key == bindparam("the_key"))
    .values(
        {
            **{column: bindparam(f"a_{column}") for column in _COLUMNS},
            # Evidence from elsewhere does not know when the request left, or what the endpoint called it.
            "sent_at": func.coalesce(bindparam("a_sent_at"), attempts.c.sent_at),
            "request_id": func.coalesce(bindparam("a_request_id"), attempts.c.request_id),
        }
    )
)
_RECORD_OPEN = Round(
    _RECORD.where(attempts.c.state == AttemptState.INTENT.value, attempts.c.reserved_pusd == bindparam("was_reserved"))
)
_KNOWN = (
    select(
        attempts.c.state,
        attempts.c.cost_pusd,
        attempts.c.reserved_pusd,
        attempts.c.charge,
        attempts.c.replays,
        jobs.c.was_cancelled,
        jobs.c.on_unknown,
        jobs.c.purge_began_at.is_not(None).label("is_purged"),
    )
    .join(jobs, jobs.c.id == attempts.c.job_id)
    .where(attempts.c.key == bindparam("the_key"))
)
_KEEP = Round(insert(answers), "key", "raw")
_KEEP_TRACE = insert(traces)
_DROP_TRACE = delete(traces).where(traces.c.key == bindparam("the_key"))
_DROP_ANSWER = delete(answers).where(answers.c.key == bindparam("the_key"))


def read_known(connection: Connection, key: int) -> Any:
    """Return what is recorded of an attempt, and the rules of its job.

    Raises:
        LookupError: the ledger has no intent of this attempt.
    """
    known = connection.execute(_KNOWN, {"the_key": key}).one_or_none()
    if known is None:
        raise LookupError(f"attempt {key} has no intent in this ledger")
    return known


def record(connection: Connection, one: Settlement) -> None:
    """Write an outcome over what was recorded; a part of the body that was kept with a doubt gives way to the whole."""
    connection.execute(_RECORD, _values(one))
    if one.evidence.raw is not None:
        connection.execute(_DROP_ANSWER, {"the_key": one.key})
    keep_answers(connection, [one])
    if one.evidence.timing is not None and one.evidence.timing.trace is not None:
        connection.execute(_DROP_TRACE, {"the_key": one.key})
        keep_traces(connection, [one])


def without_contents(one: Settlement) -> Settlement:
    """Return what a purged job may keep of late evidence: what it came to and what it cost, not what was said."""
    evidence = replace(one.evidence, raw=None, message=None)
    return replace(one, evidence=evidence, decision=replace(one.decision, message=None))


def record_open(connection: Connection, settlements: Sequence[Settlement]) -> bool:
    """Write the outcomes of attempts that are open; False where one is not, or has another reservation."""
    rows = [{**_values(one), "was_reserved": one.reserved_pusd} for one in settlements]
    return _RECORD_OPEN.execute(connection, rows) == len(settlements)


def keep_answers(connection: Connection, settlements: Sequence[Settlement]) -> None:
    """Keep the bodies as they came."""
    rows = [{"key": one.key, "raw": one.evidence.raw} for one in settlements if one.evidence.raw is not None]
    if rows:
        _KEEP.execute(connection, rows)


def keep_traces(connection: Connection, settlements: Sequence[Settlement]) -> None:
    """Keep when the pieces of measured answers came."""
    traced = ((one.key, one.evidence.timing.trace) for one in settlements if one.evidence.timing is not None)
    rows = [{"key": key, "packed": trace.pack()} for key, trace in traced if trace is not None]
    if rows:
        connection.execute(_KEEP_TRACE, rows)


def _values(one: Settlement) -> dict[str, Any]:
    evidence = one.evidence
    timing = evidence.timing
    return {
        "the_key": one.key,
        "a_state": evidence.outcome.value,
        "a_charge": evidence.charge.value,
        "a_cost_pusd": one.cost_pusd,
        "a_reserved_pusd": one.kept_pusd,
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
        "a_cached_tokens": evidence.usage.cached_tokens,
        "a_reasoning_tokens": evidence.usage.reasoning_tokens,
        "a_reported_pusd": evidence.reported_pusd,
        "a_request_id": storable(evidence.request_id),
        "a_response_id": storable(evidence.response_id),
    }


def objection(known: AttemptState, outcome: AttemptState) -> str | None:
    """Name the event that evidence against the recorded state is written down as; None where it agrees."""
    if known is AttemptState.INTENT:
        return None
    if known is AttemptState.UNKNOWN:
        return "doubt_stands" if outcome is AttemptState.NOT_SENT else None
    if outcome is AttemptState.UNKNOWN and known is not AttemptState.NOT_SENT:
        return None  # whoever does not know contradicts nobody, unless the request was certainly never sent
    return "invariant_alarm"


def teaches(known: AttemptState, outcome: AttemptState) -> bool:
    """Say whether evidence is put in the place of what is recorded.

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
