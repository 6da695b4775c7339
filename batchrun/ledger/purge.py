"""Forgetting what a job that has ended asked and was answered. What happened, when, and what it cost stays.

A purge begins with a mark on the job, from which on nothing of it is sent again and no output of it is written. Then
the contents go, a few thousand items to a transaction. One that was cut short is begun again, and goes on.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, Connection, delete, exists, func, or_, select, update

from batchrun.core.states import FINAL_JOB_STATES, AttemptState
from batchrun.errors import IllegalMove
from batchrun.ledger.events import record_event
from batchrun.ledger.guards import lock_jobs
from batchrun.ledger.jobs import read_job
from batchrun.ledger.ledger import Ledger
from batchrun.ledger.schema import (
    FENCE_BITS,
    answers,
    attempts,
    copies,
    events,
    incoming,
    items,
    jobs,
    requests,
    workers,
)

BATCH_ITEMS = 2_000
BATCH_BYTES = 16_000_000  # of contents: a few large ones fill a batch as well
BATCH_ROWS = 500
PROMPTS_OF_A_SPEC = ("prompt_template", "system")


@dataclass(frozen=True, slots=True)
class Contents:
    """How much of a job can be forgotten, or was."""

    requests: int = 0
    answers: int = 0
    texts: int = 0  # words of endpoints, and notes on lines, that may quote a prompt
    size_bytes: int = 0  # of requests and answers

    def __add__(self, other: "Contents") -> "Contents":
        return Contents(
            self.requests + other.requests,
            self.answers + other.answers,
            self.texts + other.texts,
            self.size_bytes + other.size_bytes,
        )


@dataclass(frozen=True, slots=True)
class _Span:
    """Items of one batch, by id: from `low` up to and without `high`; not all of them need be the job's."""

    job_id: int
    low: int
    high: int

    # The sum keeps the databases from walking through all of the job for every batch.

    def items(self) -> tuple[ColumnElement[bool], ...]:
        return items.c.id >= self.low, items.c.id < self.high, items.c.job_id + 0 == self.job_id

    def attempts(self) -> tuple[ColumnElement[bool], ...]:
        low, high = self.low << FENCE_BITS, self.high << FENCE_BITS
        return attempts.c.key >= low, attempts.c.key < high, attempts.c.job_id + 0 == self.job_id

    def requests(self) -> tuple[ColumnElement[bool], ...]:
        inside = (requests.c.item_id >= self.low, requests.c.item_id < self.high)
        return *inside, requests.c.item_id.in_(select(items.c.id).where(*self.items()))

    def answers(self) -> tuple[ColumnElement[bool], ...]:
        inside = (answers.c.key >= self.low << FENCE_BITS, answers.c.key < self.high << FENCE_BITS)
        return *inside, answers.c.key.in_(select(attempts.c.key).where(*self.attempts()))

    def copies(self) -> tuple[ColumnElement[bool], ...]:
        inside = (copies.c.item_id >= self.low, copies.c.item_id < self.high)
        return *inside, copies.c.item_id.in_(select(items.c.id).where(*self.items()))


_ITEM_TEXTS = or_(items.c.message.is_not(None), items.c.note.is_not(None))
_ATTEMPT_TEXT = attempts.c.message.is_not(None)


def begin_purge(connection: Connection, job_id: int, *, holder: int, now: float) -> None:
    """Mark a job that has ended, and that this worker holds, as purged; forget what its own row says of its prompts.

    Raises:
        IllegalMove: the job has not ended, or a request of it is still open. Nothing was changed.
    """
    lock_jobs(connection, [job_id])
    job = read_job(connection, job_id)
    is_open = exists().where(attempts.c.job_id == job_id, attempts.c.state == AttemptState.INTENT)
    marked = connection.execute(
        update(jobs)
        .where(jobs.c.id == job_id, jobs.c.state.in_(FINAL_JOB_STATES), jobs.c.holder == holder, ~is_open)
        .values(
            purge_began_at=func.coalesce(jobs.c.purge_began_at, now),
            purged_at=None,
            message=None,
            spec=json.dumps(without_prompts(job.spec)),
        )
    )
    if not marked.rowcount:
        what = f"job {job.task_id!r} is {job.state}, or a request of it is open: only what has ended can be purged"
        raise IllegalMove(what, hint=f"batchrun status {job.task_id}")
    record_event(connection, job_id, "purge_began", at=now)


