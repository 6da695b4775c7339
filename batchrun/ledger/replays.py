"""A doubt asked for again under its own idempotency key: a new attempt, and together with the first one bill.

The first attempt carries the bill, possible as it is, until a reply says what it came to: then the replay carries it.
"""

from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import Connection, insert, select, update

from batchrun.core.outcome import Charge
from batchrun.core.retry import Tries
from batchrun.core.states import AttemptState, ItemState
from batchrun.ledger.guards import CLOCK_SLACK_S, has_contents, is_alive, lock_jobs, move_money, stands_in
from batchrun.ledger.outcomes import Settlement
from batchrun.ledger.schema import FENCE_BITS, attempt_key, attempts, items, jobs, requests


@dataclass(frozen=True, slots=True)
class Place:
    """Where a key is good: one account at one address, for so long."""

    endpoint: str
    account: str
    retention_s: float


@dataclass(frozen=True, slots=True)
class Replay:
    """The right, and the duty, to ask once more under the same key."""

    key: int
    job_id: int
    custom_id: str
    path: str
    body: bytes
    idempotency_key: str
    tries: Tries
    cause: str | None  # of the doubt: it stands, unless a reply ends it
    message: str | None


def first_attempt(connection: Connection, item_id: int, place: Place, *, now: float) -> Any | None:
    """Return the attempt whose key can be used again: the item's latest in doubt, sent there, not too long ago."""
    found = connection.execute(
        select(attempts)
        .where(
            attempts.c.key > item_id << FENCE_BITS,
            attempts.c.key < (item_id + 1) << FENCE_BITS,
            attempts.c.state == AttemptState.UNKNOWN,
            attempts.c.replays.is_(None),
        )
        .order_by(attempts.c.key.desc())
        .limit(1)
    ).one_or_none()
    if found is None or found.idempotency_key is None:
        return None
    is_there = (found.endpoint, found.account) == (place.endpoint, place.account)
    is_kept = now - place.retention_s < found.claimed_at <= now + CLOCK_SLACK_S
    return found if is_there and is_kept else None


def replay(
    connection: Connection, *, job_id: int, item_id: int, fence: int, worker_id: int, place: Place, now: float
) -> Replay | None:
    """in_doubt -> running, by the holder of the job; None where the doubt, the key or the job is no longer as it was.

    The intent reserves nothing: the first attempt's worst case stands for both.
    """
    lock_jobs(connection, [job_id])
    first = first_attempt(connection, item_id, place, now=now)
    if first is None:
        return None
    before = connection.execute(select(items.c.cause, items.c.message).where(items.c.id == item_id)).one()
    holds = select(jobs.c.id).where(jobs.c.id == job_id, jobs.c.holder == worker_id)
    row = connection.execute(
        update(items)
        .where(
            items.c.id == item_id,
            items.c.fence == fence,
            items.c.is_current,
            stands_in("replay"),
            items.c.job_id.in_(holds),
            has_contents(),
            is_alive(worker_id),
        )
        .values(state=ItemState.RUNNING, fence=items.c.fence + 1, worker_id=worker_id)
        .returning(items.c.fence, items.c.custom_id, items.c.tries, items.c.throttled_s)
    ).one_or_none()
    if row is None:
        return None
    key = attempt_key(item_id, row.fence)
    intent = {
        "key": key,
        "job_id": job_id,
        "worker_id": worker_id,
        "endpoint": place.endpoint,
        "state": AttemptState.INTENT.value,
        "queued_at": now,
        "claimed_at": now,
        "charge": Charge.NONE.value,
        "reserved_pusd": 0,
        "idempotency_key": first.idempotency_key,
        "account": place.account,
        "replays": first.key,
    }
    connection.execute(insert(attempts), intent)
    asked = connection.execute(select(requests).where(requests.c.item_id == item_id)).one()
    return Replay(
        key=key,
        job_id=job_id,
        custom_id=row.custom_id,
        path=asked.path,
        body=bytes(asked.body),
        idempotency_key=first.idempotency_key,
        # The doubt was counted as a try when it arose.
        tries=Tries(max(0, row.tries - 1), row.throttled_s),
        cause=before.cause,
        message=before.message,
    )


def with_one_bill(connection: Connection, one: Settlement, known: Any) -> Settlement:
    """Return what an attempt comes to where it shares its bill with another: that is counted once.

    Args:
        known: the attempt's row as it was recorded: `state`, `charge`, `replays`.
    """
    if known.replays is None:
        is_carried = known.state == AttemptState.UNKNOWN and known.charge == Charge.NONE
        return _without_bill(one) if is_carried else one
    if one.evidence.charge is not Charge.CERTAIN:
        return _without_bill(one)
    columns = (attempts.c.state, attempts.c.cost_pusd, attempts.c.reserved_pusd)
    first = connection.execute(select(*columns).where(attempts.c.key == known.replays)).one()
    if first.state != AttemptState.UNKNOWN:
        return _without_bill(one)  # the first one's own answer has turned up: it carries the bill
    connection.execute(
        update(attempts)
        .where(attempts.c.key == known.replays)
        .values(charge=Charge.NONE.value, cost_pusd=None, reserved_pusd=0)
    )
    move_money(connection, one.job_id, spent=-(first.cost_pusd or 0), reserved=-first.reserved_pusd)
    return replace(one, reserved_pusd=first.reserved_pusd)


def _without_bill(one: Settlement) -> Settlement:
    return replace(one, evidence=replace(one.evidence, charge=Charge.NONE), cost_pusd=0, reserved_pusd=0, open_pusd=0)
