"""The performer: claims a job's items, sends each request once, and settles what came of it.

One performer performs one job in one process, on one event loop, with one coroutine an item.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from batchrun.core.breaker import Breaker, FailureLimit, Trip
from batchrun.errors import LedgerFault
from batchrun.ledger.claims import Claim
from batchrun.runner.alarm import Alarm
from batchrun.runner.claimer import Claimer
from batchrun.runner.lane import Lane
from batchrun.runner.lanes import Lanes
from batchrun.runner.means import Log, Means, Rules, Way
from batchrun.runner.settler import Settler, never_leaves
from batchrun.runner.slots import Slots
from batchrun.runner.tally import Tally
from batchrun.runner.tasks import Tasks
from batchrun.runner.turnstile import TooLarge, Turnstile


@dataclass(frozen=True, slots=True)
class Gate:
    """What guards the way to one endpoint."""

    way: Way
    breaker: Breaker
    turnstile: Turnstile


class Performer:
    """Performs one job here. `intake.offer` may be called from any thread, everything else from the event loop."""

    def __init__(
        self,
        *,
        job_id: int,
        worker_id: int,
        concurrency: int,
        gates: Sequence[Gate],
        rules: Rules,
        means: Means,
        failures: FailureLimit,
        alarm: Alarm,
        log: Log,
    ) -> None:
        self.job_id = job_id
        self.concurrency = concurrency
        self.tally = tally = Tally(time.monotonic())
        self.failures = failures
        self._rules = rules
        self._alarm = alarm
        self._tasks = Tasks(alarm.trip)
        slots = Slots(concurrency)
        self.lanes = lanes = Lanes(
            [
                Lane(
                    gate.way,
                    slots=slots,
                    means=means,
                    rules=rules,
                    breaker=gate.breaker,
                    turnstile=gate.turnstile,
                    tally=tally,
                )
                for gate in gates
            ],
            slots,
        )
        self._claimer = claimer = Claimer(
            job_id=job_id,
            rules=rules,
            concurrency=concurrency,
            lanes=lanes,
            means=means,
            tally=tally,
            tasks=self._tasks,
            alarm=alarm,
            begin=self._perform,
        )
        self._settler = Settler(
            worker_id=worker_id,
            rules=rules,
            means=means,
            failures=failures,
            lanes=lanes,
            claimer=claimer,
            tally=tally,
            alarm=alarm,
            log=log,
        )
        self.intake = claimer.intake
        self.gauge = self._settler.gauge

    # -- state --------------------------------------------------------------------------------------------------------

    @property
    def in_use(self) -> int:
        """Slots that requests have now."""
        return self.lanes.slots.in_use

    @property
    def has_work(self) -> bool:
        """True while anything this process knows of is not settled."""
        return bool(self._claimer.has_work or self._tasks)

    @property
    def is_idle(self) -> bool:
        """True while slots are free and nothing is on its way to them."""
        return self._claimer.is_idle

    def know_backlog(self, backlog: Callable[[], int | None]) -> None:
        """Ask `backlog` from now on how many items are still to be claimed: near the end the slow get none of them."""
        self._claimer.backlog = backlog

    # -- work ---------------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Claim and send until `close`; then return when everything in hand is settled."""
        try:
            await self._claimer.run()
        finally:
            self.close()
            await self._tasks.finish()  # whatever has happened: what is in flight is paid for

    async def _perform(self, claim: Claim, lane: Lane, claimed_at: float) -> None:
        exchange = None
        try:
            exchange = await lane.carry(claim, claimed_at, self._claimer)
        except TooLarge as error:
            self._claimer.take_out(claim)
            await self._settler.settle(claim, never_leaves(str(error)), lane)
            return
        except LedgerFault as error:
            self._alarm.trip(Trip(error.kind, error.message, error.exit_code))
            return
        finally:
            lane.in_hand -= 1
            self.wake()
        if exchange is not None:
            await self._settler.settle(claim, self._rules.judge(exchange, claim.path), lane)
            self.wake()  # what waits for this endpoint may now have to go elsewhere

    # -- control ------------------------------------------------------------------------------------------------------

    def block(self, lane: Lane) -> None:
        """Start no send there until `unblock`: what is claimed for it goes back, and may go elsewhere."""
        lane.pace.is_blocked = True
        self._claimer.release(lane)
        self.wake()

    def unblock(self, lane: Lane) -> None:
        """Go on there, gently."""
        lane.pace.restart()
        self.wake()

    def take_out(self, lane: Lane, trip: Trip) -> None:
        """Send nothing more there in this run."""
        lane.out = trip
        self._claimer.release(lane)
        self.wake()

    def wake(self) -> None:
        """Look for something to claim."""
        self._claimer.wake()

    def resize(self, concurrency: int) -> None:
        """Have at most so many requests in flight from now on; what is in flight beyond that finishes first."""
        if concurrency == self.concurrency:
            return
        self.concurrency = concurrency
        self._claimer.resize(concurrency)
        self.lanes.resize(concurrency)

    def close(self) -> None:
        """Start no further send; what is in flight goes on."""
        if self._claimer.is_closed:
            return
        for lane in self.lanes:
            lane.turnstile.let_go()
        self._claimer.close()

    def abort(self) -> None:
        """Give up what is in flight: it becomes doubt."""
        self.close()
        for lane in self.lanes:
            lane.give_up()