def delete_contents(ledger: Ledger, job_id: int) -> Contents:
    """Delete a marked job's contents, batch by batch; return how much there was."""
    forgotten = Contents()
    for span, found in _spans(ledger, job_id):
        with ledger.write() as connection:
            lock_jobs(connection, [job_id])
            forgotten += Contents(found.requests, found.answers, _forget(connection, span), found.size_bytes)
        # crash point: purge-batch
    _forget_staged(ledger, job_id)
    _forget_events(ledger, job_id)
    # crash point: purge-empty
    return forgotten


def end_purge(connection: Connection, job_id: int, *, forgotten: Contents, now: float) -> None:
    """Note that nothing of a marked job's contents is left."""
    lock_jobs(connection, [job_id])
    ended = update(jobs).where(jobs.c.id == job_id, jobs.c.purge_began_at.is_not(None)).values(purged_at=now)
    connection.execute(ended)
    detail = {"requests": forgotten.requests, "answers": forgotten.answers, "texts": forgotten.texts}
    record_event(connection, job_id, "purged", at=now, detail=detail)


def measure_contents(ledger: Ledger, job_id: int) -> Contents:
    """Say how much a purge would delete."""
    there = Contents()
    for span, found in _spans(ledger, job_id):
        with ledger.read() as connection:
            there += found + Contents(texts=_count_texts(connection, span))
    return there


def _forget(connection: Connection, span: _Span) -> int:
    """Delete a batch's contents; return how many texts there were."""
    connection.execute(delete(requests).where(*span.requests()))
    connection.execute(delete(answers).where(*span.answers()))
    connection.execute(delete(copies).where(*span.copies()))
    texts = connection.execute(update(attempts).where(*span.attempts(), _ATTEMPT_TEXT).values(message=None)).rowcount
    texts += connection.execute(
        update(items).where(*span.items(), _ITEM_TEXTS).values(message=None, note=None)
    ).rowcount
    # crash point: purge-half-batch
    # With the digest of a request one could find out whether it was a certain one; a rank may be made of one too.
    has_digest = items.c.request_digest.is_not(None)
    connection.execute(update(items).where(*span.items(), has_digest).values(request_digest=None, rank=0))
    return texts


def _count_texts(connection: Connection, span: _Span) -> int:
    of_attempts = select(func.count()).select_from(attempts).where(*span.attempts(), _ATTEMPT_TEXT)
    of_items = select(func.count()).select_from(items).where(*span.items(), _ITEM_TEXTS)
    return int(connection.execute(of_attempts).scalar_one() + connection.execute(of_items).scalar_one())


def _spans(ledger: Ledger, job_id: int) -> Iterator[tuple[_Span, Contents]]:
    """Cut a job's items into batches, and say what contents each has."""
    with ledger.read() as connection:
        ends = select(func.min(items.c.id), func.max(items.c.id)).where(items.c.job_id == job_id)
        first, last = connection.execute(ends).one()
    if first is None:
        return
    for low in range(first, last + 1, BATCH_ITEMS):
        whole = _Span(job_id, low, min(low + BATCH_ITEMS, last + 1))
        with ledger.read() as connection:
            sizes = _sizes(connection, whole)
        start, inside = whole.low, Contents()
        for item_id in sorted(sizes):
            if inside.size_bytes and inside.size_bytes + sizes[item_id].size_bytes > BATCH_BYTES:
                yield _Span(job_id, start, item_id), inside
                start, inside = item_id, Contents()
            inside += sizes[item_id]
        yield _Span(job_id, start, whole.high), inside


