"""What the ledger says of a job: counts, attempts, money, times, causes, one item's history. Reading only."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, Connection, and_, case, func, or_, select

from batchrun.core.outcome import Charge
from batchrun.core.states import AttemptState, ItemState
from batchrun.ledger.schema import FENCE_BITS, answers, attempts, copies, heartbeats, items, requests, workers

LATENCY_SAMPLE = 2_000


@dataclass(frozen=True, slots=True)
class AttemptReport:
    """A job's attempts: how many of each kind, what they used, and what they cost."""

    by_state: Mapping[AttemptState, int]
    prompt_tokens: int
    completion_tokens: int
    without_usage: int  # answers whose usage is not known: the token totals are partial
    certain_requests: int
    possible_requests: int
    certain_pusd: int
    possible_pusd: int  # the most that doubtful attempts, and paid ones without usage, can have cost
    unpriced_certain: int  # certain ones whose cost is not known
    unbounded: int  # billed, or possibly, at a price that was not known: no sum holds them

    @property
    def total(self) -> int:
        return sum(self.by_state.values())

    @property
    def open(self) -> int:
        return self.by_state.get(AttemptState.INTENT, 0)

    @property
    def sent(self) -> int:
        return sum(count for state, count in self.by_state.items() if state.was_sent)


@dataclass(frozen=True, slots=True)
class CauseReport:
    """Failed or doubtful items with one cause."""

    state: ItemState
    cause: str | None
    count: int
    sample_custom_id: str
    sample_message: str | None
    sample_item_id: int
    sample_line_no: int  # of the input file, from 1


def count_items(connection: Connection, job_id: int) -> dict[ItemState, int]:
    """Count a job's current items by state; every state is a key, and the sum is the job's input items."""
    rows = connection.execute(
        select(items.c.state, func.count()).where(items.c.job_id == job_id, items.c.is_current).group_by(items.c.state)
    )
    found = {ItemState(state): count for state, count in rows}
    return {state: found.get(state, 0) for state in ItemState}


def count_trial(connection: Connection, job_id: int) -> dict[ItemState, int]:
    """Count the trial's items by state."""
    rows = connection.execute(
        select(items.c.state, func.count())
        .where(items.c.job_id == job_id, items.c.is_current, items.c.is_trial)
        .group_by(items.c.state)
    )
    found = {ItemState(state): count for state, count in rows}
    return {state: found.get(state, 0) for state in ItemState}


HALF = 10**9  # a sum of money is read in two parts


