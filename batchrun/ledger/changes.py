"""A registered job's input has changed: the new lines are staged, compared with its items, and made its input."""

from collections.abc import Collection, Iterable
from dataclasses import asdict, dataclass
from typing import Any

from sqlalchemy import ColumnElement, Connection, and_, delete, exists, func, or_, select, update

from batchrun.core.states import ItemState
from batchrun.errors import IllegalMove
from batchrun.ledger.bulk import insert_many
from batchrun.ledger.events import record_event
from batchrun.ledger.guards import lock_jobs
from batchrun.ledger.jobs import move_job, set_phase
from batchrun.ledger.ledger import Ledger, storable
from batchrun.ledger.register import CHUNK, Line, chunks, insert_lines
from batchrun.ledger.schema import incoming, items, jobs


@dataclass(frozen=True, slots=True)
class Changes:
    """How a changed input differs from the job's items, in items."""

    unchanged: int
    changed: int
    new: int
    restored: int  # lines that the job had once, superseded since: they come back as they are, answers and all
    removed: int
    busy: int  # changed or removed ones that are running or in doubt
    answered: int  # changed ones that have an answer, which was paid for: they are sent, and paid, again

    @property
    def is_none(self) -> bool:
        return not (self.changed or self.new or self.restored or self.removed)


def stage(ledger: Ledger, job_id: int, lines: Iterable[Line]) -> None:
    """Write the lines of a changed input beside the job, to be compared. Nothing of the job changes."""
    unstage(ledger, job_id)
    for chunk in chunks(lines):
        with ledger.write() as connection:
            insert_many(connection, incoming, ("job_id", *Line._fields), [_staged(job_id, line) for line in chunk])
        # crash point: changes-staged


def _staged(job_id: int, line: Line) -> tuple[Any, ...]:
    texts = {"model": storable(line.model), "note": storable(line.note)}
    return (job_id, *(texts.get(name, getattr(line, name)) for name in Line._fields))


def unstage(ledger: Ledger, job_id: int) -> None:
    """Drop the staged lines."""
    with ledger.write() as connection:
        connection.execute(delete(incoming).where(incoming.c.job_id == job_id))


def compare(connection: Connection, job_id: int) -> Changes:
    """Compare the staged lines with the job's items, by id and request digest."""
    mine = and_(items.c.job_id == job_id, items.c.is_current)
    of_id = (mine, items.c.custom_id == incoming.c.custom_id)
    is_known, is_same = exists().where(*of_id), exists().where(*of_id, ~_differs())
    was_once = _was_once(job_id)
    has_answer = exists().where(*of_id, items.c.answer_key.is_not(None))

    def count(*conditions: ColumnElement[bool]) -> int:
        query = select(func.count()).select_from(incoming).where(incoming.c.job_id == job_id, *conditions)
        return int(connection.execute(query).scalar_one())

    def count_items(*conditions: ColumnElement[bool]) -> int:
        return int(connection.execute(select(func.count()).select_from(items).where(mine, *conditions)).scalar_one())

    busy_states = items.c.state.in_((ItemState.RUNNING, ItemState.IN_DOUBT))
    return Changes(
        unchanged=count(is_same),
        changed=count(is_known, ~is_same, ~was_once),
        new=count(~is_known, ~was_once),
        restored=count(~is_same, was_once),
        removed=count_items(_is_removed(job_id)),
        busy=count_items(busy_states, or_(_is_removed(job_id), _is_changed(job_id))),
        answered=count(is_known, ~is_same, ~was_once, has_answer),
    )


def _was_once(job_id: int) -> ColumnElement[bool]:
    """Build the condition on a staged line that an item superseded earlier is just like it."""
    once = items.alias("once")
    return exists().where(
        once.c.job_id == job_id,
        ~once.c.is_current,
        once.c.custom_id == incoming.c.custom_id,
        once.c.request_digest == incoming.c.request_digest,
    )


def _differs() -> ColumnElement[bool]:
    return items.c.request_digest.is_distinct_from(incoming.c.request_digest)


def _staged_lines(job_id: int) -> tuple[ColumnElement[bool], ColumnElement[bool]]:
    """Build the condition on the staged line of an item."""
    return incoming.c.job_id == job_id, incoming.c.custom_id == items.c.custom_id


def _is_changed(job_id: int) -> ColumnElement[bool]:
    return exists().where(*_staged_lines(job_id), _differs())


def _is_removed(job_id: int) -> ColumnElement[bool]:
    return ~exists().where(*_staged_lines(job_id))


