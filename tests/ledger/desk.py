"""A ledger with one job on the desk: short words for what is done to it, and the check of its books.

Times are given, never read: a desk's clock stands still until a test moves it.
"""

import multiprocessing
import os
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any
from uuid import uuid4

import pytest
from sqlalchemy import Connection, bindparam, func, insert, select, update

from batchrun.core.concurrency import Concurrency
from batchrun.core.outcome import Charge, Evidence, Scope, Timing, Usage
from batchrun.core.retry import RetryPolicy, decide
from batchrun.core.states import AttemptState, ItemState, JobState
from batchrun.ledger import consents, jobs, liveness
from batchrun.ledger.claims import Claim, claim, release
from batchrun.ledger.consents import Stopped, stopped_items
from batchrun.ledger.events import read_events
from batchrun.ledger.ledger import Ledger
from batchrun.ledger.liveness import Worker
from batchrun.ledger.purge import Contents, begin_purge, delete_contents, end_purge
from batchrun.ledger.register import Line, write_items
from batchrun.ledger.reports import count_items
from batchrun.ledger.rescue import rescue
from batchrun.ledger.schema import answers, attempts, heartbeats, metadata, split_key, workers
from batchrun.ledger.schema import items as items_table
from batchrun.ledger.schema import jobs as jobs_table
from batchrun.ledger.settle import Settled, Settlement, settle, settle_answers
from batchrun.ledger.sweeps import open_attempt
from tests.lab import PRELOAD

# Processes are forked by a server that has imported everything and opened nothing, so that a start costs no imports.
forks = multiprocessing.get_context("forkserver")
forks.set_forkserver_preload([*PRELOAD, "tests.ledger.desk", "alembic.command", "psycopg"])
# For what only one of the back ends can be made to do.
on_sqlite = pytest.mark.parametrize("back_end", ["sqlite"], indirect=True, scope="session")
on_postgres = pytest.mark.parametrize("back_end", ["postgres"], indirect=True, scope="session")
NOW = 1_700_000_000.0
WORST_PUSD = 1_000
RETRY_TIMES = 2
REASK = 1
ENDPOINT = "http://127.0.0.1:1/v1"
_names = count(1)


@dataclass(frozen=True)
class Came:
    """What a request came to, as an endpoint's room would judge it, and its cost by usage."""

    evidence: Evidence
    cost_pusd: int | None

    @property
    def outcome(self) -> AttemptState:
        return self.evidence.outcome


def came(
    outcome: AttemptState,
    cause: str | None,
    charge: Charge,
    *,
    cost_pusd: int | None = None,
    raw: bytes | None = None,
    scope: Scope = Scope.ITEM,
    retry_after_s: float | None = None,
) -> Came:
    """Put evidence together."""
    message = None if cause is None else f"it was {cause}"
    timing = None if outcome is AttemptState.NOT_SENT else Timing(NOW, NOW + 0.1, NOW + 0.2, 0.2)
    usage = Usage(3, 5) if cost_pusd else Usage()
    evidence = Evidence(
        outcome, cause, message, charge, timing, scope, raw=raw, usage=usage, retry_after_s=retry_after_s
    )
    return Came(evidence, 0 if charge is Charge.NONE else cost_pusd)


ANSWERED = came(AttemptState.ANSWERED, None, Charge.CERTAIN, cost_pusd=300, raw=b'{"an": "answer"}')
ANSWERED_BLIND = came(AttemptState.ANSWERED, None, Charge.CERTAIN, raw=b'{"no": "usage"}')
INVALID = came(AttemptState.ANSWERED, "invalid_answer", Charge.CERTAIN, cost_pusd=300, raw=b'{"an": "other"}')
REFUSED = came(AttemptState.REFUSED, "bad_request", Charge.NONE, raw=b'{"error": {}}')
SERVER_ERROR = came(AttemptState.REFUSED, "server_error", Charge.NONE)
THROTTLED = came(AttemptState.REFUSED, "rate_limited", Charge.NONE, scope=Scope.THROTTLE, retry_after_s=7.0)
UNUSABLE = came(AttemptState.UNUSABLE, "html", Charge.POSSIBLE, raw=b"<html>")
UNUSABLE_PAID = came(AttemptState.UNUSABLE, "no_choices", Charge.CERTAIN, cost_pusd=200, raw=b"{}")
UNKNOWN = came(AttemptState.UNKNOWN, "timeout", Charge.POSSIBLE, raw=b'{"half": ')
UNKNOWN_BARE = came(AttemptState.UNKNOWN, "connection_lost", Charge.POSSIBLE)
NOT_SENT = came(AttemptState.NOT_SENT, "connect", Charge.NONE, scope=Scope.UNREACHABLE)


