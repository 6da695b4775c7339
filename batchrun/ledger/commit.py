"""Group commit: one thread writes for a whole process; what gathers while a commit runs is the next group.

Claims, settlements and releases from the event loop become futures; one transaction makes a whole group durable. A
group that fails is replayed row by row, so that one bad row undoes no other. A commit whose outcome never arrived is
read back before it is repeated. Retry the write, never the call.
"""

import asyncio
import threading
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import compress
from typing import Any

from sqlalchemy import Connection
from tenacity import Retrying, retry_if_exception, wait_exponential
from tenacity.stop import stop_base

from batchrun.core.states import ItemState
from batchrun.errors import LedgerFault
from batchrun.ledger.cache import Asking
from batchrun.ledger.claims import Claim, Keys, claim, lost_claims, release
from batchrun.ledger.guards import lock_jobs
from batchrun.ledger.ledger import Ledger
from batchrun.ledger.settle import Settled, Settlement, has_moved, settle, settle_answers


@dataclass(frozen=True, slots=True)
class ClaimOrder:
    """A wish to claim some of these items."""

    job_id: int
    item_ids: Sequence[int]
    endpoint: str
    now: float
    account: str | None = None  # whose idempotency keys the endpoint honours; None: it honours none
    asking: Asking | None = None
    most_open: int | None = None  # requests that the endpoint may have, of this job and over all processes


_Results = list[tuple["asyncio.Future[Any]", Any]]


@dataclass(slots=True)
class _Group:
    """What one transaction carries. Each entry has the future of whoever waits for it."""

    claims: list[tuple[ClaimOrder, "asyncio.Future[list[Claim]]"]] = field(default_factory=list)
    settlements: list[tuple[Settlement, "asyncio.Future[Settled]"]] = field(default_factory=list)
    releases: list[tuple[Sequence[Claim], "asyncio.Future[None]"]] = field(default_factory=list)

    @property
    def futures(self) -> "list[asyncio.Future[Any]]":
        return [future for entries in (self.claims, self.settlements, self.releases) for _, future in entries]

    @property
    def job_ids(self) -> set[int]:
        return {
            *(order.job_id for order, _ in self.claims),
            *(one.job_id for one, _ in self.settlements),
            *(claim.job_id for claims, _ in self.releases for claim in claims),
        }

    @property
    def is_empty(self) -> bool:
        return not (self.claims or self.settlements or self.releases)


class _StopWhen(stop_base):
    def __init__(self, is_over: Callable[[], bool]) -> None:
        self._is_over = is_over

    def __call__(self, retry_state: Any) -> bool:
        return self._is_over()