def accept(
    ledger: Ledger,
    job_id: int,
    *,
    input_digest: str,
    params_digest: str,
    spec: str,
    trial: Collection[int],
    now: float,
) -> Changes:
    """Make the staged lines the job's input: unchanged items stay, changed ones are revised, removed ones superseded.

    A job that had ended is open again in the same transaction.

    Raises:
        IllegalMove: a changed or removed item is running or in doubt, or the job is purged. Nothing was changed.
    """
    with ledger.write() as connection:
        lock_jobs(connection, [job_id])
        if connection.execute(select(jobs.c.purge_began_at).where(jobs.c.id == job_id)).scalar() is not None:
            raise IllegalMove(
                "the job is purged: what it was asked before cannot be compared with what is new",
                hint="give the spec another task_id to run it anew",
            )
        changes = compare(connection, job_id)
        if changes.busy:
            raise IllegalMove(
                f"{changes.busy:,} changed or removed items are running or in doubt",
                hint="wait for those that run, and settle the doubts: batchrun reconcile",
            )
        _supersede(connection, job_id)
        # crash point: changes-superseded
        _restore(connection, job_id)
        _reorder(connection, job_id)
        _add_new(connection, job_id, trial=trial, now=now)
        total = select(func.count()).select_from(items).where(items.c.job_id == job_id, items.c.is_current)
        identity = {"input_digest": input_digest, "params_digest": params_digest, "spec": spec}
        values = {**identity, "total": total.scalar_subquery()}
        connection.execute(update(jobs).where(jobs.c.id == job_id).values(values))
        connection.execute(delete(incoming).where(incoming.c.job_id == job_id))
        record_event(connection, job_id, "changes_accepted", at=now, detail=asdict(changes))
        if not changes.is_none:
            verdict = connection.execute(select(jobs.c.trial_verdict).where(jobs.c.id == job_id)).scalar_one()
            set_phase(connection, job_id, phase="full", verdict=verdict or "skipped", now=now)
            move_job(connection, job_id, "reopen", now=now)
        return changes


def _supersede(connection: Connection, job_id: int) -> None:
    """Take changed and removed items out of counts and outputs; their attempts and money stay."""
    mine = (items.c.job_id == job_id, items.c.is_current)
    gone = or_(_is_removed(job_id), _is_changed(job_id))
    connection.execute(update(items).where(*mine, gone).values(is_current=False, fence=items.c.fence + 1))


def _restore(connection: Connection, job_id: int) -> None:
    """Bring back the superseded items that the new input has again: what they have was paid for."""
    twin = items.alias("twin")
    latest_like_it = (
        select(func.max(twin.c.revision))
        .join(incoming, and_(incoming.c.job_id == job_id, incoming.c.custom_id == twin.c.custom_id))
        .where(
            twin.c.job_id == job_id,
            twin.c.custom_id == items.c.custom_id,
            twin.c.request_digest == incoming.c.request_digest,
        )
        .scalar_subquery()
    )
    has_current = exists().where(twin.c.job_id == job_id, twin.c.custom_id == items.c.custom_id, twin.c.is_current)
    connection.execute(
        update(items)
        .where(items.c.job_id == job_id, ~items.c.is_current, ~has_current, items.c.revision == latest_like_it)
        .values(is_current=True, fence=items.c.fence + 1)
    )


def _reorder(connection: Connection, job_id: int) -> None:
    """Give the items that stay the places of their lines in the new input."""
    of_line = {name: select(incoming.c[name]).where(*_staged_lines(job_id)).scalar_subquery() for name in _PLACE}
    connection.execute(update(items).where(items.c.job_id == job_id, items.c.is_current).values(of_line))


_PLACE = ("position", "line_no")


def _add_new(connection: Connection, job_id: int, *, trial: Collection[int], now: float) -> None:
    """Write the staged lines that have no item, as the next revision of their id, a chunk at a time."""
    revision = func.coalesce(select(func.max(items.c.revision)).where(*_of_line(job_id)).scalar_subquery(), 0) + 1
    new = (
        select(incoming, revision.label("revision"))
        .where(incoming.c.job_id == job_id, ~exists().where(*_of_line(job_id), items.c.is_current))
        .order_by(incoming.c.position)
        .limit(CHUNK)
    )
    after = -1
    while rows := connection.execute(new.where(incoming.c.position > after)).all():
        lines = [(Line(**{name: getattr(row, name) for name in Line._fields}), row.revision) for row in rows]
        insert_lines(connection, job_id, lines, trial=trial, now=now)
        after = rows[-1].position


def _of_line(job_id: int) -> tuple[ColumnElement[bool], ColumnElement[bool]]:
    """Build the condition on the items of a staged line, of any revision."""
    return items.c.job_id == job_id, items.c.custom_id == incoming.c.custom_id
