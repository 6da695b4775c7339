"""From hints to claims: what waits, which of it is claimed now, and what goes back unsent.

A claim is the right to send one request, and is in hand until somebody takes it out: the sender, before the first byte,
or whoever releases it. Whoever has taken it acts, and nobody else does.
"""

import asyncio
import time
from collections.abc import Callable, Coroutine
from typing import Any

from batchrun.core.breaker import Trip
from batchrun.errors import LedgerFault
from batchrun.ledger.claims import Claim
from batchrun.ledger.commit import ClaimOrder
from batchrun.runner.alarm import Alarm
from batchrun.runner.clocks import boot_clock
from batchrun.runner.intake import HINTS_PER_SLOT, Intake
from batchrun.runner.lane import Lane
from batchrun.runner.lanes import Lanes
from batchrun.runner.means import Means, Rules
from batchrun.runner.tally import Tally
from batchrun.runner.tasks import Tasks
from batchrun.runner.twins import AGAIN_S

Begin = Callable[[Claim, Lane, float], Coroutine[Any, Any, None]]  # (claim, its way, when ordered on the boot clock)
LEARN_S = 0.25  # between two looks whether an item's refusal is known to be its own, or everyone's
AHEAD_S = 1.0  # of sending is in hand ahead
FULL_S = 0.25  # for so long nothing is claimed for an endpoint of which other processes have all that it may have


