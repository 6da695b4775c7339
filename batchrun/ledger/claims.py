"""pending -> running, and back unsent: who may send what. The intent row is durable in the same commit."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, bindparam, func, insert, select, update

from batchrun.core.outcome import RELEASED, Charge
from batchrun.core.prices import MOST_PUSD
from batchrun.core.quick import quick
from batchrun.core.retry import Tries
from batchrun.core.states import AttemptState, ItemState
from batchrun.ledger.cache import Asking, askers, note_asked
from batchrun.ledger.guards import (
    NOW,
    THE_JOB,
    THE_WORKER,
    among,
    back_to_pending,
    is_alive,
    is_claimable,
    job_allows,
    lock_jobs,
    move_money,
    stands_in,
)
from batchrun.ledger.rounds import Round
from batchrun.ledger.schema import attempt_key, attempts, items, jobs, requests, split_key


@quick
@dataclass(frozen=True, slots=True)
class Claim:
    """The right, and the duty, to make one attempt: to send its request once, or to release it."""

    item_id: int
    fence: int
    key: int
    job_id: int
    custom_id: str
    path: str
    body: bytes
    tries: Tries
    reserved_pusd: int


@dataclass(frozen=True, slots=True)
class Keys:
    """The idempotency keys of an endpoint that honours them: each attempt's public name."""

    account: str  # to whom they belong
    name_of: Callable[[int], str]


def claim(
    connection: Connection,
    *,
    job_id: int,
    item_ids: Sequence[int],
    worker_id: int,
    endpoint: str,
    now: float,
    keys: Keys | None = None,
    asking: Asking | None = None,
    most_open: int | None = None,
) -> list[Claim]:
    """pending -> running for those of `item_ids` that may be sent now, in their order; write their intents.

    What is not in the result was not claimed, and must not be sent. Money is reserved with the claim: items whose
    worst case does not fit under the job's limit stay pending.

    Args:
        keys: that the requests will be sent under; None: under none.
        asking: the job's cache, if it has one: of items that ask the same only one is claimed at a time.
        most_open: requests that the endpoint may have of this job, over all processes; claims count, as they are made.
    """
    lock_jobs(connection, [job_id])
    asks = None if asking is None else askers(connection, item_ids, asking, now=now)
    fitting = within_budget(connection, job_id, item_ids if asks is None else list(asks))
    if fitting and most_open is not None:
        open_there = connection.execute(_OPEN_THERE, {"the_job": job_id, "the_endpoint": endpoint}).scalar_one()
        fitting = fitting[: max(0, most_open - open_there)]
    if not fitting:
        return []
    values = {"the_items": among(fitting), "the_job": job_id, "the_worker": worker_id, "now": now}
    rows = connection.execute(_CLAIM, values).all()
    if not rows:
        return []
    # crash point: claim-moved
    claims = _claims(rows, item_ids)
    waits = {row.id: row.not_before_at for row in rows}
    _INTEND.execute(connection, [_intent(one, worker_id, endpoint, waits[one.item_id], now, keys) for one in claims])
    if asks is not None:
        note_asked(connection, [(one.item_id, one.fence) for one in claims], asks)
    # crash point: claim-intended
    move_money(connection, job_id, reserved=sum(one.reserved_pusd for one in claims))
    return claims


def _asked(column: Any) -> Any:
    return select(column).where(requests.c.item_id == items.c.id).scalar_subquery()


_OF_A_CLAIM = (
    items.c.id,
    items.c.fence,
    items.c.job_id,
    items.c.custom_id,
    items.c.tries,
    items.c.throttled_s,
    items.c.reasks,
    items.c.worst_pusd,
    _asked(requests.c.path),
    _asked(requests.c.body),
)
_CLAIM = (
    update(items)
    .where(
        items.c.id.in_(bindparam("the_items", expanding=True)),
        items.c.job_id + 0 == THE_JOB,  # without the sum they would be tempted to walk through all that is pending
        is_claimable(NOW),
        job_allows(THE_JOB, THE_WORKER, NOW),
        is_alive(THE_WORKER),
    )
    .values(state=ItemState.RUNNING.value, fence=items.c.fence + 1, worker_id=THE_WORKER)
    .returning(*_OF_A_CLAIM, items.c.not_before_at.label("not_before_at"))
)
_INTEND = Round(
    insert(attempts),
    "key",
    "job_id",
    "worker_id",
    "endpoint",
    "state",
    "queued_at",
    "claimed_at",
    "charge",
    "reserved_pusd",
    "idempotency_key",
    "account",
)
_OPEN_THERE = select(func.count()).where(
    attempts.c.job_id == THE_JOB,
    attempts.c.state == AttemptState.INTENT.value,
    attempts.c.endpoint == bindparam("the_endpoint"),
)
_MONEY = select(jobs.c.max_cost_pusd, jobs.c.spent_pusd, jobs.c.reserved_pusd).where(jobs.c.id == THE_JOB)


