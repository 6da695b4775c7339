"""What a person, or a standing consent, decides about items that have stopped: try again, give up, cancel, reopen."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy import ColumnElement, Connection, Row, bindparam, exists, func, select, update

from batchrun.core.outcome import CAUSES, Charge
from batchrun.core.states import AttemptState, ItemState, JobState
from batchrun.ledger.events import record_event
from batchrun.ledger.guards import has_contents, lock_jobs, stands_in
from batchrun.ledger.schema import FENCE_BITS, attempts, items, jobs

_CHUNK = 5_000


@dataclass(frozen=True, slots=True)
class Stopped:
    """One failed or doubtful item as it was shown to the user: the consent is for exactly this."""

    item_id: int
    fence: int
    custom_id: str
    state: ItemState
    cause: str | None
    message: str | None
    worst_pusd: int | None
    tries: int
    may_be_billed: bool  # some attempt of it was, or may have been, paid for: one more may be a second bill

    @property
    def is_permanent(self) -> bool:
        cause = CAUSES.get(self.cause or "")
        return cause is not None and cause.is_permanent


def stopped_items(
    connection: Connection,
    job_id: int,
    *,
    state: ItemState,
    causes: Sequence[str] = (),
    custom_ids: Sequence[str] = (),
) -> list[Stopped]:
    """List a job's failed or doubtful items, in input order."""
    billed = exists().where(
        attempts.c.key > items.c.id * (1 << FENCE_BITS),
        attempts.c.key < (items.c.id + 1) * (1 << FENCE_BITS),
        attempts.c.charge != Charge.NONE.value,
    )
    query = select(items, billed.label("may_be_billed")).where(
        items.c.job_id == job_id, items.c.state == state, items.c.is_current
    )
    if causes:
        query = query.where(items.c.cause.in_(causes))
    if custom_ids:
        query = query.where(items.c.custom_id.in_(custom_ids))
    return [_stopped(row) for row in connection.execute(query.order_by(items.c.position))]


def _stopped(row: Row[tuple[object, ...]]) -> Stopped:
    return Stopped(
        item_id=row.id,
        fence=row.fence,
        custom_id=row.custom_id,
        state=ItemState(row.state),
        cause=row.cause,
        message=row.message,
        worst_pusd=row.worst_pusd,
        tries=row.tries,
        may_be_billed=bool(row.may_be_billed),
    )


def consent(connection: Connection, job_id: int, shown: Sequence[Stopped], *, now: float) -> int:
    """in_doubt or failed -> pending for exactly the (item, fence) pairs shown; return how many moved.

    While the job is cancelling nothing moves: what went to pending would end as cancelled, and a doubt with it. Nor
    does anything of a purged job: its requests are gone.
    """
    lock_jobs(connection, [job_id])
    fresh = {"tries": 0, "throttled_s": 0.0, "consents": items.c.consents + 1, "answer_key": None}
    is_cancelling = exists().where(jobs.c.id == items.c.job_id, jobs.c.state == JobState.CANCELLING)
    values = {"state": ItemState.PENDING, **_ready(now), **fresh}
    moved = _move(connection, "consent", shown, values, ~is_cancelling, has_contents())
    detail = {"shown": len(shown), "moved": moved, "in_doubt": sum(one.state is ItemState.IN_DOUBT for one in shown)}
    record_event(connection, job_id, "consent", at=now, detail=detail)
    return moved


def give_up(connection: Connection, job_id: int, shown: Sequence[Stopped], *, now: float) -> int:
    """in_doubt -> failed for exactly the pairs shown; their attempts stay unknown, and stay possibly billed."""
    lock_jobs(connection, [job_id])
    values = {"state": ItemState.FAILED, "cause": "given_up", "message": "given up while in doubt"}
    moved = _move(connection, "give_up", shown, values)
    record_event(connection, job_id, "give_up", at=now, detail={"shown": len(shown), "moved": moved})
    return moved


def retry_by_policy(connection: Connection, job_id: int, *, retry_times: int, now: float) -> tuple[int, int]:
    """Under on_unknown retry: in_doubt and uselessly answered items -> pending while tries are left, else -> failed.

    Nothing moves under hold, nor in a job that is cancelling, was cancelled or is purged: there a doubt stays a doubt.

    Returns:
        (sent back to pending, given up).
    """
    lock_jobs(connection, [job_id])
    has_consent = exists().where(jobs.c.id == items.c.job_id, jobs.c.on_unknown == "retry", ~jobs.c.was_cancelled)
    mine = (items.c.job_id == job_id, items.c.is_current, has_consent, has_contents())
    has_tries_left = items.c.tries <= retry_times
    is_useless = exists().where(
        attempts.c.key == items.c.id * (1 << FENCE_BITS) + items.c.fence, attempts.c.state == AttemptState.UNUSABLE
    )
    up = {"fence": items.c.fence + 1}
    back = {"state": ItemState.PENDING, **_ready(now), **up}
    in_doubt, failed = items.c.state == ItemState.IN_DOUBT, items.c.state == ItemState.FAILED
    retried = connection.execute(update(items).where(*mine, in_doubt, has_tries_left).values(back)).rowcount
    retried += connection.execute(update(items).where(*mine, failed, has_tries_left, is_useless).values(back)).rowcount
    why = func.coalesce(items.c.message + ": ", "") + "in doubt, and its retries are spent"
    given_up = {"state": ItemState.FAILED, "cause": "given_up", "message": why, **up}
    spent = connection.execute(update(items).where(*mine, in_doubt).values(given_up)).rowcount
    if retried or spent:
        record_event(connection, job_id, "policy_retry", at=now, detail={"retried": retried, "given_up": spent})
    return retried, spent


def cancel_pending(connection: Connection, job_id: int) -> int:
    """pending -> cancelled for all of the job."""
    lock_jobs(connection, [job_id])
    mine = (items.c.job_id == job_id, items.c.is_current, stands_in("cancel"))
    return connection.execute(update(items).where(*mine).values(state=ItemState.CANCELLED)).rowcount


def reopen_cancelled(connection: Connection, job_id: int, *, now: float) -> int:
    """cancelled -> pending for all of the job, unless it is purged."""
    lock_jobs(connection, [job_id])
    mine = (items.c.job_id == job_id, items.c.is_current, stands_in("reopen"), has_contents())
    return connection.execute(update(items).where(*mine).values(state=ItemState.PENDING, **_ready(now))).rowcount


def _ready(now: float) -> dict[str, float]:
    return {"not_before_at": now, "wait_s": 0.0}


def _move(
    connection: Connection,
    name: str,
    shown: Sequence[Stopped],
    values: Mapping[str, object],
    *guards: ColumnElement[bool],
) -> int:
    """Make one guarded move for each (item, fence) pair; the fence rises, so that a pair is good for one move only."""
    pair = (items.c.id == bindparam("the_item"), items.c.fence == bindparam("the_fence"))
    statement = update(items).where(*pair, stands_in(name), items.c.is_current, *guards)
    statement = statement.values({**values, "fence": items.c.fence + 1})
    moved = 0
    for start in range(0, len(shown), _CHUNK):
        pairs = [{"the_item": one.item_id, "the_fence": one.fence} for one in shown[start : start + _CHUNK]]
        moved += connection.execute(statement, pairs).rowcount
    return moved