def policy(on_unknown: str, retry_times: int = RETRY_TIMES) -> RetryPolicy:
    """Make a policy without chance: ten seconds for every try."""
    return RetryPolicy(
        on_unknown=on_unknown,  # type: ignore[arg-type]
        is_spent=lambda counted: counted > retry_times,
        backoff_s=lambda counted: 10.0 * counted,
        throttle_s=lambda throttled_s: 30.0,
        reask=REASK,
    )


def line(number: int, *, text: str = "hello", worst_pusd: int | None = WORST_PUSD, is_rejected: bool = False) -> Line:
    """Make an input line: `q-<number>` at this position. Another text is another request."""
    custom_id, line_no = f"q-{number}", number + 1
    if is_rejected:
        return Line(number, line_no, custom_id, None, None, "not an object", None, None, None)
    body = f'{{"model": "m", "n": {number}, "text": "{text}"}}'.encode()
    digest = f"{number}-{text}".encode()[:16].ljust(16, b"\0")
    return Line(number, line_no, custom_id, digest, "m", None, "/chat/completions", body, worst_pusd)


def let_lock_go(worker: Worker) -> None:
    """Let a worker's lock go free, as the death of its process does. No fork may close that descriptor again."""
    liveness._held.discard(worker.lock_fd)
    os.close(worker.lock_fd)


def hire(ledger: Ledger) -> int:
    """Enter a worker into the ledger, without lock or spool; return its id."""
    with ledger.write() as connection:
        return hire_in(connection)


def hire_in(connection: Connection) -> int:
    """The same inside a transaction."""
    name = f"worker-{next(_names)}"
    values = {"name": name, "host": "here", "pid": 1, "folder": "/nowhere", "version": "0", "started_at": NOW}
    row = insert(workers).values(incarnation=f"{name}-{uuid4().hex}", **values).returning(workers.c.id)
    worker_id: int = connection.execute(row).scalar_one()
    connection.execute(insert(heartbeats).values(worker_id=worker_id, beat=0, in_flight=0))
    return worker_id


def register(ledger: Ledger, total: int, *, holder: int, **settings: Any) -> jobs.Job:
    """Register a job without items; it stays validating, held by `holder`."""
    values = {
        "task_id": f"job-{next(_names)}",
        "phase": "full",
        "on_unknown": "hold",
        "retry_times": RETRY_TIMES,
        "max_cost_pusd": None,
    }
    with ledger.write() as connection:
        job = jobs.register_job(
            connection,
            spec={"task_id": "x"},
            input_digest="in",
            params_digest="params",
            total=total,
            concurrency=Concurrency.of(4),
            holder=holder,
            now=NOW,
            **{**values, **settings},
        )
    assert job is not None
    return job


