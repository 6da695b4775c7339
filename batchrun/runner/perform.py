"""The performer: claims a job's items, sends each request once, and settles what came of it.

One performer performs one job in one process, on one event loop, with one coroutine an item. It decides nothing about
outcomes (core/retry does) and knows no status codes (endpoint/classify does).
"""

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

from batchrun.core.breaker import Breaker, Trip
from batchrun.core.outcome import Break, BreakKind, Charge, Evidence, Reply, Scope, Timing
from batchrun.core.pace import Pace
from batchrun.core.prices import Price, usage_cost_pusd
from batchrun.core.retry import Decision, RetryPolicy, decide
from batchrun.core.states import AttemptState, ItemState
from batchrun.errors import LedgerFault
from batchrun.ledger.claims import Claim
from batchrun.ledger.commit import ClaimOrder, GroupCommit
from batchrun.ledger.settle import Settled, Settlement
from batchrun.ledger.spool import Spool
from batchrun.runner.evidence import describe
from batchrun.runner.tally import Tally

KEPT_OF_A_FAILURE_BYTES = 2_000
LONGEST_CLAIM_AGE_S = 5.0  # half of the time after which somebody else may call this process dead


class Sender(Protocol):
    """Sends one request, once. Never raises for what the network or the server does."""

    @property
    def address(self) -> str: ...

    async def exchange(self, *, path: str, body: bytes, attempt_id: str) -> Reply | Break: ...


class Alarm(Protocol):
    """Hears of what concerns more than one item. Called from the event loop; must not block."""

    def throttled(self, wait_s: float) -> None:
        """The endpoint asked for a pause: the whole job is held back for so long."""
        ...

    def unreachable(self, evidence: Evidence) -> None:
        """No request reaches the endpoint any more."""
        ...

    def doubted(self, evidence: Evidence) -> None:
        """An item is in doubt."""
        ...

    def trip(self, trip: Trip) -> None:
        """The job must stop."""
        ...


class Log(Protocol):
    """Takes one structured line about an event: ids and counts, never a prompt, an answer or a key."""

    def __call__(self, event: str, /, **fields: object) -> None: ...


class Judge(Protocol):
    """Says what a reply or a break comes to; never raises."""

    def __call__(self, exchange: Reply | Break, path: str, /) -> Evidence: ...

    def clean(self, body: bytes, /) -> bytes:
        """Return a body as it may be written to disk: without the key, should the server echo it."""
        ...


@dataclass(frozen=True, slots=True)
class Means:
    """What a performer works with."""

    commit: GroupCommit
    sender: Sender
    judge: Judge
    spool: Spool
    attempt_id: Callable[[int], str]
    chance: Callable[[], float]


