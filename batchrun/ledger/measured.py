"""What the ledger knows of the times of a job's requests, for the formulas of core/measuring."""

from collections.abc import Sequence
from statistics import median
from typing import Any, NamedTuple

from sqlalchemy import Connection, and_, func, select

from batchrun.core.measuring.timings import Measured
from batchrun.core.measuring.trace import Trace
from batchrun.core.outcome import RELEASED
from batchrun.core.states import AttemptState
from batchrun.ledger.schema import FENCE_BITS, attempts, items, traces

_COLUMNS = (
    "state",
    "claimed_at",
    "sent_at",
    "ended_at",
    "duration_s",
    "prompt_tokens",
    "completion_tokens",
    "cached_tokens",
    "cause",
    "worker_id",
)
_REQUESTS = (
    select(items.c.custom_id, *(attempts.c[name] for name in _COLUMNS), traces.c.packed)
    .join(items, items.c.id == attempts.c.key // (1 << FENCE_BITS))
    .outerjoin(traces, traces.c.key == attempts.c.key)
    .where(
        and_(
            attempts.c.state != AttemptState.INTENT,
            func.coalesce(attempts.c.cause, "") != RELEASED,
            attempts.c.ended_at.is_not(None),
        )
    )
    .order_by(attempts.c.sent_at, attempts.c.key)
)


class Requests(NamedTuple):
    """The requests of one job that have ended, in order of send; their times count from the first send."""

    began_at: float  # unix seconds of that send
    began_s: float | None  # the same on the monotonic clock of the one process that made them; None: nobody knows
    requests: tuple[Measured, ...]


def requests_of(connection: Connection, job_id: int, *, max_tokens: int | None = None, every: int = 1) -> Requests:
    """Read what a job's requests came to, and when.

    Every attempt is a request, those that were made again too. Where one process made all of them and traced some, the
    times between requests are monotonic; else they are wall times, and only those within a request are monotonic. A
    request was due when its item was claimed.

    Args:
        max_tokens: what each was allowed, where the caller knows that.
        every: only those of every so many-th item, for jobs too large to be read whole.
    """
    query = _REQUESTS.where(attempts.c.job_id == job_id)
    if every > 1:
        query = query.where(attempts.c.key // (1 << FENCE_BITS) % every == 0)
    rows = connection.execute(query).all()
    found = [(row, None if row.packed is None else Trace.unpack(bytes(row.packed))) for row in rows]
    began_at = min((row.sent_at for row in rows if row.sent_at is not None), default=0.0)
    offset_s = _offset(found)
    sent = [_sent(row, trace, offset_s) for row, trace in found]
    zero_s = min((at for at in sent if at is not None), default=0.0)
    requests = tuple(
        _measured(row, trace, at, zero_s, max_tokens, began_at) for (row, trace), at in zip(found, sent, strict=True)
    )
    return Requests(began_at, None if offset_s is None else zero_s, requests)


def _offset(found: Sequence[tuple[Any, Trace | None]]) -> float | None:
    """Return what brings the wall times of these requests to the monotonic clock of the one process that sent them."""
    if len({row.worker_id for row, _ in found}) != 1:
        return None
    apart = [trace.sent_s - row.sent_at for row, trace in found if trace is not None and row.sent_at is not None]
    return median(apart) if apart else None


def _sent(row: Any, trace: Trace | None, offset_s: float | None) -> float | None:
    if row.sent_at is None:
        return None
    if offset_s is None:
        return float(row.sent_at)
    return row.sent_at + offset_s if trace is None else trace.sent_s


def _measured(
    row: Any, trace: Trace | None, at_s: float | None, zero_s: float, max_tokens: int | None, began_at: float
) -> Measured:
    outcome = AttemptState(row.state)
    sent_s = None if at_s is None else at_s - zero_s
    ended_s = row.ended_at - began_at if sent_s is None else sent_s + (row.duration_s or 0.0)

    def after(span_s: float | None) -> float | None:
        return None if span_s is None or sent_s is None else sent_s + span_s

    return Measured(
        name=row.custom_id,
        outcome=outcome,
        due_s=None if sent_s is None else sent_s - max(0.0, row.sent_at - row.claimed_at),
        sent_s=None if outcome is AttemptState.NOT_SENT else sent_s,
        first_chunk_s=after(trace.first_chunk_s) if trace else None,
        first_token_s=after(trace.first_token_s) if trace else None,
        gaps_s=trace.gaps_s if trace else (),
        last_token_s=after(trace.last_token_s) if trace else None,
        ended_s=max(0.0, ended_s),
        prompt_tokens=row.prompt_tokens,
        output_tokens=row.completion_tokens,
        cached_tokens=row.cached_tokens,
        max_tokens=max_tokens,
        cause=row.cause,
    )