@dataclass
class Desk:
    """One job in a ledger, and one worker for those who do not care which."""

    ledger: Ledger
    job_id: int
    item_ids: list[int]
    worker: int
    policy: RetryPolicy
    now: float = NOW
    others: list[int] = field(default_factory=list)

    @classmethod
    def open(
        cls, ledger: Ledger, lines: Sequence[Line] | int = 1, *, trial: Sequence[int] = (), **settings: Any
    ) -> "Desk":
        """Register a job with these lines (or this many), in progress and held by nobody."""
        if isinstance(lines, int):
            lines = [line(number) for number in range(lines)]
        worker = hire(ledger)
        job = register(ledger, len(lines), holder=worker, **settings)
        write_items(ledger, job.id, lines, trial=trial, now=NOW)
        with ledger.write() as connection:
            assert jobs.move_job(connection, job.id, "open", now=NOW)
            jobs.drop(connection, job.id, worker_id=worker, active_s=0.0)
            mine = select(items_table.c.id).where(items_table.c.job_id == job.id).order_by(items_table.c.position)
            item_ids = list(connection.execute(mine).scalars())
        return cls(ledger, job.id, item_ids, worker, policy(job.on_unknown, job.retry_times))

    # -- what is done -------------------------------------------------------------------------------------------------

    def hire(self) -> int:
        """Enter one more worker."""
        return hire(self.ledger)

    def claim(self, *numbers: int, worker: int | None = None, now: float | None = None) -> list[Claim]:
        """Claim these items (all of the job, when none is named)."""
        with self.ledger.write() as connection:
            return claim(
                connection,
                job_id=self.job_id,
                item_ids=[self.item_ids[number] for number in numbers] or self.item_ids,
                worker_id=worker or self.worker,
                endpoint=ENDPOINT,
                now=self.now if now is None else now,
            )

    def claim_one(self, number: int = 0, *, worker: int | None = None) -> Claim:
        """Claim one item that must be there to be claimed."""
        (one,) = self.claim(number, worker=worker)
        return one

    def settlement(self, claimed: Claim, what: Came, *, worker: int | None = None) -> Settlement:
        """Put what came of a claim into the ledger's form, as its owner decides."""
        return Settlement(
            claimed.key,
            self.job_id,
            worker or self.worker,
            what.evidence,
            decide(what.evidence, claimed.tries, self.policy),
            what.cost_pusd,
            claimed.reserved_pusd,
            self.now,
        )

    def settle(self, claimed: Claim, what: Came, *, worker: int | None = None) -> Settled:
        """Record what came of a claim, as its owner does."""
        with self.ledger.write() as connection:
            return settle(connection, self.settlement(claimed, what, worker=worker))

    def settle_in_a_group(self, claimed: Claim, what: Came, *, worker: int | None = None) -> Settled:
        """Do the same as a group commit does: quickly, or else row by row."""
        one = self.settlement(claimed, what, worker=worker)
        with self.ledger.write() as connection:
            if one.decision.to is ItemState.COMPLETED and settle_answers(connection, [one]):
                return Settled.MOVED
            connection.rollback()
        with self.ledger.write() as connection:
            return settle(connection, one)

    def adopt(self, key: int, what: Came) -> Settled | None:
        """Record what a spool or an import knows of an attempt, as a sweeper does; None where nothing can be learnt."""
        with self.ledger.write() as connection:
            found = open_attempt(connection, key)
            if found is None:
                return None
            decision = decide(what.evidence, found.tries, self.policy)
            one = Settlement(
                key,
                found.job_id,
                found.worker_id,
                what.evidence,
                decision,
                what.cost_pusd,
                found.reserved_pusd,
                self.now,
            )
            return settle(connection, one)

    def release(self, *claims: Claim, worker: int | None = None) -> None:
        with self.ledger.write() as connection:
            release(connection, claims=claims, worker_id=worker or self.worker, now=self.now)

    def rescue(self, worker: int | None = None, *, begun: Collection[int] | None = None) -> list[int]:
        """Rescue what a worker holds; return the attempts that are in doubt by that."""
        order = {"job_id": self.job_id, "worker_id": worker or self.worker, "now": self.now}
        with self.ledger.write() as connection:
            return rescue(connection, **order, begun=begun).in_doubt

    def shown(self, state: ItemState | str, *numbers: int) -> list[Stopped]:
        """List the stopped items as they would be shown to a person."""
        with self.ledger.read() as connection:
            found = stopped_items(connection, self.job_id, state=ItemState(state))
        wanted = {self.item_ids[number] for number in numbers}
        return [one for one in found if not wanted or one.item_id in wanted]

    def consent(self, shown: Sequence[Stopped]) -> int:
        with self.ledger.write() as connection:
            return consents.consent(connection, self.job_id, shown, now=self.now)

    def give_up(self, shown: Sequence[Stopped]) -> int:
        with self.ledger.write() as connection:
            return consents.give_up(connection, self.job_id, shown, now=self.now)

    def retry_by_policy(self, retry_times: int = RETRY_TIMES) -> tuple[int, int]:
        with self.ledger.write() as connection:
            return consents.retry_by_policy(connection, self.job_id, retry_times=retry_times, now=self.now)

    def cancel_pending(self) -> int:
        with self.ledger.write() as connection:
            return consents.cancel_pending(connection, self.job_id)

    def reopen_cancelled(self) -> int:
        with self.ledger.write() as connection:
            return consents.reopen_cancelled(connection, self.job_id, now=self.now)

    def cancel(self) -> int:
        with self.ledger.write() as connection:
            return jobs.cancel_job(connection, self.job_id, now=self.now)

    def move(self, name: str, **more: Any) -> bool:
        with self.ledger.write() as connection:
            return jobs.move_job(connection, self.job_id, name, now=self.now, **more)

    def begin_purge(self) -> None:
        """Mark the job as purged, held for the moment by this desk's worker."""
        with self.ledger.write() as connection:
            assert jobs.take(connection, self.job_id, worker_id=self.worker, instead_of=None, now=self.now)
            begin_purge(connection, self.job_id, holder=self.worker, now=self.now)
            jobs.drop(connection, self.job_id, worker_id=self.worker, active_s=0.0)

    def purge(self) -> Contents:
        """Forget the job's contents."""
        self.begin_purge()
        contents = delete_contents(self.ledger, self.job_id)
        with self.ledger.write() as connection:
            end_purge(connection, self.job_id, forgotten=contents, now=self.now)
        return contents

    def end(self) -> None:
        """Close the job, as its holder does when nothing is left to do."""
        assert self.move("finalize")
        assert self.move("close" if self.job.was_cancelled else "complete")

    def set(self, **values: Any) -> None:
        """Change the job's settings as a person does."""
        with self.ledger.write() as connection:
            jobs.change_settings(connection, self.job_id, now=self.now, **values)
        if "on_unknown" in values:
            self.policy = policy(values["on_unknown"], self.job.retry_times)

    def force_job(self, **values: Any) -> None:
        """Put the job's row into a state without a move: for tests of what must not happen there."""
        with self.ledger.write() as connection:
            connection.execute(update(jobs_table).where(jobs_table.c.id == self.job_id).values(values))

    def force_item(self, number: int = 0, **values: Any) -> None:
        """The same with an item's row."""
        with self.ledger.write() as connection:
            row = update(items_table).where(items_table.c.id == self.item_ids[number])
            connection.execute(row.values(values))

    # -- what is seen -------------------------------------------------------------------------------------------------

    @property
    def job(self) -> jobs.Job:
        with self.ledger.read() as connection:
            return jobs.read_job(connection, self.job_id)

    @property
    def money(self) -> tuple[int, int]:
        """What is spent and what is reserved, as the job's row says."""
        return self.job.spent_pusd, self.job.reserved_pusd

    def item(self, number: int = 0) -> dict[str, Any]:
        """Return the whole row of an item."""
        with self.ledger.read() as connection:
            query = select(items_table).where(items_table.c.id == self.item_ids[number])
            return dict(connection.execute(query).one()._mapping)

    def state(self, number: int = 0) -> str:
        return str(self.item(number)["state"])

    def states(self) -> list[str]:
        return [self.state(number) for number in range(len(self.item_ids))]

    def attempts(self, number: int = 0) -> list[dict[str, Any]]:
        """Return an item's attempts, the oldest first."""
        with self.ledger.read() as connection:
            rows = connection.execute(select(attempts).where(attempts.c.job_id == self.job_id).order_by(attempts.c.key))
            return [dict(row._mapping) for row in rows if split_key(row.key)[0] == self.item_ids[number]]

    def outcomes(self, number: int = 0) -> list[str]:
        return [attempt["state"] for attempt in self.attempts(number)]

    def counts(self) -> dict[str, int]:
        """Count the items by state; states without items are left out."""
        with self.ledger.read() as connection:
            return {state.value: n for state, n in count_items(connection, self.job_id).items() if n}

    def events(self, kind: str) -> list[dict[str, Any]]:
        with self.ledger.read() as connection:
            return read_events(connection, self.job_id, kind=kind)


