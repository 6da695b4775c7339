"""The performer: claims a job's items, sends each request once, and settles what came of it.

One performer performs one job in one process, on one event loop, with one coroutine an item. It decides nothing about
outcomes (core/retry does) and knows no status codes (endpoint/classify does).
"""

import asyncio
import time
from collections.abc import Coroutine
from typing import Any

from batchrun.core.breaker import Breaker, Trip
from batchrun.core.gauge import Gauge
from batchrun.core.outcome import Break, BreakKind, Charge, Evidence, Reply, Scope, Timing
from batchrun.core.pace import Pace
from batchrun.core.rate import Permit
from batchrun.core.request import model_of, most_tokens
from batchrun.core.retry import Decision, decide
from batchrun.core.states import AttemptState, ItemState
from batchrun.errors import LedgerFault
from batchrun.ledger.claims import Claim
from batchrun.ledger.commit import ClaimOrder
from batchrun.ledger.settle import Settled
from batchrun.runner.evidence import describe
from batchrun.runner.intake import HINTS_PER_SLOT, Intake
from batchrun.runner.means import Alarm, Log, Means, Rules
from batchrun.runner.settlement import make_settlement
from batchrun.runner.slots import Slots
from batchrun.runner.tally import Tally
from batchrun.runner.turnstile import TooLarge, Turnstile
from batchrun.runner.twins import AGAIN_S

TOO_LARGE_FOR_TPM = "too_large_for_tpm"