def _sizes(connection: Connection, span: _Span) -> dict[int, Contents]:
    """Return what each item of a batch has, by its id. The sizes are known without reading the contents."""
    found: dict[int, Contents] = {}
    asked = select(requests.c.item_id, func.length(requests.c.body)).where(*span.requests())
    for item_id, size_bytes in connection.execute(asked):
        found[item_id] = Contents(requests=1, size_bytes=size_bytes)
    answered = select(answers.c.key // (1 << FENCE_BITS), func.length(answers.c.raw)).where(*span.answers())
    copied = select(copies.c.item_id, func.length(copies.c.raw)).where(*span.copies())
    for item_id, size_bytes in [*connection.execute(answered), *connection.execute(copied)]:
        found[item_id] = found.get(item_id, Contents()) + Contents(answers=1, size_bytes=size_bytes)
    return found


def _forget_staged(ledger: Ledger, job_id: int) -> None:
    """Delete the lines of a changed input that somebody was comparing when their process died."""
    mine = incoming.c.job_id == job_id
    some = select(incoming.c.position).where(mine).order_by(incoming.c.position).limit(BATCH_ROWS)
    while True:
        with ledger.write() as connection:
            deleted = connection.execute(delete(incoming).where(mine, incoming.c.position.in_(some)))
        if deleted.rowcount < BATCH_ROWS:
            return


def _forget_events(ledger: Ledger, job_id: int) -> None:
    """Take endpoints' words, and prompts of the spec, out of the events."""
    after = 0
    some = select(events.c.id, events.c.detail).where(events.c.job_id == job_id, events.c.detail.is_not(None))
    while True:
        with ledger.write() as connection:
            rows = connection.execute(some.where(events.c.id > after).order_by(events.c.id).limit(BATCH_ROWS)).all()
            for row in rows:
                if (detail := _without_words(row.detail)) != row.detail:
                    connection.execute(update(events).where(events.c.id == row.id).values(detail=detail))
        if len(rows) < BATCH_ROWS:
            return
        after = rows[-1].id


def _without_words(detail: str) -> str:
    said: dict[str, Any] = json.loads(detail)
    kept = {name: value for name, value in said.items() if name != "message"}
    if isinstance(kept.get("spec"), str):
        kept["spec"] = json.dumps(without_prompts(json.loads(kept["spec"])))
    return detail if kept == said else json.dumps(kept)


def without_prompts(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Return a stored spec without the texts that are a part of every prompt."""
    return {name: None if name in PROMPTS_OF_A_SPEC else value for name, value in spec.items()}


def performers(connection: Connection, job_id: int, *, except_worker: int) -> list[Any]:
    """Return the workers that made requests of the job and have not left; an idle one's spool holds nothing."""
    left = select(workers).where(workers.c.ended_at.is_(None), workers.c.id != except_worker).order_by(workers.c.id)
    made = exists().where(attempts.c.job_id == job_id, attempts.c.worker_id == workers.c.id)
    return list(connection.execute(left.where(made)).all())


def is_at_work(connection: Connection, worker_id: int) -> bool:
    """Say whether a worker has open requests, of any job."""
    # Looked for job by job: there is an index of each job's open attempts, and they are few.
    of_jobs = attempts.c.job_id.in_(select(jobs.c.id))
    is_open = exists().where(of_jobs, attempts.c.state == AttemptState.INTENT, attempts.c.worker_id == worker_id)
    return bool(connection.execute(select(is_open)).scalar())


def has_attempt_among(connection: Connection, job_id: int, keys: Sequence[int]) -> bool:
    """Say whether any of these attempts is the job's."""
    for start in range(0, len(keys), BATCH_ROWS):
        some = attempts.c.key.in_(keys[start : start + BATCH_ROWS])
        if connection.execute(select(attempts.c.key).where(some, attempts.c.job_id + 0 == job_id).limit(1)).first():
            return True
    return False


def ended_before(connection: Connection, at: float) -> list[tuple[int, str]]:
    """Return the id and name of every job that had ended by then and is not purged to the end, the oldest first."""
    rows = connection.execute(
        select(jobs.c.id, jobs.c.task_id)
        .where(jobs.c.state.in_(FINAL_JOB_STATES), jobs.c.ended_at <= at, jobs.c.purged_at.is_(None))
        .order_by(jobs.c.ended_at, jobs.c.id)
    )
    return [(row.id, row.task_id) for row in rows]
