"""pending -> running, and back unsent: who may send what. The intent row is durable in the same commit."""

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import ColumnElement, Connection, and_, bindparam, case, exists, insert, or_, select, update

from batchrun.core.outcome import Charge
from batchrun.core.retry import Tries
from batchrun.core.states import ITEM_MOVES, AttemptState, ItemState, JobState
from batchrun.ledger.schema import attempt_key, attempts, items, jobs, requests


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


def is_claimable(now: float) -> ColumnElement[bool]:
    """Build the guard on an item alone: pending, current, and its wait passed.

    A wait that ends further ahead than it is long means that the clock was set back: it counts as passed.
    """
    return and_(
        items.c.state == ItemState.PENDING,
        items.c.is_current,
        or_(items.c.not_before_at <= now, items.c.not_before_at > now + items.c.wait_s + 1.0),
    )


def job_allows(worker_id: int, now: float) -> ColumnElement[bool]:
    """Build the guard on the item's job: in progress, not throttled, this phase, and held by nobody else."""
    return exists().where(
        jobs.c.id == items.c.job_id,
        jobs.c.state == JobState.IN_PROGRESS,
        or_(jobs.c.holder.is_(None), jobs.c.holder == worker_id),
        or_(jobs.c.phase == "full", items.c.is_trial),
        or_(
            jobs.c.throttle_until_at.is_(None),
            jobs.c.throttle_until_at <= now,
            jobs.c.throttle_until_at > now + jobs.c.throttle_wait_s + 1.0,
        ),
    )


def claim(
    connection: Connection, *, job_id: int, item_ids: Sequence[int], worker_id: int, endpoint: str, now: float
) -> list[Claim]:
    """pending -> running for those of `item_ids` that may be sent now; write their intents.

    What is not in the result was not claimed, and must not be sent. Money is reserved with the claim: items whose
    worst case does not fit under the job's limit stay pending.
    """
    fitting = within_budget(connection, job_id, item_ids)
    if not fitting:
        return []
    wanted = (
        select(items.c.id)
        .where(items.c.id.in_(fitting), items.c.job_id == job_id, is_claimable(now), job_allows(worker_id, now))
        .with_for_update(of=items, skip_locked=True)
    )
    rows = connection.execute(
        update(items)
        .where(items.c.id.in_(wanted), items.c.state.in_(ITEM_MOVES["claim"].sources))
        .values(state=ItemState.RUNNING, fence=items.c.fence + 1, worker_id=worker_id)
        .returning(
            items.c.id,
            items.c.fence,
            items.c.custom_id,
            items.c.tries,
            items.c.throttled_s,
            items.c.not_before_at,
            items.c.worst_pusd,
        )
    ).all()
    if not rows:
        return []
    connection.execute(
        insert(attempts),
        [
            {
                "key": attempt_key(row.id, row.fence),
                "job_id": job_id,
                "worker_id": worker_id,
                "endpoint": endpoint,
                "state": AttemptState.INTENT,
                "queued_at": min(row.not_before_at, now),
                "claimed_at": now,
                "charge": Charge.POSSIBLE,
                "reserved_pusd": row.worst_pusd or 0,
            }
            for row in rows
        ],
    )
    if reserved := sum(row.worst_pusd or 0 for row in rows):
        connection.execute(
            update(jobs).where(jobs.c.id == job_id).values(reserved_pusd=jobs.c.reserved_pusd + reserved)
        )
    bodies = {
        row.item_id: row
        for row in connection.execute(select(requests).where(requests.c.item_id.in_([row.id for row in rows])))
    }
    claims = [
        Claim(
            item_id=row.id,
            fence=row.fence,
            key=attempt_key(row.id, row.fence),
            job_id=job_id,
            custom_id=row.custom_id,
            path=bodies[row.id].path,
            body=bytes(bodies[row.id].body),
            tries=Tries(row.tries, row.throttled_s),
            reserved_pusd=row.worst_pusd or 0,
        )
        for row in rows
    ]
    return sorted(claims, key=lambda claim: claim.item_id)