class GroupCommit:
    """The ledger's writer for one process. Methods are called from the event loop that `start` saw."""

    def __init__(self, ledger: Ledger, worker_id: int) -> None:
        self._ledger = ledger
        self._worker_id = worker_id
        self._waiting = _Group()
        self._wake = threading.Event()
        self._lock = threading.Lock()
        self._is_stopping = threading.Event()
        self._has_ended = False
        self._give_up_at: float | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread(target=self._run, name="ledger-writer", daemon=True)
        self._is_repeat = False  # a commit of this group has failed, and may have happened all the same
        self._handed_out: set[int] = set()  # claims that somebody has and that are open still
        self.trouble: LedgerFault | None = None  # why the last write has not succeeded yet
        self.commits = 0
        self.rows = 0
        self.commit_s = 0.001  # smoothed duration of a commit

    def start(self) -> None:
        """Start writing; to be called from the event loop whose futures it will resolve."""
        self._loop = asyncio.get_running_loop()
        self._thread.start()

    def claim(self, order: ClaimOrder) -> "asyncio.Future[list[Claim]]":
        """Claim items; the result holds those whose intents are durable now."""
        future: asyncio.Future[list[Claim]] = self._future()
        with self._lock:
            self._filling().claims.append((order, future))
        self._wake_up()
        return future

    def settle(self, settlement: Settlement) -> "asyncio.Future[Settled]":
        """Record an outcome and move its item; done when it is durable."""
        future: asyncio.Future[Settled] = self._future()
        with self._lock:
            self._filling().settlements.append((settlement, future))
        self._wake_up()
        return future

    def release(self, claims: Sequence[Claim]) -> "asyncio.Future[None]":
        """Give claims back that were never sent."""
        future: asyncio.Future[None] = self._future()
        with self._lock:
            self._filling().releases.append((claims, future))
        self._wake_up()
        return future

    async def stop(self, *, within_s: float) -> None:
        """Write what waits, for at most `within_s` while the ledger refuses, and end the thread.

        What could not be written by then carries the ledger's error.
        """
        self._give_up_at = time.monotonic() + within_s
        self._is_stopping.set()
        self._wake.set()
        while self._thread.is_alive():
            await asyncio.to_thread(self._thread.join, 0.5)

    def _future(self) -> "asyncio.Future[Any]":
        assert self._loop is not None, "start() comes first"
        return self._loop.create_future()

    def _filling(self) -> _Group:
        """Return the group that waits to be written; the lock is held."""
        if self._has_ended:
            raise LedgerFault(
                "the ledger's writer has ended: nothing more was written", hint="batchrun resume goes on from there"
            )
        return self._waiting

    def _wake_up(self) -> None:
        """Have what was put into the group written. Where the flag is up already, the writer has not taken it yet."""
        if not self._wake.is_set():
            self._wake.set()

    def _run(self) -> None:
        while True:
            self._wake.wait()
            with self._lock:
                group, self._waiting = self._waiting, _Group()
                self._wake.clear()
                if self._is_stopping.is_set():
                    self._wake.set()
                    self._has_ended = group.is_empty
            if self._has_ended:
                return
            if not group.is_empty:
                self._write(group)

    def _write(self, group: _Group) -> None:
        began = time.monotonic()
        self._is_repeat = False
        try:
            results = self._patiently(partial(self._write_group, group))
        except LedgerFault as error:
            results = [(future, error) for future in group.futures]
        except Exception:  # one row of the group is at fault: find it
            results = self._write_singly(group)
        self.commits += 1
        self.rows += len(results)
        self.commit_s += 0.2 * (time.monotonic() - began - self.commit_s)
        self._resolve(results)

    def _write_group(self, group: _Group) -> _Results:
        results: _Results = []
        with self._ledger.write() as connection:
            if len(job_ids := group.job_ids) > 1:  # all at once; else each step does it for itself
                lock_jobs(connection, job_ids)
            results += self._settle_all(connection, group)
            for claims, done in group.releases:
                self._release(connection, claims)
                results.append((done, None))
            given: set[int] = set()
            for order, claimed in group.claims:
                claims = self._claim(connection, order, given)
                given.update(claim.key for claim in claims)
                results.append((claimed, claims))
            # crash point: group-written
        # crash point: group-durable
        self._handed_out |= given
        self._handed_out.difference_update(one.key for one, _ in group.settlements)
        self._handed_out.difference_update(claim.key for claims, _ in group.releases for claim in claims)
        return results

    def _settle_all(self, connection: Connection, group: _Group) -> _Results:
        is_fast = [self._may_go_fast(one) for one, _ in group.settlements]
        fast = list(compress(group.settlements, is_fast))
        if fast and not settle_answers(connection, [one for one, _ in fast]):
            raise _GuardFailed
        slow = [pair for pair, skip in zip(group.settlements, is_fast, strict=True) if not skip]
        return [
            *((future, Settled.MOVED) for _, future in fast),
            *((future, self._settle(connection, one)) for one, future in slow),
        ]

    def _may_go_fast(self, one: Settlement) -> bool:
        return one.decision.to is ItemState.COMPLETED and not self._is_repeat

    def _settle(self, connection: Connection, one: Settlement) -> Settled:
        settled = settle(connection, one)
        # The commit that seemed to fail had happened: what it did is the answer, not that it is done.
        is_ours = settled is Settled.REPEATED and self._is_repeat and has_moved(connection, one)
        return Settled.MOVED if is_ours else settled

    def _release(self, connection: Connection, claims: Sequence[Claim]) -> None:
        release(connection, claims=claims, worker_id=self._worker_id, now=time.time())

    def _claim(self, connection: Connection, order: ClaimOrder, given: Collection[int] = ()) -> list[Claim]:
        """Claim for one order; `given` are the keys that other orders of the same transaction have."""
        found = self._read_back(connection, order, given) if self._is_repeat else []
        known = {one.item_id for one in found}
        return found + claim(
            connection,
            job_id=order.job_id,
            item_ids=[item_id for item_id in order.item_ids if item_id not in known],
            worker_id=self._worker_id,
            endpoint=order.endpoint,
            now=order.now,
            keys=None if order.account is None else Keys(order.account, self._ledger.attempt_id),
            asking=order.asking,
            most_open=order.most_open,
        )

    def _read_back(self, connection: Connection, order: ClaimOrder, given: Collection[int]) -> list[Claim]:
        """Find what a commit of unknown outcome claimed: it stands, it is ours, and nobody has it yet.

        Whatever was handed out before is being sent by somebody; to hand it out again would send it again.
        """
        found = lost_claims(connection, item_ids=order.item_ids, worker_id=self._worker_id)
        return [one for one in found if one.key not in self._handed_out and one.key not in given]

    def _write_singly(self, group: _Group) -> _Results:
        """Write each entry in a transaction of its own; an entry that still fails carries its error."""
        results: _Results = []
        for one, settled in group.settlements:
            results.append((settled, self._alone(partial(self._settle, one=one), done_with=[one.key])))
        for claims, done in group.releases:
            keys = [claim.key for claim in claims]
            results.append((done, self._alone(partial(self._release, claims=claims), done_with=keys)))
        for order, claimed in group.claims:
            found = self._alone(partial(self._claim, order=order))
            if isinstance(found, list):
                self._handed_out.update(claim.key for claim in found)
            results.append((claimed, found))
        return results

    def _alone(self, step: Callable[[Connection], Any], *, done_with: Collection[int] = ()) -> Any:
        def transact() -> Any:
            with self._ledger.write() as connection:
                return step(connection)

        try:
            result = self._patiently(transact)
        except Exception as error:
            return error
        self._handed_out.difference_update(done_with)
        return result

    def _patiently(self, step: Callable[[], Any]) -> Any:
        """Repeat `step` while the ledger is unreachable, locked or full, until the process gives up."""
        for attempt in Retrying(
            retry=retry_if_exception(self._is_passing),
            wait=wait_exponential(multiplier=0.05, max=2.0),
            stop=_StopWhen(self._is_over),
            sleep=self._pause,
            reraise=True,
        ):
            with attempt:
                result = step()
        self.trouble = None
        return result

    def _is_passing(self, error: BaseException) -> bool:
        if not isinstance(error, LedgerFault):
            return False
        self.trouble = error
        self._is_repeat = True
        return True

    def _pause(self, wait_s: float) -> None:
        if self._is_stopping.wait(wait_s):
            time.sleep(min(wait_s, 0.05))  # the last tries follow each other quickly

    def _is_over(self) -> bool:
        return self._give_up_at is not None and time.monotonic() > self._give_up_at

    def _resolve(self, results: _Results) -> None:
        assert self._loop is not None
        # crash point: group-told
        try:
            self._loop.call_soon_threadsafe(_set_all, results)
        except RuntimeError:
            return  # the loop is gone: nobody waits any more


class _GuardFailed(Exception):
    """A guard of the fast path did not hold: the group is rolled back and written row by row."""


def _set_all(results: _Results) -> None:
    for future, result in results:
        if future.done():
            continue
        if isinstance(result, BaseException):
            future.set_exception(result)
        else:
            future.set_result(result)