class Claimer:
    """Claims one job's items here. `intake.offer` may be called from any thread, everything else from the loop."""

    def __init__(
        self,
        *,
        job_id: int,
        rules: Rules,
        concurrency: int,
        lanes: Lanes,
        means: Means,
        tally: Tally,
        tasks: Tasks,
        alarm: Alarm,
        begin: Begin,
    ) -> None:
        """Make one that claims nothing yet; `begin` is what becomes of a claim."""
        self.is_closed = False
        self._job_id = job_id
        self._rules = rules
        self._concurrency = concurrency
        self._lanes = lanes
        self.backlog: Callable[[], int | None] = lambda: None  # items still to be claimed, where somebody knows
        self._means = means
        self._tally = tally
        self._tasks = tasks
        self._alarm = alarm
        self._begin = begin
        self._loop = asyncio.get_running_loop()
        self._wake = asyncio.Event()
        self.intake = Intake(room=HINTS_PER_SLOT * concurrency, wake=self._wake)
        self._in_hand: dict[int, tuple[Claim, Lane]] = {}  # neither sent nor released: whoever takes one out, acts
        self._ordered: set[int] = set()
        self._cuts = 0  # how often there came to be fewer slots
        self._waiting: set[int] = set()  # items whose retry this process will offer by itself
        self._twins = means.twins
        self._look_again: asyncio.TimerHandle | None = None

    @property
    def has_work(self) -> bool:
        """True while items wait for a claim here, or for their time."""
        is_held = self._twins is not None and self._twins.held
        return bool(self.intake or self._ordered or self._waiting or is_held)

    @property
    def is_idle(self) -> bool:
        """True while slots are free and nothing is on its way to them."""
        return not (self.intake or self._ordered) and self._concurrency > self._lanes.in_hand

    # -- what is in hand ----------------------------------------------------------------------------------------------

    def holds(self, claim: Claim) -> bool:
        """Say whether a claim is in hand still."""
        return claim.key in self._in_hand

    def take_out(self, claim: Claim) -> bool:
        """Take a claim out; False where somebody has, and it is theirs."""
        return self._in_hand.pop(claim.key, None) is not None

    def release(self, lane: Lane | None = None) -> None:
        """Give back everything that is claimed, for this lane or any, and not sent: nobody sends it after this."""
        claims = [claim for claim, of in self._in_hand.values() if lane in (None, of)]
        for claim in claims:
            del self._in_hand[claim.key]
        if claims:
            self._tasks.spawn(self.give_back(claims))

    async def give_back(self, claims: list[Claim]) -> None:
        """Release claims that are taken out; those that the ledger does not take are left to rescue, never sent."""
        # crash point: release-due
        try:
            await self._means.commit.release(claims)
        except Exception:
            return  # left to rescue: it may not be sent, and nobody will
        for claim in claims:
            self.settled(claim.item_id)
            self.intake.put(claim.item_id)

    # -- claiming -----------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Claim until `close`."""
        while not self.is_closed:
            await self._wake.wait()
            self._wake.clear()
            await self._claim_some()

    def wake(self) -> None:
        """Look for something to claim."""
        self._wake.set()

    def _ahead(self) -> int:
        """Return how much to claim beyond the slots: what will be sent within a moment, a quarter of a round at most.

        Answers come in bursts, since the requests that they belong to left together: what is in hand must last for the
        begin of one, and until a commit has brought more. It is no more than that, since whoever cannot read the marks
        of this process (another host, a copy of the ledger, anyone after a power failure) finds a doubt in each claim
        that it had when it died. An endpoint that takes long is waited for without claims.

        In a measurement it is always a whole round: requests that end together are followed by as many at once, as by a
        client that writes nothing down. One at a time it is none then: what the ledger costs is spent between two
        requests, and not while the next one is timed.
        """
        if self._means.is_measured:
            return self._concurrency if self._concurrency > 1 else 0
        rate, _ = self._tally.rates(time.monotonic())
        return min(self._concurrency // 4, int((rate or 0.0) * max(AHEAD_S, 2 * self._means.commit.commit_s) + 0.5))

    async def _claim_some(self) -> None:
        while not self.is_closed and self.intake.is_ready and not (self._twins and self._twins.is_full):
            now, ahead = time.monotonic(), self._ahead()
            if self._lanes.is_held(now):
                self._wake_when_open(now)
                return
            room = self._lanes.room(now, room=self._concurrency + ahead - self._lanes.in_hand, ahead=ahead)
            if room <= 0:
                self._wake_when_open(now)
                return
            taken = self.intake.take(room if self._twins is None else max(room, self._twins.appetite))
            ids = self._without_refused(taken)
            if not ids:
                continue
            self._ordered.update(ids)
            try:
                wanted = await self._sift(ids, room)
                is_any_claimed = await self._claim_each(wanted, room=room, ahead=ahead)
            except LedgerFault as error:
                self._alarm.trip(Trip(error.kind, error.message, error.exit_code))
                return
            finally:
                self._ordered.difference_update(ids)
            if wanted and not is_any_claimed:
                return  # they had better wait for a faster endpoint: what ends there wakes this

    def _without_refused(self, ids: list[int]) -> list[int]:
        """Hold back items whose refusal may be everyone's, while what others come to can still show whether it is."""
        refused = self._lanes.refused
        wanted = [item_id for item_id in ids if item_id not in refused]
        if not (wanted or self.intake or self._ordered or self._tasks):
            return ids
        for item_id in refused.intersection(ids) - self._waiting:
            self.later(item_id, LEARN_S, was_promised=False)
        return wanted

    def _wake_when_open(self, now: float) -> None:
        if (moment := self._lanes.open_at(now)) is not None:
            self._loop.call_later(max(0.01, moment - now), self.wake)

    async def _claim_each(self, wanted: list[int], *, room: int, ahead: int) -> bool:
        """Claim items for the lanes that they go on; False where all of them had better wait."""
        kin = self._means.kin
        affinities = None if kin is None else await kin.affinities(wanted)
        now, waiting = time.monotonic(), self.backlog()
        parts, left = self._lanes.assign(wanted, now, room=room, ahead=ahead, waiting=waiting, affinities=affinities)
        if left:
            self._put_back(left)
        claimed_at, cuts = boot_clock(), self._cuts
        orders = [self._claim(lane, ids) for lane, ids in parts]
        found = await asyncio.gather(
            *orders, return_exceptions=True
        )  # what one has claimed is sent, whatever others do
        for (lane, _), claims in zip(parts, found, strict=True):
            if not isinstance(claims, BaseException):
                self._start(claims, lane, claimed_at, may_wait=cuts == self._cuts)
        for error in found:
            if isinstance(error, BaseException):
                raise error
        return bool(parts)

    def _put_back(self, item_ids: list[int]) -> None:
        if self._twins is not None:
            self._twins.put_back(item_ids)
        self.intake.put_back(item_ids)

    async def _sift(self, ids: list[int], room: int) -> list[int]:
        """Return which of these items are to be claimed: where the job has a cache, not those with an answer."""
        if self._twins is None:
            return ids
        wanted, served = await self._twins.sift(ids)
        wanted, later = wanted[:room], wanted[room:]
        self._put_back(later)
        self._tally.completed += served
        self._tally.copied(time.monotonic(), len(served))
        if self._twins.held and self._look_again is None:
            self._look_again_soon()
        return wanted

    async def _claim(self, lane: Lane, ids: list[int]) -> list[Claim]:
        order = ClaimOrder(
            self._job_id,
            ids,
            lane.address,
            time.time(),
            account=self._rules.account_at(lane.address),
            asking=None if self._twins is None else self._twins.asking,
            most_open=lane.way.concurrency if self._means.is_shared else None,
        )
        claims = await self._means.commit.claim(order)
        if self._twins is not None:
            self._twins.claimed(ids, claims)
        if order.most_open is not None and len(claims) < len(ids):
            lane.is_full_until = time.monotonic() + FULL_S
        return claims

    def _start(self, claims: list[Claim], lane: Lane, claimed_at: float, *, may_wait: bool) -> None:
        # crash point: claim-known
        for claim in claims:
            self._in_hand[claim.key] = (claim, lane)
        if self.is_closed or not may_wait or not lane.is_open(time.monotonic()):
            self.release(lane)
            return
        lane.in_hand += len(claims)
        for claim in claims:
            self._tasks.spawn(self._begin(claim, lane, claimed_at))

    # -- items that come later ----------------------------------------------------------------------------------------

    def later(self, item_id: int, wait_s: float, *, was_promised: bool) -> None:
        """Hint at an item when its wait is over; first of all where the endpoint itself had named the moment."""
        if not self.is_closed:
            self._waiting.add(item_id)
            self._loop.call_later(wait_s, self._again, item_id, was_promised)

    def _again(self, item_id: int, was_promised: bool) -> None:
        self._waiting.discard(item_id)
        self.intake.put(item_id, first=was_promised)

    def settled(self, item_id: int) -> None:
        """Let those through that have waited for this item."""
        for waiting in [] if self._twins is None else self._twins.settled(item_id):
            self.intake.put(waiting, first=True)

    def _look_again_soon(self) -> None:
        self._look_again = self._loop.call_later(AGAIN_S, lambda: self._tasks.spawn(self._let_go()))

    async def _let_go(self) -> None:
        """Look again at items that wait for one that asks the same: another process may have it, or may have died."""
        self._look_again = None
        if self._twins is None or self.is_closed:
            return
        try:
            waiting = await self._twins.look_again()
        except LedgerFault:
            self._look_again_soon()
            return
        for item_id in waiting:
            self.intake.put(item_id)

    # -- its size, and its end ----------------------------------------------------------------------------------------

    def resize(self, concurrency: int) -> None:
        """Claim for so many requests in flight from now on.

        Where they become fewer, everything goes back that is claimed, or just being claimed, and not sent: what waits
        for a slot may wait for ever, and others may claim it.
        """
        if concurrency < self._concurrency:
            self._cuts += 1
            self.release()
        self._concurrency = concurrency
        self.intake.resize(HINTS_PER_SLOT * concurrency)
        self.wake()

    def close(self) -> None:
        """Claim nothing more, and give back what is in hand."""
        self.is_closed = True
        self.intake.close()
        self._waiting.clear()
        if self._twins is not None:
            self._twins.forget()
        self.release()
        self.wake()