class Performer:
    """Performs one job here. `intake.offer` may be called from any thread, everything else from the event loop."""

    def __init__(
        self,
        *,
        job_id: int,
        worker_id: int,
        concurrency: int,
        rules: Rules,
        means: Means,
        breaker: Breaker,
        alarm: Alarm,
        log: Log,
        turnstile: Turnstile,
    ) -> None:
        self.turnstile = turnstile
        self.job_id = job_id
        self.concurrency = concurrency
        self.pace = Pace(concurrency)
        self.gauge = Gauge()
        self.tally = Tally(time.monotonic())
        self.breaker = breaker
        self.completed: list[int] = []  # items newly completed, for the partial output
        self._worker_id = worker_id
        self._rules = rules
        self._means = means
        self._alarm = alarm
        self._log = log
        self._loop = asyncio.get_running_loop()
        self._slots = Slots(concurrency)
        self._passed: dict[int, Permit] = {}  # of requests that are out, by attempt
        self._turn = asyncio.Lock()
        self._wake = asyncio.Event()
        self.intake = Intake(room=HINTS_PER_SLOT * concurrency, wake=self._wake)
        self._permits: dict[int, Claim] = {}  # claimed and neither sent nor released; whoever pops it, acts
        self._in_hand = 0  # claims that have not been sent to the end
        self._ordered: set[int] = set()
        self._waiting: set[int] = set()  # items whose retry this process will offer by itself
        self._tasks: set[asyncio.Task[None]] = set()
        self._sending: set[asyncio.Task[None]] = set()  # those of `_tasks` whose request is under way
        self._twins = means.twins
        self._look_again: asyncio.TimerHandle | None = None
        self._is_closed = False
        self.has_reached = False  # the endpoint has answered something in this run

    # -- state ----------------------------------------------------------------------------------------------------

    @property
    def free_slots(self) -> int:
        return max(0, self.concurrency - self._in_hand)

    @property
    def in_use(self) -> int:
        """Slots that requests have now."""
        return self._slots.in_use

    @property
    def has_work(self) -> bool:
        """True while anything this process knows of is not settled."""
        is_held = self._twins is not None and self._twins.held
        return bool(self.intake or self._ordered or self._tasks or self._waiting or is_held)

    @property
    def is_idle(self) -> bool:
        """True while slots are free and nothing is on its way to them."""
        return not (self.intake or self._ordered) and self.free_slots > 0

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
            while self._tasks:  # whatever has happened: what is in flight is paid for
                await asyncio.wait(self._tasks)

    async def _claim_some(self) -> None:
        while not self._is_closed and self.intake.is_ready and not (self._twins and self._twins.is_full):
            if self.pace.is_held(time.monotonic()):
                if not self.pace.is_blocked:
                    self._loop.call_later(max(0.01, self.pace.held_until - time.monotonic()), self._wake.set)
                return
            room = self.concurrency + self._ahead() - self._in_hand
            if not self.turnstile.is_open:
                room = min(room, self.turnstile.room)
            if room <= 0:
                return
            ids = self.intake.take(room if self._twins is None else max(room, self._twins.appetite))
            self._ordered.update(ids)
            try:
                wanted = await self._sift(ids, room)
                claimed_at = boot_clock()
                claims = await self._claim(wanted)
            except LedgerFault as error:
                self._alarm.trip(Trip(error.kind, error.message, error.exit_code))
                return
            finally:
                self._ordered.difference_update(ids)
            self._start(claims, claimed_at)

    async def _sift(self, ids: list[int], room: int) -> list[int]:
        """Return which of these items are to be claimed: where the job has a cache, not those with an answer."""
        if self._twins is None:
            return ids
        wanted, served = await self._twins.sift(ids)
        wanted, later = wanted[:room], wanted[room:]
        self._twins.put_back(later)
        for item_id in reversed(later):
            self.intake.put(item_id, first=True)
        self.completed += served
        self.tally.copied(time.monotonic(), len(served))
        if self._twins.held and self._look_again is None:
            self._look_again_soon()
        return wanted

    def _look_again_soon(self) -> None:
        self._look_again = self._loop.call_later(AGAIN_S, lambda: self._spawn(self._let_go()))

    async def _claim(self, ids: list[int]) -> list[Claim]:
        asking = None if self._twins is None else self._twins.asking
        order = ClaimOrder(self.job_id, ids, self._means.sender.address, time.time(), self._rules.account, asking)
        claims = await self._means.commit.claim(order) if ids else []
        if self._twins is not None:
            self._twins.claimed(ids, claims)
        return claims

    async def _let_go(self) -> None:
        """Look again at items that wait for one that asks the same: another process may have it, or may have died."""
        self._look_again = None
        if self._twins is None or self._is_closed:
            return
        try:
            waiting = await self._twins.look_again()
        except LedgerFault:
            self._look_again_soon()
            return
        for item_id in waiting:
            self.intake.put(item_id)

    def _is_settled(self, item_id: int) -> None:
        """Let those through that have waited for this item."""
        for waiting in [] if self._twins is None else self._twins.settled(item_id):
            self.intake.put(waiting, first=True)

    def _start(self, claims: list[Claim], claimed_at: float) -> None:
        # crash point: claim-known
        for claim in claims:
            self._permits[claim.key] = claim
        if self._is_closed or self.pace.is_held(time.monotonic()):
            self._release_permits()
            return
        self._in_hand += len(claims)
        for claim in claims:
            self._spawn(self._perform(claim, claimed_at))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: "asyncio.Task[None]") -> None:
        """Forget a task; one that failed is a fault of ours, and must not go unheard."""
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._alarm.trip(Trip("unexpected", f"unexpected {type(error).__name__}: {error}", 1))

    def _release_permits(self) -> None:
        """Give back everything that is claimed and not sent. The pop is the permit: nobody sends it after this."""
        claims = list(self._permits.values())
        self._permits.clear()
        if claims:
            self._spawn(self._give_back(claims))

    async def _give_back(self, claims: list[Claim]) -> None:
        # crash point: release-due
        try:
            await self._means.commit.release(claims)
        except Exception:
            return  # left to rescue: it may not be sent, and nobody will
        for claim in claims:
            self._is_settled(claim.item_id)
            self.intake.put(claim.item_id)

    # -- one item -------------------------------------------------------------------------------------------------

    async def _perform(self, claim: Claim, claimed_at: float) -> None:
        exchange = None
        try:
            if await self._slots.enter():
                try:
                    exchange = await self._send(claim, claimed_at)
                finally:
                    self._slots.leave()
        except TooLarge as error:
            self._permits.pop(claim.key, None)
            await self._record(claim, _never_leaves(str(error)))
            return
        finally:
            self._in_hand -= 1
            self._wake.set()
        if exchange is not None:
            await self._record(claim, self._rules.judge(exchange, claim.path))

    async def _send(self, claim: Claim, claimed_at: float) -> Reply | Break | None:
        # One after the other, each a little after the one before has really started: a stall makes no stampede.
        async with self._turn:
            if claim.key not in self._permits:
                return None  # released in the meantime: it takes no place in the ramp from those that will be sent
            if gap_s := self.pace.admit(chance=self._means.chance()):
                await asyncio.sleep(gap_s)
        permit = await self.turnstile.pass_through(self._most_tokens(claim))
        is_mine = self._permits.pop(claim.key, None) is not None  # or it was released in the meantime
        is_late = permit is not None and not permit.is_usable(boot_clock())
        if not is_mine or is_late or boot_clock() - claimed_at > self._means.longest_claim_age_s:
            if permit is not None:
                self.turnstile.unused(permit)
            if is_mine:
                await self._give_back([claim])
            return None
        if permit is not None:
            self._passed[claim.key] = permit
        self.tally.in_flight += 1
        task = asyncio.current_task()
        assert task is not None
        self._sending.add(task)
        began, sent_at = time.monotonic(), time.time()
        # crash point: send-permitted
        try:
            name = self._means.attempt_id(claim.key)
            exchange = await self._means.sender.exchange(
                path=claim.path,
                body=claim.body,
                attempt_id=name,
                idempotency_key=name if self._rules.account is not None else None,
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
            clean = self._rules.judge.clean(exchange, claim.path)
            self._means.spool.append(claim.key, describe(clean, claim.path), clean.body)
        return exchange

    def _most_tokens(self, claim: Claim) -> int:
        return 0 if self.turnstile.limits.tpm is None else most_tokens(claim.path, claim.body)

    async def _record(self, claim: Claim, evidence: Evidence) -> None:
        """Settle what came of a claim: its item, its money, its permit."""
        if (permit := self._passed.pop(claim.key, None)) is not None:
            self._count(permit, evidence)
        if evidence.scope is Scope.EVERYONE and not self.breaker.has_looked_back:
            self.breaker.look_back(await self._means.answered_routes())
        self.gauge.saw(time.monotonic(), evidence)
        decision = self._decide(claim, evidence)
        settlement = make_settlement(
            evidence,
            decision,
            key=claim.key,
            job_id=claim.job_id,
            worker_id=self._worker_id,
            price=self._rules.price,
            reserved_pusd=claim.reserved_pusd,
            now=time.time(),
        )
        self._warn_everyone(evidence)
        # crash point: settle-due
        try:
            settled = await self._means.commit.settle(settlement)
        except Exception as error:
            # The answer lies in the spool and waits there for a ledger that takes it.
            message = f"an outcome could not be written: {error}"
            self._alarm.trip(Trip(error.kind if isinstance(error, LedgerFault) else "ledger", message, 5))
            return
        # crash point: settle-known
        self._means.spool.settled(claim.key)
        self._is_settled(claim.item_id)
        self._after(claim, evidence, decision, settled)

    def _count(self, permit: Permit, evidence: Evidence) -> None:
        """Correct what the permit had reserved; where nobody knows what was used, that stands."""
        usage = evidence.usage
        if evidence.outcome is AttemptState.NOT_SENT:
            self.turnstile.unused(permit)
        elif evidence.charge is Charge.NONE:
            self.turnstile.used(permit, 0)
        elif usage.prompt_tokens is not None:
            self.turnstile.used(permit, usage.prompt_tokens + (usage.completion_tokens or 0))

    def _decide(self, claim: Claim, evidence: Evidence) -> Decision:
        if evidence.cause == TOO_LARGE_FOR_TPM:
            return Decision(ItemState.FAILED, cause=evidence.cause, message=evidence.message)
        if evidence.scope is Scope.EVERYONE:
            model = model_of(claim.body)
            if self.breaker.is_own_fault(claim.item_id, evidence, path=claim.path, model=model):
                return Decision(ItemState.FAILED, counted=1, cause=evidence.cause, message=evidence.message)
        return decide(evidence, claim.tries, self._rules.policy)

    def _warn_everyone(self, evidence: Evidence) -> None:
        """Slow the job down at once, before the outcome is durable: the next send must not leave meanwhile."""
        asked_s = evidence.retry_after_s
        if evidence.scope is Scope.THROTTLE and asked_s is not None and asked_s > self._rules.policy.throttle_budget_s:
            self._alarm.trip(Trip("throttled", f"the endpoint asks for {asked_s:,.0f} s: {evidence.message}", 5))
        elif evidence.scope is Scope.THROTTLE:
            wait_s = self.pace.hold(time.monotonic(), asked_s=evidence.retry_after_s, chance=self._means.chance())
            self._release_permits()
            self._alarm.throttled(evidence, wait_s)
        elif evidence.scope is Scope.UNREACHABLE:
            self._alarm.unreachable(evidence)
        elif evidence.outcome is AttemptState.ANSWERED:
            self.pace.answered()

    def _after(self, claim: Claim, evidence: Evidence, decision: Decision, settled: Settled) -> None:
        if evidence.cause or evidence.warning:
            self._log_attempt(claim, evidence, decision)
        if trip := self.breaker.saw(claim.item_id, evidence, decision.to, path=claim.path):
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
            self._loop.call_later(decision.wait_s, self._again, claim.item_id, evidence.scope is Scope.THROTTLE)

    def _again(self, item_id: int, was_promised: bool) -> None:
        """Hint at an item whose wait is over; first where the endpoint itself had named the moment."""
        self._waiting.discard(item_id)
        self.intake.put(item_id, first=was_promised)

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
        self.pace.restart()
        self._wake.set()

    def wake(self) -> None:
        """Look for something to claim."""
        self._wake.set()

    def resize(self, concurrency: int) -> None:
        """Have at most so many requests in flight from now on; what is in flight beyond that finishes first."""
        if concurrency == self.concurrency:
            return
        if concurrency < self.concurrency:  # what waits for a slot may wait for ever: others may claim it
            self._release_permits()
            self._slots.send_away()
        self.concurrency = concurrency
        self.pace.resize(concurrency)
        self._slots.resize(concurrency)
        self.intake.resize(HINTS_PER_SLOT * concurrency)
        self._wake.set()

    def close(self) -> None:
        """Start no further send; what is in flight goes on."""
        if self._is_closed:
            return
        self._is_closed = True
        self.intake.close()
        self.turnstile.let_go()
        self._waiting.clear()
        if self._twins is not None:
            self._twins.forget()
        self._release_permits()
        self._wake.set()

    def abort(self) -> None:
        """Give up what is in flight: it becomes doubt."""
        self.close()
        for task in list(self._sending):
            task.cancel()


def _never_leaves(message: str) -> Evidence:
    return Evidence(AttemptState.NOT_SENT, TOO_LARGE_FOR_TPM, message, Charge.NONE, None)


def boot_clock() -> float:
    """Return seconds since boot, sleep included: a machine that slept must not send on an old claim."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()