# -- the books --------------------------------------------------------------------------------------------------------


def snapshot(ledger: Ledger, *, without: Sequence[str] = ("events", "workers", "heartbeats")) -> dict[str, list[Any]]:
    """Return every row of the ledger by table: what a refused move must leave as it was."""
    with ledger.read() as connection:
        return {
            table.name: sorted(map(tuple, connection.execute(select(table))), key=repr)
            for table in metadata.sorted_tables
            if table.name not in without
        }


def check_books(ledger: Ledger) -> None:
    """Fail unless everything in the ledger adds up, for every item of every job."""
    with ledger.read() as connection:
        for job_id in connection.execute(select(jobs_table.c.id)).scalars().all():
            check_job(connection, job_id)
            _check_bills(connection, job_id)


def check_job(connection: Connection, job_id: int) -> Any:
    """Fail unless a job's counts, money and items add up; return its row."""
    job = connection.execute(_JOB, {"the_job": job_id}).one()
    check_money(connection, job_id)
    if job.state != JobState.VALIDATING:
        assert sum(count_items(connection, job_id).values()) == job.total, "counts are not the input items"
    made = _attempts_by_item(connection, job_id)
    for item in connection.execute(_ITEMS, {"the_job": job_id}):
        _check_item(item, made.get(item.id, []))
    return job


