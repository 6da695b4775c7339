"""Group commit: one thread writes for a whole process; what gathers while a commit runs is the next group.

Claims, settlements and releases from the event loop become futures; one transaction makes a whole group durable. A
group that fails is replayed row by row, so that one bad row undoes no other. A commit whose outcome never arrived is
read back before it is repeated. Retry the write, never the call.
"""

import asyncio
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError
from tenacity import Retrying, retry_if_exception, wait_exponential
from tenacity.stop import stop_base

from batchrun.core.states import AttemptState
from batchrun.errors import LedgerFault
from batchrun.ledger.claims import Claim, claim, lost_claims, release
from batchrun.ledger.ledger import Ledger
from batchrun.ledger.settle import Settled, Settlement, settle, settle_answers


@dataclass(frozen=True, slots=True)
class ClaimOrder:
    """A wish to claim some of these items."""

    job_id: int
    item_ids: Sequence[int]
    endpoint: str
    now: float


@dataclass(slots=True)
class _Group:
    """What one transaction carries. Each entry has the future of whoever waits for it."""

    claims: list[tuple[ClaimOrder, asyncio.Future[list[Claim]]]] = field(default_factory=list)
    settlements: list[tuple[Settlement, asyncio.Future[Settled]]] = field(default_factory=list)
    releases: list[tuple[Sequence[Claim], asyncio.Future[None]]] = field(default_factory=list)

    @property
    def futures(self) -> "list[asyncio.Future[Any]]":
        return [
            *(future for _, future in self.claims),
            *(future for _, future in self.settlements),
            *(future for _, future in self.releases),
        ]

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
        self._is_stopping = False
        self._give_up_at: float | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread(target=self._run, name="ledger-writer", daemon=True)
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
            self._waiting.claims.append((order, future))
        self._wake.set()
        return future

    def settle(self, settlement: Settlement) -> "asyncio.Future[Settled]":
        """Record an outcome and move its item; done when it is durable."""
        future: asyncio.Future[Settled] = self._future()
        with self._lock:
            self._waiting.settlements.append((settlement, future))
        self._wake.set()
        return future

    def release(self, claims: Sequence[Claim]) -> "asyncio.Future[None]":
        """Give claims back that were never sent."""
        future: asyncio.Future[None] = self._future()
        with self._lock:
            self._waiting.releases.append((claims, future))
        self._wake.set()
        return future

    async def stop(self, *, within_s: float) -> None:
        """Write what waits, for at most `within_s` while the ledger refuses, and end the thread."""
        self._is_stopping = True
        self._give_up_at = time.monotonic() + within_s
        self._wake.set()
        while self._thread.is_alive():
            await asyncio.to_thread(self._thread.join, 0.5)

    def _future(self) -> "asyncio.Future[Any]":
        assert self._loop is not None, "start() comes first"
        return self._loop.create_future()

    def _run(self) -> None:
        while True:
            self._wake.wait()
            with self._lock:
                group, self._waiting = self._waiting, _Group()
                self._wake.clear()
                if group.is_empty and self._is_stopping:
                    return
                if self._is_stopping:
                    self._wake.set()
            if not group.is_empty:
                self._write(group)

    def _write(self, group: _Group) -> None:
        began = time.monotonic()
        try:
            results = self._patiently(lambda is_repeat: self._write_group(group, is_repeat=is_repeat))
        except LedgerFault as error:
            self._resolve([(future, error) for future in group.futures])
            return
        except Exception:  # one row of the group is at fault: find it
            results = self._write_singly(group)
        self.commits += 1
        self.rows += len(results)
        self.commit_s += 0.2 * (time.monotonic() - began - self.commit_s)
        self._resolve(results)

    def _write_group(self, group: _Group, *, is_repeat: bool) -> list[tuple["asyncio.Future[Any]", Any]]:
        results: list[tuple[asyncio.Future[Any], Any]] = []
        fast = [pair for pair in group.settlements if pair[0].evidence.outcome is AttemptState.ANSWERED]
        slow = [pair for pair in group.settlements if pair[0].evidence.outcome is not AttemptState.ANSWERED]
        with self._ledger.write() as connection:
            if fast and not settle_answers(connection, [one for one, _ in fast]):
                raise _GuardFailed
            results += [(future, Settled.MOVED) for _, future in fast]
            results += [(future, settle(connection, one)) for one, future in slow]
            for claims, done in group.releases:
                self._release(connection, claims, is_repeat=is_repeat)
                results.append((done, None))
            for order, claimed in group.claims:
                results.append((claimed, self._claim(connection, order, is_repeat=is_repeat)))
        return results

    def _claim(self, connection: Connection, order: ClaimOrder, *, is_repeat: bool) -> list[Claim]:
        # A commit that failed without an answer may have happened: what it claimed stands, and is ours.
        found = lost_claims(connection, item_ids=order.item_ids, worker_id=self._worker_id) if is_repeat else []
        known = {one.item_id for one in found}
        rest = [item_id for item_id in order.item_ids if item_id not in known]
        return found + claim(
            connection,
            job_id=order.job_id,
            item_ids=rest,
            worker_id=self._worker_id,
            endpoint=order.endpoint,
            now=order.now,
        )

    def _write_singly(self, group: _Group) -> list[tuple["asyncio.Future[Any]", Any]]:
        """Write each entry in a transaction of its own; an entry that still fails carries its error."""
        results: list[tuple[asyncio.Future[Any], Any]] = []
        for one, settled in group.settlements:
            results.append((settled, self._alone(partial(_settle, one=one))))
        for claims, done in group.releases:
            results.append((done, self._alone(partial(self._release, claims=claims))))
        for order, claimed in group.claims:
            results.append((claimed, self._alone(partial(self._claim, order=order))))
        return results

    def _release(self, connection: Connection, claims: Sequence[Claim], *, is_repeat: bool) -> None:
        release(connection, claims=claims, worker_id=self._worker_id, now=time.time())

    def _alone(self, step: Callable[..., Any]) -> Any:
        def transact(is_repeat: bool) -> Any:
            with self._ledger.write() as connection:
                return step(connection, is_repeat=is_repeat)

        try:
            return self._patiently(transact)
        except Exception as error:
            return error

    def _patiently(self, step: Callable[[bool], Any]) -> Any:
        """Repeat `step` while the ledger is unreachable, locked or full, until the process gives up."""
        for attempt in Retrying(
            retry=retry_if_exception(self._is_passing),
            wait=wait_exponential(multiplier=0.05, max=2.0),
            stop=_StopWhen(self._is_over),
            reraise=True,
        ):
            with attempt:
                result = step(attempt.retry_state.attempt_number > 1)
        self.trouble = None
        return result

    def _is_passing(self, error: BaseException) -> bool:
        if isinstance(error, LedgerFault):
            self.trouble = error
            return True
        return isinstance(error, DBAPIError) and error.connection_invalidated

    def _is_over(self) -> bool:
        return self._give_up_at is not None and time.monotonic() > self._give_up_at

    def _resolve(self, results: Sequence[tuple["asyncio.Future[Any]", Any]]) -> None:
        assert self._loop is not None
        try:
            self._loop.call_soon_threadsafe(_set_all, results)
        except RuntimeError:
            return  # the loop is gone: nobody waits any more


def _settle(connection: Connection, one: Settlement, *, is_repeat: bool) -> Settled:
    return settle(connection, one)


class _GuardFailed(Exception):
    """A guard of the fast path did not hold: the group is rolled back and written row by row."""


def _set_all(results: Sequence[tuple["asyncio.Future[Any]", Any]]) -> None:
    for future, result in results:
        if future.done():
            continue
        if isinstance(result, BaseException):
            future.set_exception(result)
        else:
            future.set_result(result)