def within_budget(connection: Connection, job_id: int, item_ids: Sequence[int]) -> list[int]:
    """Return those items whose worst cost still fits under the job's limit, in the order given."""
    money = select(jobs.c.max_cost_pusd, jobs.c.spent_pusd, jobs.c.reserved_pusd).where(jobs.c.id == job_id)
    job = connection.execute(money).one()
    if job.max_cost_pusd is None:
        return list(item_ids)
    job = connection.execute(money.with_for_update()).one()
    left = job.max_cost_pusd - job.spent_pusd - job.reserved_pusd
    worst = dict(
        connection.execute(select(items.c.id, items.c.worst_pusd).where(items.c.id.in_(item_ids))).tuples().all()
    )
    fitting = []
    for item_id in item_ids:
        cost = worst.get(item_id) or 0
        if cost > left:
            break
        left -= cost
        fitting.append(item_id)
    return fitting


def lost_claims(connection: Connection, *, item_ids: Sequence[int], worker_id: int) -> list[Claim]:
    """Read back the claims of a commit whose outcome never arrived: those that stand are this worker's."""
    rows = connection.execute(
        select(items, requests.c.path, requests.c.body)
        .join(requests, requests.c.item_id == items.c.id)
        .where(items.c.id.in_(item_ids), items.c.worker_id == worker_id, items.c.state == ItemState.RUNNING)
    ).all()
    return [
        Claim(
            item_id=row.id,
            fence=row.fence,
            key=attempt_key(row.id, row.fence),
            job_id=row.job_id,
            custom_id=row.custom_id,
            path=row.path,
            body=bytes(row.body),
            tries=Tries(row.tries, row.throttled_s),
            reserved_pusd=row.worst_pusd or 0,
        )
        for row in rows
    ]


def back_to_pending() -> ColumnElement[str]:
    """Build the state of an item that would become pending: cancelled, while its job is being cancelled."""
    is_cancelled = exists().where(
        jobs.c.id == items.c.job_id,
        or_(
            jobs.c.state.in_((JobState.CANCELLING, JobState.CANCELLED)),
            and_(jobs.c.state == JobState.FINALIZING, jobs.c.was_cancelled),
        ),
    )
    return case((is_cancelled, ItemState.CANCELLED.value), else_=ItemState.PENDING.value)


def release(connection: Connection, *, claims: Sequence[Claim], worker_id: int, now: float) -> None:
    """running -> pending for items that were claimed ahead and never sent; their attempts become not_sent.

    The caller holds each claim's permit: from here on nobody sends it.
    """
    # Only what is still open is released, so that repeating a commit of unknown outcome changes nothing.
    keys = [claim.key for claim in claims]
    still_open = set(
        connection.execute(
            select(attempts.c.key).where(attempts.c.key.in_(keys), attempts.c.state == AttemptState.INTENT)
        ).scalars()
    )
    claims = [claim for claim in claims if claim.key in still_open]
    if not claims:
        return
    connection.execute(
        update(attempts)
        .where(attempts.c.key == bindparam("the_key"))
        .values(state=AttemptState.NOT_SENT, charge=Charge.NONE, reserved_pusd=0, ended_at=now, cause="released"),
        [{"the_key": claim.key} for claim in claims],
    )
    connection.execute(
        update(items)
        .where(
            items.c.id == bindparam("the_item"),
            items.c.fence == bindparam("the_fence"),
            items.c.worker_id == worker_id,
            items.c.state.in_(ITEM_MOVES["release"].sources),
        )
        .values(state=back_to_pending(), worker_id=None, not_before_at=now, wait_s=0.0),
        [{"the_item": claim.item_id, "the_fence": claim.fence} for claim in claims],
    )
    for job_id in {claim.job_id for claim in claims}:
        reserved = sum(claim.reserved_pusd for claim in claims if claim.job_id == job_id)
        if reserved:
            connection.execute(
                update(jobs).where(jobs.c.id == job_id).values(reserved_pusd=jobs.c.reserved_pusd - reserved)
            )
