"""The way to one endpoint: its slots, its pace, its limits a minute, and the requests that are out on it."""

import asyncio
import time
from typing import Protocol

from batchrun.core.breaker import Breaker, Trip
from batchrun.core.outcome import Break, BreakKind, Charge, Evidence, Reply, Timing
from batchrun.core.pace import Pace
from batchrun.core.rate import Permit
from batchrun.core.request import most_tokens
from batchrun.core.routing import Health, Load
from batchrun.core.states import AttemptState
from batchrun.errors import LedgerFull
from batchrun.ledger.claims import Claim
from batchrun.runner.clocks import boot_clock
from batchrun.runner.evidence import describe
from batchrun.runner.means import Means, Rules, Way
from batchrun.runner.slots import Slots
from batchrun.runner.tally import Tally
from batchrun.runner.turnstile import Turnstile


class InHand(Protocol):
    """Who has the claims that are neither sent nor released."""

    def holds(self, claim: Claim) -> bool: ...

    def take_out(self, claim: Claim) -> bool: ...

    async def give_back(self, claims: list[Claim]) -> None: ...


class Lane:
    """Carries one job's requests to one endpoint, each once. To be used on one event loop."""

    def __init__(
        self,
        way: Way,
        *,
        slots: Slots,
        means: Means,
        rules: Rules,
        breaker: Breaker,
        turnstile: Turnstile,
        tally: Tally,
    ) -> None:
        """Make a lane on which nothing is.

        Args:
            slots: the job's, which all of its lanes share.
        """
        self.way = way
        self.breaker = breaker
        self.turnstile = turnstile
        self.pace = Pace(slots.size if way.concurrency is None else way.concurrency)
        self.health = Health()
        self.in_hand = 0  # claims for this lane that have not been sent to the end
        self.has_reached = False  # the endpoint has answered something in this run
        self.out: Trip | None = None  # why it gets no request any more in this run
        self.is_full_until = 0.0  # others have all that it may have
        self._slots = slots
        self._own = None if way.concurrency is None else Slots(way.concurrency)
        self._began_s: dict[int, float] = {}  # of the requests that are out
        self._means = means
        self._rules = rules
        self._tally = tally
        self._turn = asyncio.Lock()
        self._passed: dict[int, Permit] = {}  # of requests that are out, by attempt
        self._sending: set[asyncio.Task[None]] = set()  # whose request is out

    @property
    def address(self) -> str:
        return self.way.address

    # -- what it takes --------------------------------------------------------------------------------------------

    def is_open(self, now: float) -> bool:
        """Say whether requests may leave here: it is not out, away, or held back."""
        return self.out is None and not self.pace.is_held(now)

    def load(self, now: float, *, room: int, ahead: int) -> Load:
        """Return how it stands, for the choice between several.

        Args:
            room: claims that the job has room for.
            ahead: how many of them are for requests that leave a little later.
        """
        if self._own is not None:
            room = min(room, self._own.size + min(ahead, self._own.size // 4) - self.in_hand)
        if not self.turnstile.is_open:
            room = min(room, self.turnstile.room)
        if self.health.is_on_trial:
            room = min(room, 1 - self.in_hand)
        if now < self.is_full_until:
            room = 0
        return Load(self.address, self.in_hand, max(0, room), self.way.weight, self._latency_s(now))

    def _latency_s(self, now: float) -> float | None:
        """Return how long requests take here: as answers did, or as those that are out have waited already."""
        waited_s = now - sum(self._began_s.values()) / len(self._began_s) if self._began_s else 0.0
        if self.health.latency_s is None:
            return waited_s if self.health.coolings else None
        return max(self.health.latency_s, waited_s)

    # -- what goes through ----------------------------------------------------------------------------------------

    async def carry(self, claim: Claim, claimed_at: float, owner: InHand) -> Reply | Break | None:
        """Send a claim's request, once, when its turn has come; None where it went back instead.

        Args:
            claimed_at: when it was claimed, on the boot clock.

        Raises:
            TooLarge: the request alone needs more tokens than a minute has: it can never leave.
            LedgerFull: the worker's disk does not take the mark that it begins; it went back.
        """
        own, slots = self._own, self._slots
        if own is not None and not (owner.holds(claim) and await own.enter()):
            return None  # it went back: nobody may wait with what is not theirs
        try:
            if not (owner.holds(claim) and await slots.enter()):
                return None
            try:
                return await self._send(claim, claimed_at, owner)
            finally:
                slots.leave()
        finally:
            if own is not None:
                own.leave()

    async def _send(self, claim: Claim, claimed_at: float, owner: InHand) -> Reply | Break | None:
        # One after the other, each a little after the one before has really started: a stall makes no stampede.
        async with self._turn:
            if not owner.holds(claim):
                return None  # released in the meantime: it takes no place in the ramp from those that will be sent
            if gap_s := self.pace.admit(chance=self._means.chance()):
                await asyncio.sleep(gap_s)
        permit = await self.turnstile.pass_through(self._most_tokens(claim))
        is_mine = owner.take_out(claim)  # or it was released in the meantime
        is_late = permit is not None and not permit.is_usable(boot_clock())
        if not is_mine or is_late or boot_clock() - claimed_at > self._means.longest_claim_age_s:
            if permit is not None:
                self.turnstile.unused(permit)
            if is_mine:
                await owner.give_back([claim])
            return None
        try:
            self._means.marks.begin(claim.key)
        except LedgerFull:
            if permit is not None:
                self.turnstile.unused(permit)
            await owner.give_back([claim])
            raise
        if permit is not None:
            self._passed[claim.key] = permit
        return await self._exchange(claim)

    async def _exchange(self, claim: Claim) -> Reply | Break:
        self._tally.in_flight += 1
        self._began_s[claim.key] = time.monotonic()
        task = asyncio.current_task()
        assert task is not None
        self._sending.add(task)
        began, sent_at = time.monotonic(), time.time()
        # crash point: send-permitted
        try:
            name = self._means.attempt_id(claim.key)
            exchange = await self.way.endpoint.exchange(
                path=claim.path,
                body=claim.body,
                attempt_id=name,
                idempotency_key=name if self._rules.account_at(self.address) is not None else None,
            )
        except asyncio.CancelledError:
            task.uncancel()  # only this exchange is given up; what came of it is settled like any other
            timing = Timing(sent_at, None, time.time(), time.monotonic() - began)
            exchange = Break(BreakKind.ABORTED, "given up here before an answer came", timing)
        finally:
            self._sending.discard(task)
            self._tally.in_flight -= 1
            self._began_s.pop(claim.key, None)
        if isinstance(exchange, Reply):
            self.has_reached = True
            clean = self._rules.judge.clean(exchange, claim.path)
            self._means.spool.append(claim.key, describe(clean, claim.path), clean.body)
        return exchange

    def _most_tokens(self, claim: Claim) -> int:
        return 0 if self.turnstile.limits.tpm is None else most_tokens(claim.path, claim.body)

    def count(self, claim: Claim, evidence: Evidence) -> None:
        """Correct what a request's permit had reserved; where nobody knows what was used, that stands."""
        permit, usage = self._passed.pop(claim.key, None), evidence.usage
        if permit is None:
            return
        if evidence.outcome is AttemptState.NOT_SENT:
            self.turnstile.unused(permit)
        elif evidence.charge is Charge.NONE:
            self.turnstile.used(permit, 0)
        elif usage.prompt_tokens is not None:
            self.turnstile.used(permit, usage.prompt_tokens + (usage.completion_tokens or 0))

    def resize(self, concurrency: int) -> None:
        """Follow the job's slots; a limit of its own stays."""
        if self._own is None:
            self.pace.resize(concurrency)

    def send_away(self) -> None:
        """Let nobody wait for one of its own slots: what they waited with is no longer theirs."""
        if self._own is not None:
            self._own.send_away()

    def give_up(self) -> None:
        """Give up the requests that are out: what came of them is unknown."""
        for task in list(self._sending):
            task.cancel()