def _intent(
    one: Claim, worker_id: int, endpoint: str, not_before_at: float, now: float, keys: Keys | None
) -> dict[str, Any]:
    return {
        "key": one.key,
        "job_id": one.job_id,
        "worker_id": worker_id,
        "endpoint": endpoint,
        "state": AttemptState.INTENT.value,
        "queued_at": min(not_before_at, now),
        "claimed_at": now,
        "charge": Charge.POSSIBLE.value,
        "reserved_pusd": one.reserved_pusd,
        "idempotency_key": keys.name_of(one.key) if keys else None,
        "account": keys.account if keys else None,
    }


def _claims(rows: Sequence[Any], order: Sequence[int]) -> list[Claim]:
    claims: dict[int, Claim] = {}
    for item_id, fence, job_id, custom_id, tries, throttled_s, reasks, worst_pusd, path, body, *_ in rows:
        been = Tries(tries, throttled_s, reasks)
        key = attempt_key(item_id, fence)
        claims[item_id] = Claim(item_id, fence, key, job_id, custom_id, path, bytes(body), been, worst_pusd or 0)
    return [claims[item_id] for item_id in dict.fromkeys(order) if item_id in claims]


def within_budget(connection: Connection, job_id: int, item_ids: Sequence[int]) -> list[int]:
    """Return the items, in the order given, up to the first whose worst cost no longer fits under the job's limit."""
    job = connection.execute(_MONEY, {"the_job": job_id}).one()
    if job.max_cost_pusd is None:
        return list(item_ids)
    left = job.max_cost_pusd - job.spent_pusd - job.reserved_pusd
    # An item that is not pending cannot be claimed, so it takes no money away from the next.
    pending = select(items.c.id, items.c.worst_pusd).where(items.c.id.in_(item_ids), stands_in("claim"))
    # What may cost nobody knows how much never fits.
    worst = {row.id: MOST_PUSD if row.worst_pusd is None else row.worst_pusd for row in connection.execute(pending)}
    fitting = []
    for item_id in item_ids:
        left -= worst.get(item_id, 0)
        if left < 0:
            break
        fitting.append(item_id)
    return fitting


def lost_claims(connection: Connection, *, item_ids: Sequence[int], worker_id: int) -> list[Claim]:
    """Read back what this worker holds of `item_ids`, after a commit whose outcome never arrived.

    The caller takes out what it had been given before: that is being sent already.
    """
    rows = connection.execute(
        select(*_OF_A_CLAIM).where(
            items.c.id.in_(item_ids), items.c.worker_id == worker_id, items.c.state == ItemState.RUNNING
        )
    ).all()
    return _claims(rows, item_ids)


def release(connection: Connection, *, claims: Sequence[Claim], worker_id: int, now: float) -> None:
    """running -> pending for items that were claimed ahead and never sent; their attempts become not_sent.

    The caller holds each claim's permit: from here on nobody sends it.
    """
    lock_jobs(connection, [claim.job_id for claim in claims])
    give_back(connection, [claim.key for claim in claims], worker_id=worker_id, now=now)


def give_back(connection: Connection, keys: Sequence[int], *, worker_id: int, now: float) -> int:
    """Let attempts that are still open be not_sent and their items pending again; return how many attempts were.

    The caller holds the jobs' locks, and knows that none of these requests has begun or ever will.
    """
    # Only what is still open, so that repeating a commit of unknown outcome changes nothing.
    is_open = (attempts.c.key.in_(keys), attempts.c.state == AttemptState.INTENT)
    held = connection.execute(select(attempts.c.key, attempts.c.job_id, attempts.c.reserved_pusd).where(*is_open)).all()
    if not held:
        return 0
    connection.execute(
        update(attempts)
        .where(*is_open)
        .values(state=AttemptState.NOT_SENT, charge=Charge.NONE, reserved_pusd=0, ended_at=now, cause=RELEASED)
    )
    # crash point: release-recorded
    connection.execute(
        update(items)
        .where(
            items.c.id == bindparam("the_item"),
            items.c.fence == bindparam("the_fence"),
            items.c.worker_id == worker_id,
            stands_in("release"),
        )
        .values(state=back_to_pending(), worker_id=None, not_before_at=now, wait_s=0.0),
        [{"the_item": item_id, "the_fence": fence} for item_id, fence in (split_key(row.key) for row in held)],
    )
    for job_id in {row.job_id for row in held}:
        move_money(connection, job_id, reserved=-sum(row.reserved_pusd for row in held if row.job_id == job_id))
    return len(held)