def sum_of_money(column: ColumnElement[int]) -> tuple[ColumnElement[int], ColumnElement[int]]:
    """Build a sum of money in two parts, high and low, which cannot overflow as one 64-bit sum can."""
    return func.coalesce(func.sum(column // HALF), 0), func.coalesce(func.sum(column % HALF), 0)


def report_attempts(connection: Connection, job_id: int, *, trial_only: bool = False) -> AttemptReport:
    """Sum up a job's attempts, superseded items' attempts included: they were paid for too."""
    query = select(
        attempts.c.state,
        attempts.c.charge,
        func.count(),
        func.coalesce(func.sum(attempts.c.prompt_tokens), 0),
        func.coalesce(func.sum(attempts.c.completion_tokens), 0),
        func.sum(case((attempts.c.prompt_tokens.is_(None) | attempts.c.completion_tokens.is_(None), 1), else_=0)),
        *sum_of_money(attempts.c.cost_pusd),
        *sum_of_money(attempts.c.reserved_pusd),
        func.sum(case((attempts.c.cost_pusd.is_(None), 1), else_=0)),
        func.sum(case((attempts.c.cost_pusd.is_(None) & (attempts.c.reserved_pusd == 0), 1), else_=0)),
    ).where(attempts.c.job_id == job_id)
    if trial_only:
        query = query.join(items, items.c.id == attempts.c.key // (1 << FENCE_BITS)).where(items.c.is_trial)
    by_state: dict[AttemptState, int] = {}
    totals = dict.fromkeys(
        ("prompt", "completion", "blind", "n_c", "n_p", "certain", "possible", "unpriced", "blank"), 0
    )
    rows = connection.execute(query.group_by(attempts.c.state, attempts.c.charge))
    for state, charge, count, prompt, completion, blind, *money, unpriced, unbounded in rows:
        cost, reserved = (int(money[at]) * HALF + int(money[at + 1]) for at in (0, 2))
        by_state[AttemptState(state)] = by_state.get(AttemptState(state), 0) + count
        totals["prompt"] += int(prompt)
        totals["completion"] += int(completion)
        if state == AttemptState.ANSWERED:
            totals["blind"] += int(blind)
        totals["possible"] += reserved
        totals["blank"] += int(unbounded) if charge != Charge.NONE else 0
        if charge == Charge.CERTAIN:
            totals["n_c"] += count
            totals["certain"] += cost
            totals["unpriced"] += int(unpriced)
        elif charge == Charge.POSSIBLE:
            totals["n_p"] += count
            totals["possible"] += cost
    return AttemptReport(
        by_state=by_state,
        prompt_tokens=totals["prompt"],
        completion_tokens=totals["completion"],
        without_usage=totals["blind"],
        certain_requests=totals["n_c"],
        possible_requests=totals["n_p"],
        certain_pusd=totals["certain"],
        possible_pusd=totals["possible"],
        unpriced_certain=totals["unpriced"],
        unbounded=totals["blank"],
    )


def recent_latencies(connection: Connection, job_id: int) -> list[float]:
    """Return the durations in seconds of the job's latest answers, unordered, at most `LATENCY_SAMPLE`."""
    latest = (
        select(attempts.c.duration_s)
        .where(attempts.c.job_id == job_id, attempts.c.state == AttemptState.ANSWERED)
        .order_by(attempts.c.key.desc())
        .limit(LATENCY_SAMPLE)
    )
    return [value for value in connection.execute(latest).scalars() if value is not None and math.isfinite(value)]


def warnings(connection: Connection, job_id: int) -> dict[str, int]:
    """Count the answers that are worth a look, by warning: cut by the token limit, empty, filtered, without usage."""
    rows = connection.execute(
        select(attempts.c.warning, func.count().label("how_many"))
        .where(attempts.c.job_id == job_id, attempts.c.state == AttemptState.ANSWERED, attempts.c.warning.is_not(None))
        .group_by(attempts.c.warning)
    )
    return {row.warning: row.how_many for row in rows}


def causes(connection: Connection, job_id: int) -> list[CauseReport]:
    """Group a job's failed, doubtful and rejected items by cause, the largest group first, each with its first item."""
    stopped = (ItemState.FAILED, ItemState.IN_DOUBT, ItemState.REJECTED)
    grouped = (
        select(items.c.state, items.c.cause, func.count().label("how_many"), func.min(items.c.id).label("first"))
        .where(items.c.job_id == job_id, items.c.is_current, items.c.state.in_(stopped))
        .group_by(items.c.state, items.c.cause)
        .subquery()
    )
    rows = connection.execute(
        select(grouped, items.c.custom_id, items.c.message, items.c.line_no)
        .join(items, items.c.id == grouped.c.first)
        .order_by(grouped.c.how_many.desc(), grouped.c.cause)
    )
    return [
        CauseReport(ItemState(row.state), row.cause, row.how_many, row.custom_id, row.message, row.first, row.line_no)
        for row in rows
    ]


def heartbeat(connection: Connection, worker_id: int) -> Mapping[str, Any] | None:
    """Return who a worker is and what its last beat said."""
    row = connection.execute(
        select(workers, heartbeats.c.in_flight, heartbeats.c.items_per_s, heartbeats.c.tokens_per_s)
        .outerjoin(heartbeats, heartbeats.c.worker_id == workers.c.id)
        .where(workers.c.id == worker_id)
    ).one_or_none()
    return None if row is None else dict(row._mapping)


def item_history(connection: Connection, job_id: int, custom_id: str) -> dict[str, Any] | None:
    """Return one item with its request and all its attempts, superseded revisions' attempts included."""
    mine = and_(items.c.job_id == job_id, items.c.custom_id == custom_id)
    rows = connection.execute(
        select(items, requests.c.path, requests.c.body, copies.c.raw.label("copied"))
        .outerjoin(requests, requests.c.item_id == items.c.id)
        .outerjoin(copies, copies.c.item_id == items.c.id)
        .where(mine)
        .order_by(items.c.revision.desc())
    ).all()
    if not rows:
        return None
    current = dict(rows[0]._mapping)
    current["attempts"] = [
        attempt | {"revision": row.revision, "is_current": row.is_current}
        for row in reversed(rows)
        for attempt in _attempts_of(connection, row.id)
    ]
    return current


def _attempts_of(connection: Connection, item_id: int) -> list[dict[str, Any]]:
    low, high = item_id << FENCE_BITS, (item_id + 1) << FENCE_BITS
    rows = connection.execute(
        select(attempts, answers.c.raw, workers.c.name.label("worker"), workers.c.host)
        .outerjoin(answers, answers.c.key == attempts.c.key)
        .outerjoin(workers, workers.c.id == attempts.c.worker_id)
        .where(attempts.c.key >= low, attempts.c.key < high)
        .order_by(attempts.c.key)
    )
    return [dict(row._mapping) for row in rows]


def some_item_names(connection: Connection, job_id: int, *, like: str, limit: int = 200) -> list[str]:
    """Return names of the job's items among which a mistyped one may be: those that begin alike, and the first ones."""
    mine = (items.c.job_id == job_id, items.c.is_current)
    alike = items.c.custom_id.startswith(like[: max(1, len(like) // 2)], autoescape=True)
    found = connection.execute(select(items.c.custom_id).where(*mine, alike).limit(limit)).scalars().all()
    first = select(items.c.custom_id).where(*mine, items.c.position < limit).order_by(items.c.position)
    return list(dict.fromkeys([*found, *connection.execute(first).scalars()]))


def first_items(
    connection: Connection, job_id: int, *, state: ItemState | None, limit: int
) -> list[tuple[str, ItemState]]:
    """Return the first items of the job, in this state or any: their names and states."""
    query = select(items.c.custom_id, items.c.state).where(items.c.job_id == job_id, items.c.is_current)
    query = query if state is None else query.where(items.c.state == state)
    rows = connection.execute(query.order_by(items.c.position).limit(limit))
    return [(row.custom_id, ItemState(row.state)) for row in rows]


def has_sent_since(connection: Connection, job_id: int, since_at: float, *, except_worker: int) -> bool:
    """Say whether a request of the job may have left since then; open intents of this worker are not out yet."""
    is_open = and_(attempts.c.state == AttemptState.INTENT, attempts.c.worker_id != except_worker)
    may_have = or_(is_open, attempts.c.sent_at > since_at)
    found = select(attempts.c.key).where(attempts.c.job_id == job_id, may_have).limit(1)
    return connection.execute(found).scalar() is not None


def trial_ids(connection: Connection, job_id: int) -> list[int]:
    """Return the trial's items, in input order."""
    return list(
        connection.execute(
            select(items.c.id)
            .where(items.c.job_id == job_id, items.c.is_trial, items.c.is_current)
            .order_by(items.c.position)
        ).scalars()
    )