class Performer:
    """Performs one job here. `offer` may be called from any thread, everything else from the event loop."""

    def __init__(
        self,
        *,
        job_id: int,
        worker_id: int,
        concurrency: int,
        policy: RetryPolicy,
        price: Price | None,
        means: Means,
        breaker: Breaker,
        alarm: Alarm,
        log: Log,
    ) -> None:
        self.job_id = job_id
        self.concurrency = concurrency
        self.pace = Pace(concurrency)
        self.tally = Tally(time.monotonic())
        self.breaker = breaker
        self.completed: list[int] = []  # items newly completed, for the partial output
        self._worker_id = worker_id
        self._policy = policy
        self._price = price
        self._means = means
        self._alarm = alarm
        self._log = log
        self._loop = asyncio.get_running_loop()
        self._slots = asyncio.Semaphore(concurrency)
        self._intake: deque[int] = deque()
        self._arrived: deque[int] = deque()  # offered by other threads
        self._room = threading.BoundedSemaphore(2 * concurrency)
        self._is_woken = False
        self._wake = asyncio.Event()
        self._permits: dict[int, Claim] = {}  # claimed and neither sent nor released; whoever pops it, acts
        self._in_hand = 0  # claims that have not been sent to the end
        self._ordered: set[int] = set()
        self._waiting: set[int] = set()  # items whose retry this process will offer by itself
        self._tasks: set[asyncio.Task[None]] = set()
        self._sending: set[asyncio.Task[None]] = set()  # those of `_tasks` whose request is under way
        self._is_closed = False
        self.has_reached = False  # the endpoint has answered something in this run
        self.consumed = 0  # hints taken, for the feed's window
        self.has_consumed = asyncio.Event()

    # -- intake ---------------------------------------------------------------------------------------------------

    def offer(self, item_id: int) -> None:
        """Take a hint from the queue's thread; waits while this process has enough (back-pressure)."""
        while not self._room.acquire(timeout=0.5):
            if self._is_closed:
                return
        self._arrived.append(item_id)
        if not self._is_woken:
            self._is_woken = True
            self._loop.call_soon_threadsafe(self._take_arrived)

    def hint(self, item_id: int) -> None:
        """Take a hint from this process itself."""
        self._waiting.discard(item_id)
        if not self._is_closed:
            self._intake.append(item_id)
            self._wake.set()

    def _hint_first(self, item_id: int) -> None:
        """Take a hint at an item that was promised its turn: the endpoint named the moment."""
        self.hint(item_id)
        self._intake.rotate(0 if self._is_closed else 1)

    def _take_arrived(self) -> None:
        self._is_woken = False
        while self._arrived:
            self._intake.append(self._arrived.popleft())
            self._room.release()
            self.consumed += 1
        self.has_consumed.set()
        self._wake.set()

    # -- state ----------------------------------------------------------------------------------------------------

    @property
    def free_slots(self) -> int:
        return max(0, self.concurrency - self._in_hand)

    @property
    def has_work(self) -> bool:
        """True while anything this process knows of is not settled."""
        return bool(self._intake or self._arrived or self._ordered or self._tasks or self._waiting)

    @property
    def is_idle(self) -> bool:
        """True while slots are free and nothing is on its way to them."""
        return not (self._intake or self._arrived or self._ordered) and self.free_slots > 0

    def _ahead(self) -> int:
        """Return how much to claim beyond the slots: what will be sent within about two commits, a quarter at most."""
        rate, _ = self.tally.rates(time.monotonic())
        return min(self.concurrency // 4, int((rate or 0.0) * 2 * self._means.commit.commit_s + 0.5))

    # -- claiming -------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Claim and send until `close`; then return when everything in hand is settled."""
        try:
            while not self._is_closed:
                await self._wake.wait()
                self._wake.clear()
                await self._claim_some()
        finally:
            self.close()
        while self._tasks:
            await asyncio.wait(self._tasks)

    async def _claim_some(self) -> None:
        while not self._is_closed and self._intake:
            if self.pace.is_held(time.monotonic()):
                if not self.pace.is_blocked:
                    self._loop.call_later(max(0.01, self.pace.held_until - time.monotonic()), self._wake.set)
                return
            room = self.concurrency + self._ahead() - self._in_hand
            if room <= 0:
                return
            ids = list(dict.fromkeys(self._intake.popleft() for _ in range(min(room, len(self._intake)))))
            self._ordered.update(ids)
            claimed_at = boot_clock()
            try:
                order = ClaimOrder(self.job_id, ids, self._means.sender.address, time.time())
                claims = await self._means.commit.claim(order)
            except LedgerFault as error:
                self._alarm.trip(Trip(error.kind, error.message, error.exit_code))
                return
            finally:
                self._ordered.difference_update(ids)
            self._start(claims, claimed_at)

    def _start(self, claims: list[Claim], claimed_at: float) -> None:
        for claim in claims:
            self._permits[claim.key] = claim
        if self._is_closed or self.pace.is_held(time.monotonic()):
            self._release_permits()
            return
        self._in_hand += len(claims)
        for claim in claims:
            task = self._loop.create_task(self._perform(claim, claimed_at))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def _release_permits(self) -> None:
        """Give back everything that is claimed and not sent. The pop is the permit: nobody sends it after this."""
        claims = list(self._permits.values())
        self._permits.clear()
        if claims:
            task = self._loop.create_task(self._give_back(claims))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _give_back(self, claims: list[Claim]) -> None:
        try:
            await self._means.commit.release(claims)
        except Exception:
            return  # left to rescue: it may not be sent, and nobody will
        if not self._is_closed:
            for claim in claims:
                self.hint(claim.item_id)

    # -- one item -------------------------------------------------------------------------------------------------

    async def _perform(self, claim: Claim, claimed_at: float) -> None:
        async with self._slots:
            exchange = await self._send(claim, claimed_at)
        self._in_hand -= 1
        self._wake.set()
        if exchange is not None:
            await self._settle(claim, exchange)

    async def _send(self, claim: Claim, claimed_at: float) -> Reply | Break | None:
        if wait_s := self.pace.admit(time.monotonic(), chance=self._means.chance()):
            await asyncio.sleep(wait_s)
        if self._permits.pop(claim.key, None) is None:
            return None  # released in the meantime
        if boot_clock() - claimed_at > LONGEST_CLAIM_AGE_S:
            await self._give_back([claim])
            return None
        self.tally.in_flight += 1
        task = asyncio.current_task()
        assert task is not None
        self._sending.add(task)
        began, sent_at = time.monotonic(), time.time()
        try:
            exchange = await self._means.sender.exchange(
                path=claim.path, body=claim.body, attempt_id=self._means.attempt_id(claim.key)
            )
        except asyncio.CancelledError:
            task.uncancel()  # only this exchange is given up; what came of it is settled like any other
            timing = Timing(sent_at, None, time.time(), time.monotonic() - began)
            exchange = Break(BreakKind.ABORTED, "given up here before an answer came", timing)
        finally:
            self._sending.discard(task)
            self.tally.in_flight -= 1
        if isinstance(exchange, Reply):
            self.has_reached = True
            self._means.spool.append(claim.key, describe(exchange, claim.path), self._means.judge.clean(exchange.body))
        return exchange

    async def _settle(self, claim: Claim, exchange: Reply | Break) -> None:
        evidence = self._means.judge(exchange, claim.path)
        decision = self._decide(claim, evidence)
        settlement = make_settlement(
            evidence,
            decision,
            key=claim.key,
            job_id=claim.job_id,
            worker_id=self._worker_id,
            price=self._price,
            reserved_pusd=claim.reserved_pusd,
            now=time.time(),
        )
        self._warn_everyone(evidence)
        try:
            settled = await self._means.commit.settle(settlement)
        except Exception as error:
            # The answer lies in the spool and waits there for a ledger that takes it.
            message = f"an outcome could not be written: {error}"
            self._alarm.trip(Trip(error.kind if isinstance(error, LedgerFault) else "ledger", message, 5))
            return
        self._means.spool.settled(claim.key)
        self._after(claim, evidence, decision, settled)

    def _decide(self, claim: Claim, evidence: Evidence) -> Decision:
        if evidence.scope is Scope.EVERYONE and self.breaker.is_own_fault(claim.item_id, evidence):
            return Decision(ItemState.FAILED, counted=1, cause=evidence.cause, message=evidence.message)
        return decide(evidence, claim.tries, self._policy)

    def _warn_everyone(self, evidence: Evidence) -> None:
        """Slow the job down at once, before the outcome is durable: the next send must not leave meanwhile."""
        if evidence.scope is Scope.THROTTLE:
            wait_s = self.pace.hold(time.monotonic(), asked_s=evidence.retry_after_s, chance=self._means.chance())
            self._release_permits()
            self._alarm.throttled(wait_s)
        elif evidence.scope is Scope.UNREACHABLE:
            self._alarm.unreachable(evidence)
        elif evidence.outcome is AttemptState.ANSWERED:
            self.pace.answered()

    def _after(self, claim: Claim, evidence: Evidence, decision: Decision, settled: Settled) -> None:
        if evidence.outcome is not AttemptState.ANSWERED or evidence.warning:
            self._log_attempt(claim, evidence, decision)
        if trip := self.breaker.saw(claim.item_id, evidence, decision.to):
            self._alarm.trip(trip)
        if settled is not Settled.MOVED:
            return
        self.tally.saw(time.monotonic(), evidence, decision.to, custom_id=claim.custom_id)
        if decision.to is ItemState.IN_DOUBT:
            self._alarm.doubted(evidence)
        if decision.to is ItemState.COMPLETED:
            self.completed.append(claim.item_id)
        elif decision.to is ItemState.PENDING and not self._is_closed:
            self._waiting.add(claim.item_id)
            hint = self._hint_first if evidence.scope is Scope.THROTTLE else self.hint
            self._loop.call_later(decision.wait_s, hint, claim.item_id)

    def _log_attempt(self, claim: Claim, evidence: Evidence, decision: Decision) -> None:
        self._log(
            "attempt",
            item=claim.custom_id,
            attempt=self._means.attempt_id(claim.key),
            outcome=evidence.outcome.value,
            cause=evidence.cause or evidence.warning,
            http_status=evidence.status,
            item_is=decision.to.value,
            again_in_s=round(decision.wait_s, 3) if decision.to is ItemState.PENDING else None,
            message=evidence.message,
        )

    # -- ending ---------------------------------------------------------------------------------------------------

    def block(self) -> None:
        """Start no send until `unblock`: what is claimed ahead goes back."""
        self.pace.is_blocked = True
        self._release_permits()

    def unblock(self) -> None:
        """Go on, gently."""
        self.pace.is_blocked = False
        self.pace.hold(time.monotonic(), asked_s=0.0, chance=self._means.chance())
        self._wake.set()

    def close(self) -> None:
        """Start no further send; what is in flight goes on."""
        if self._is_closed:
            return
        self._is_closed = True
        self._intake.clear()
        self._waiting.clear()
        self._release_permits()
        self._wake.set()

    def abort(self) -> None:
        """Give up what is in flight: it becomes doubt."""
        self.close()
        for task in list(self._sending):
            task.cancel()


def make_settlement(
    evidence: Evidence,
    decision: Decision,
    *,
    key: int,
    job_id: int,
    worker_id: int,
    price: Price | None,
    reserved_pusd: int,
    now: float,
) -> Settlement:
    """Put one attempt's evidence and decision into the ledger's form: priced, and failures' bodies cut short."""
    if evidence.raw is not None and evidence.outcome not in (AttemptState.ANSWERED, AttemptState.UNUSABLE):
        evidence = _cut(evidence)
    cost_pusd = usage_cost_pusd(price, evidence.usage) if evidence.charge is not Charge.NONE else 0
    return Settlement(key, job_id, worker_id, evidence, decision, cost_pusd, reserved_pusd, now)


def _cut(evidence: Evidence) -> Evidence:
    return replace(evidence, raw=(evidence.raw or b"")[:KEPT_OF_A_FAILURE_BYTES] or None)


def boot_clock() -> float:
    """Return seconds since boot, sleep included: a machine that slept must not send on an old claim."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()