def check_money(connection: Connection, job_id: int) -> None:
    """Fail unless the job's money is the sum of its attempts' money, superseded items' attempts included."""
    job = connection.execute(_JOB, {"the_job": job_id}).one()
    spent, reserved = map(int, connection.execute(_SUMS, {"the_job": job_id}).one())
    assert (job.spent_pusd, job.reserved_pusd) == (spent, reserved), "the job's money is not its attempts' money"
    for row in connection.execute(_ATTEMPTS, {"the_job": job_id}):
        if row.reserved_pusd:
            assert row.charge != Charge.NONE, f"{row} was free and keeps money reserved"
            assert row.cost_pusd is None or row.prompt_tokens is not None, f"{row} is priced by no usage, and open"


_THE_JOB = bindparam("the_job")
_JOB = select(jobs_table).where(jobs_table.c.id == _THE_JOB)
_ITEMS = select(items_table).where(items_table.c.job_id == _THE_JOB)
_SUMS = select(
    func.coalesce(func.sum(attempts.c.cost_pusd), 0), func.coalesce(func.sum(attempts.c.reserved_pusd), 0)
).where(attempts.c.job_id == _THE_JOB)
_ATTEMPTS = (
    select(attempts, answers.c.key.label("answer"))
    .outerjoin(answers, answers.c.key == attempts.c.key)
    .where(attempts.c.job_id == _THE_JOB)
    .order_by(attempts.c.key)
)


def _attempts_by_item(connection: Connection, job_id: int) -> dict[int, list[Any]]:
    made: dict[int, list[Any]] = {}
    job = connection.execute(_JOB, {"the_job": job_id}).one()
    for attempt in connection.execute(_ATTEMPTS, {"the_job": job_id}):
        if job.purged_at is not None:
            assert (attempt.answer, attempt.message) == (None, None), f"{attempt} was purged"
        elif job.purge_began_at is None:
            assert attempt.state != AttemptState.ANSWERED or attempt.answer, f"{attempt} was answered: with what?"
        made.setdefault(split_key(attempt.key)[0], []).append(attempt)
    return made


def _check_bills(connection: Connection, job_id: int) -> None:
    """Fail where an item of a job that was always under hold may have been billed more often than was agreed to."""
    job = connection.execute(_JOB, {"the_job": job_id}).one()
    settings = [event["detail"] for event in read_events(connection, job_id, kind="settings")]
    if job.on_unknown != "hold" or any("on_unknown" in detail for detail in settings):
        return
    alarms = {event["item_id"] for event in read_events(connection, job_id, kind="invariant_alarm")}
    made = _attempts_by_item(connection, job_id)
    for item in connection.execute(_ITEMS, {"the_job": job_id}):
        billable = sum(attempt.charge != Charge.NONE for attempt in made.get(item.id, []))
        if item.id not in alarms:
            assert billable <= 1 + item.consents + item.reasks, f"item {item.id} may have been billed {billable} times"


def _check_item(item: Any, made: list[Any]) -> None:
    state, fences = ItemState(item.state), [split_key(attempt.key)[1] for attempt in made]
    by_key = {attempt.key: attempt for attempt in made}
    is_invalid = state is ItemState.FAILED and item.cause == "invalid_answer"
    has_ended_by_it = state is ItemState.COMPLETED or is_invalid
    assert (item.answer_key is not None) == has_ended_by_it, f"{item}: an answer is what completes, or fails as invalid"
    assert (item.worker_id is not None) == (state is ItemState.RUNNING), f"{item}: an owner is who runs it"
    assert not fences or max(fences) <= item.fence, f"{item}: an attempt is ahead of its item"
    is_copied = item.answer_key is not None and split_key(item.answer_key)[0] != item.id
    if state is ItemState.COMPLETED and not is_copied:
        assert by_key[item.answer_key].state == AttemptState.ANSWERED, f"{item}: its answer is none"
    is_open = [attempt for attempt in made if attempt.state == AttemptState.INTENT]
    if state is ItemState.RUNNING:
        assert [split_key(attempt.key)[1] for attempt in is_open] == [item.fence], f"{item}: what is running?"
        assert is_open[0].worker_id == item.worker_id, f"{item}: run by somebody else"
    if state is ItemState.IN_DOUBT:
        assert made[-1].state == AttemptState.UNKNOWN, f"{item}: the doubt is about nothing"
        assert item.fence - fences[-1] in (0, 1), f"{item}: the doubt is about an older attempt"
    if state not in (ItemState.RUNNING, ItemState.COMPLETED):
        assert not is_open, f"{item}: an intent is open and nobody owns it"
