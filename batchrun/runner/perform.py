"""The performer: claims a job's items, sends each request once, and settles what came of it.

One performer performs one job in one process, on one event loop, with one coroutine an item.
"""

import time

from batchrun.core.breaker import Breaker
from batchrun.ledger.claims import Claim
from batchrun.runner.claimer import Claimer
from batchrun.runner.lane import Lane
from batchrun.runner.means import Alarm, Log, Means, Rules
from batchrun.runner.settler import Settler, never_leaves
from batchrun.runner.tally import Tally
from batchrun.runner.tasks import Tasks
from batchrun.runner.turnstile import TooLarge, Turnstile


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
        self.job_id = job_id
        self.concurrency = concurrency
        self.tally = tally = Tally(time.monotonic())
        self._rules = rules
        self._tasks = Tasks(alarm.trip)
        self.lane = lane = Lane(
            concurrency=concurrency, means=means, rules=rules, breaker=breaker, turnstile=turnstile, tally=tally
        )
        self._claimer = claimer = Claimer(
            job_id=job_id,
            account=rules.account,
            concurrency=concurrency,
            lane=lane,
            means=means,
            tally=tally,
            tasks=self._tasks,
            alarm=alarm,
            begin=self._perform,
        )
        self._settler = Settler(
            worker_id=worker_id, rules=rules, means=means, claimer=claimer, tally=tally, alarm=alarm, log=log
        )
        self.intake = claimer.intake
        self.gauge = self._settler.gauge
        self.breaker, self.pace, self.turnstile = breaker, lane.pace, turnstile

    # -- state --------------------------------------------------------------------------------------------------------

    @property
    def in_use(self) -> int:
        """Slots that requests have now."""
        return self.lane.slots.in_use

    @property
    def has_work(self) -> bool:
        """True while anything this process knows of is not settled."""
        return bool(self._claimer.has_work or self._tasks)

    @property
    def is_idle(self) -> bool:
        """True while slots are free and nothing is on its way to them."""
        return self._claimer.is_idle

    @property
    def has_reached(self) -> bool:
        """True once the endpoint has answered something in this run."""
        return self.lane.has_reached

    # -- work ---------------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Claim and send until `close`; then return when everything in hand is settled."""
        try:
            await self._claimer.run()
        finally:
            self.close()
            await self._tasks.finish()  # whatever has happened: what is in flight is paid for

    async def _perform(self, claim: Claim, claimed_at: float) -> None:
        exchange = None
        try:
            exchange = await self.lane.carry(claim, claimed_at, self._claimer)
        except TooLarge as error:
            self._claimer.take_out(claim)
            await self._settler.settle(claim, never_leaves(str(error)), self.lane)
            return
        finally:
            self.lane.in_hand -= 1
            self.wake()
        if exchange is not None:
            await self._settler.settle(claim, self._rules.judge(exchange, claim.path), self.lane)

    # -- control ------------------------------------------------------------------------------------------------------

    def block(self) -> None:
        """Start no send until `unblock`: what is claimed ahead goes back."""
        self.pace.is_blocked = True
        self._claimer.release()

    def unblock(self) -> None:
        """Go on, gently."""
        self.pace.restart()
        self.wake()

    def wake(self) -> None:
        """Look for something to claim."""
        self._claimer.wake()

    def resize(self, concurrency: int) -> None:
        """Have at most so many requests in flight from now on; what is in flight beyond that finishes first."""
        if concurrency == self.concurrency:
            return
        if concurrency < self.concurrency:  # what waits for a slot may wait for ever: others may claim it
            self._claimer.release()
        self.concurrency = concurrency
        self.lane.resize(concurrency)
        self._claimer.resize(concurrency)

    def close(self) -> None:
        """Start no further send; what is in flight goes on."""
        if self._claimer.is_closed:
            return
        self.turnstile.let_go()
        self._claimer.close()

    def abort(self) -> None:
        """Give up what is in flight: it becomes doubt."""
        self.close()
        self.lane.give_up()
