"""A worker's session on a shared job: as many requests as its lease allows, hints from a broker, others beside it."""

import asyncio
import random
import time
from collections.abc import Callable
from typing import Any

from batchrun.core.states import ItemState, JobState
from batchrun.ledger.backlog import is_over
from batchrun.ledger.leases import Load, give_back, lease
from batchrun.ledger.reports import count_items
from batchrun.runner.ends import End, EndKind
from batchrun.runner.feed import Feeding
from batchrun.runner.outage import ENDPOINT_DOWN
from batchrun.runner.partial import Unwritten
from batchrun.runner.session import CONTROL_S, TICK_S, Session
from batchrun.runner.window import Broker, Window

SPREAD = 4  # an idle worker picks among so many times what it needs, so that two seldom pick the same


class SharedSession(Session):
    """Like a session that has the job alone, but for what it shares: concurrency, hints, pauses, and the end."""

    is_shared = True
    least_settle_s = 3 * CONTROL_S  # heard of, given up by one worker, lent to another

    def __init__(
        self,
        *,
        broker: Broker,
        most_slots: Callable[[], int],
        is_holder: Callable[[], bool],
        **parts: Any,
    ) -> None:
        """Make a session.

        Args:
            broker: carries the hints of this ledger's jobs.
            most_slots: requests of this job that this process can have in flight now.
            is_holder: this worker does the job's chores now.
        """
        super().__init__(partial=Unwritten(), **parts)
        self._broker = broker
        self._most_slots = most_slots
        self._is_holder = is_holder
        self._trial_only = False
        self._consumed = 0
        self._patience_s = self._waits.idle_claim_s
        self._performer.resize(0)  # until there is a lease

    def _make_feed(self, trial_only: bool) -> Feeding:
        self._trial_only = trial_only
        return Window(
            self._ledger,
            self._job.id,
            self._broker,
            is_mine=self._is_holder,
            trial_only=trial_only,
        )

    async def finish(self) -> None:
        """Finish what is in flight, and give the lease back when nothing of the job is here any more."""
        await super().finish()
        await self._aside.write(lambda c: give_back(c, self._job.id, worker_id=self._worker.id))

    # -- what others decide -------------------------------------------------------------------------------------------

    async def _obey(self) -> None:
        job = await asyncio.to_thread(self._read_job)
        is_waiting = job.state is JobState.PAUSED and job.reason == ENDPOINT_DOWN
        if not job.is_shared:
            self._end = End(EndKind.LOST)
        elif job.state is not JobState.IN_PROGRESS and not is_waiting:
            self._end = End(EndKind.PAUSED)
        elif self._trial_only and job.phase == "full":
            self._end = End(EndKind.DONE)  # somebody has judged the trial
        self._job = job = await self._climbing.report(job)
        if self._end is not None:
            if self._end.kind is not EndKind.DONE:
                self._performer.close()
            return
        if is_waiting and self._is_holder() and not self._outage.is_probing and await self._is_any_reachable():
            await self._outage.lift()  # whoever had paused it may be dead
        if (left_s := job.held_for_s(time.time())) is not None:  # another worker was asked to wait
            for lane in self._performer.lanes:
                lane.pace.wait_until(time.monotonic() + left_s)
        if job.spec["fail_on_error"] is not None:  # counted over all workers
            self._performer.failures.failed = await asyncio.to_thread(self._count_failed)
        await self._follow(job)
        await self.renew()

    async def _is_any_reachable(self) -> bool:
        left = [lane.way.endpoint for lane in self._performer.lanes.left]
        return any(await asyncio.gather(*(endpoint.is_reachable() for endpoint in left)))

    def _count_left(self, trial_only: bool) -> int | None:
        """Return None: what others do meanwhile is not known here."""
        return None

    async def renew(self) -> None:
        """Renew the lease of this worker's part of the concurrency, and keep to it."""
        tally = self._performer.tally
        items_per_s, tokens_per_s = tally.rates(time.monotonic())
        performer = self._performer
        load = Load(
            wants=min(self._most_slots(), self._job.concurrency),
            in_flight=performer.in_use,
            items_per_s=items_per_s,
            tokens_per_s=tokens_per_s,
            keeps=performer.concurrency,  # it may be starting something this very moment
        )
        slots = await asyncio.to_thread(self._lease, load)
        self._performer.resize(slots)

    def _count_failed(self) -> int:
        with self._ledger.read() as connection:
            return count_items(connection, self._job.id)[ItemState.FAILED]

    def _lease(self, load: Load) -> int:
        with self._ledger.write() as connection:
            return lease(connection, self._job.id, worker_id=self._worker.id, load=load)

    # -- work without hints -------------------------------------------------------------------------------------------

    async def _look_for_work(self, feed: Feeding, *, trial_only: bool) -> None:
        """Take work from the ledger where no hint has come for a while; see the end of the job."""
        performer, now = self._performer, time.monotonic()
        if performer.intake.consumed != self._consumed:
            self._consumed, self._patience_s = performer.intake.consumed, self._waits.idle_claim_s
        has_none = performer.concurrency == 0  # more workers than slots: it can still see the end, and do the chores
        if has_none:
            performer.intake.forget()
        if not (performer.is_idle or (has_none and not performer.has_work)) or performer.lanes.is_held(now):
            self._idle_since = None
            return
        self._idle_since = self._idle_since or now
        if now - self._idle_since < self._patience_s:
            return
        self._idle_since = None
        wanted = 2 * performer.concurrency
        ids = await asyncio.to_thread(feed.first, SPREAD * wanted)
        # Where hints do not come, the ledger is asked as soon as a slot is idle.
        self._patience_s = TICK_S if ids else self._waits.idle_claim_s
        for place in sorted(random.sample(range(len(ids)), min(wanted, len(ids)))):
            performer.intake.put(ids[place])
        if ids and self._job.max_cost_pusd is not None and not performer.tally.in_flight:
            await self._check_budget(ids)
        elif not ids and not performer.has_work and await asyncio.to_thread(self._is_over, trial_only):
            self._end = End(EndKind.DONE)

    def _is_over(self, trial_only: bool) -> bool:
        with self._ledger.read() as connection:
            return is_over(connection, self._job.id, trial_only=trial_only)
