"""One process at work on one job: the performer, what feeds it, what watches it, and every way it can end."""

import asyncio
import gc
import random
import time
from contextlib import AsyncExitStack
from functools import partial
from typing import Protocol

from batchrun.core.breaker import Breaker, FailureLimit, Trip, all_out
from batchrun.core.outcome import Evidence
from batchrun.core.rate import MINUTE, Limits
from batchrun.core.states import ItemState, JobState
from batchrun.errors import LedgerFault
from batchrun.ledger import jobs as job_moves
from batchrun.ledger.backlog import next_ready_at
from batchrun.ledger.claims import within_budget
from batchrun.ledger.commit import GroupCommit
from batchrun.ledger.jobs import Job
from batchrun.ledger.ledger import Ledger
from batchrun.ledger.liveness import Worker, beat, has_ended
from batchrun.ledger.reports import count_items, count_trial, has_sent_since
from batchrun.ledger.trial import answered_routes
from batchrun.runner.aside import Aside
from batchrun.runner.climbing import Climbing
from batchrun.runner.ends import End, EndKind
from batchrun.runner.epoch import move_epoch_on
from batchrun.runner.feed import Feed, Feeding
from batchrun.runner.gear import Gear, Voice
from batchrun.runner.hold import make_twins
from batchrun.runner.kin import Kin
from batchrun.runner.lane import Lane
from batchrun.runner.means import Means, Way
from batchrun.runner.models import REASON as NO_MODEL
from batchrun.runner.models import name_models
from batchrun.runner.news import News
from batchrun.runner.outage import ENDPOINT_DOWN, Outage
from batchrun.runner.perform import Gate, Performer
from batchrun.runner.progress import Meter
from batchrun.runner.turnstile import Turnstile

TICK_S = 0.2
CONTROL_S = 0.5


class Appends(Protocol):
    """Takes newly completed items, for those who look at a run's output so far."""

    def add(self, item_ids: list[int]) -> None: ...


class Session:
    """Works on a job until an end. To be used on one event loop, between `start` and `finish`."""

    least_settle_s = 0.0  # a new limit is in force at once
    is_shared = False

    def __init__(
        self,
        *,
        ledger: Ledger,
        job: Job,
        worker: Worker,
        gear: Gear,
        voice: Voice,
        partial: Appends,
    ) -> None:
        self._ledger = ledger
        self._job = job
        self._worker = worker
        self._ways = ways = gear.ways_of(job)
        self._queue = gear.queue_of(worker.incarnation)
        self._partial = partial
        self._voice = voice
        self._waits = waits = gear.waits_of(job)
        self._commit = GroupCommit(ledger, worker.id)
        self._end: End | None = None
        self._aside = aside = Aside(ledger)
        self._news = News(job, say=voice.say, aside=aside, is_free=gear.is_free(job))
        self._idle_since: float | None = None  # since when a slot has been free with nothing on its way to it
        self._next_beat = 0.0
        self._moving_on: asyncio.Task[None] | None = None
        with ledger.read() as connection:
            base, trial_base = count_items(connection, job.id), count_trial(connection, job.id)
        self._meter = Meter(base, trial_base)
        self._performer = Performer(
            job_id=job.id,
            worker_id=worker.id,
            concurrency=job.concurrency,
            gates=[
                Gate(
                    way,
                    Breaker(way.concurrency or job.concurrency, model=job.spec["model"]),
                    Turnstile(gear.windows_of(job, way), limits=_limits(job, way), wake=self._wake),
                )
                for way in ways
            ],
            rules=gear.rules_of(job),
            means=Means(
                commit=self._commit,
                spool=worker.spool,
                marks=worker.marks,
                attempt_id=ledger.attempt_id,
                chance=random.random,
                answered_routes=self._answered_routes,
                longest_claim_age_s=waits.dead_after_s / 2,
                twins=make_twins(ledger, gear, job, worker, ways),
                kin=Kin(ledger) if len(ways) > 1 and job.spec.get("order") == "prefix" else None,
                is_shared=self.is_shared,
                is_measured=job.spec.get("measure", False),
            ),
            failures=FailureLimit(job.total, job.spec["fail_on_error"], base[ItemState.FAILED]),
            alarm=self,
            log=voice.log,
        )
        self._climbing = Climbing(ledger, self._performer, worker_id=worker.id, least_settle_s=self.least_settle_s)
        self._outage = Outage(
            self._performer,
            write=aside.write,
            tell=self._news.tell,
            limit_s=float(job.spec["endpoint_down_limit_s"]),
            waits=waits,
        )
        self._performing: asyncio.Task[None] | None = None
        self._began = time.monotonic()

    # -- life -----------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the writer, the queue and the performer."""
        # What is loaded now stays: the collector looks only at what the run makes, and less often.
        gc.freeze()
        gc.set_threshold(50_000, 20, 20)
        self._commit.start()
        self._queue.start(self._take)
        self._performing = asyncio.create_task(self._performer.run())

    async def work(self, *, trial_only: bool) -> End:
        """Perform the job's items, or only its trial's, until an end."""
        for lane in self._performer.lanes:
            await lane.turnstile.open(self._is_rested)
        feed = self._make_feed(trial_only)
        self._performer.know_backlog(partial(self._count_left, trial_only))
        self._performer.tally.measure_anew(time.monotonic())
        feeding = asyncio.create_task(feed.run())
        try:
            await self._supervise(feed, feeding, trial_only=trial_only)
        finally:
            feeding.cancel()
        assert self._end is not None
        end, self._end = self._end, None if self._end.kind is EndKind.DONE else self._end
        lacking = [lane.way.endpoint for lane in self._performer.lanes if _lacks_model(lane)]
        return await name_models(end, lacking or [self._ways[0].endpoint], self._ledger, self._job)

    def _make_feed(self, trial_only: bool) -> Feeding:
        return Feed(self._ledger, self._performer, self._queue, trial_only=trial_only)

    async def finish(self) -> None:
        """Finish what is in flight, write everything down, and stop. Safe after any end."""
        self._performer.close()
        self._outage.cancel()
        async with AsyncExitStack() as last:  # each is stopped, whatever the others do
            for lane in self._performer.lanes:
                last.push_async_callback(lane.way.endpoint.close)
                last.push_async_callback(lane.turnstile.close)
            last.push_async_callback(self._commit.stop, within_s=self._waits.refused_s)
            last.push_async_callback(asyncio.to_thread, self._queue.stop)
            if self._performing is not None:
                await self._drain(self._performing)
            await self._aside.finish()

    async def _drain(self, performing: asyncio.Task[None]) -> None:
        deadline = time.monotonic() + self._waits.drain_s
        refused_since: float | None = None
        while not performing.done():
            await asyncio.wait({performing}, timeout=TICK_S)
            # Nothing is in flight and the ledger takes nothing: what it refuses waits in the spool for the next run.
            is_refused = self._commit.trouble is not None and not self._performer.tally.in_flight
            refused_since = (refused_since or time.monotonic()) if is_refused else None
            if refused_since is not None and time.monotonic() - refused_since > self._waits.refused_s:
                await self._commit.stop(within_s=0.0)
            if not performing.done():
                self._show("draining", until=deadline)
            await self._flush_partial()
            await self.beat_when_due()
            if time.monotonic() > deadline:
                self._performer.abort()
        await self._flush_partial()

    def end_after(self, end: End) -> End:
        """Return how it ended after all: a signal during the drain turns any end into that signal's."""
        late = self._end
        if late is not None and late.signal is not None:
            return late
        return late if late is not None and late.kind is EndKind.TRIPPED and end.kind is EndKind.DONE else end

    @property
    def in_flight(self) -> int:
        return self._performer.tally.in_flight

    @property
    def active_s(self) -> float:
        return time.monotonic() - self._began

    # -- what may happen ------------------------------------------------------------------------------------------

    def signal(self, number: int) -> None:
        """Take a signal: the first drains, the second gives up what is in flight."""
        if self._end is not None and self._end.signal is not None:
            self._end = End(EndKind.ABORTED, signal=number)
            self._performer.abort()
            return
        self._end = End(EndKind.DRAINED, signal=number)
        self._performer.close()

    def trip(self, trip: Trip) -> None:
        """Stop the job for a reason; its items stay pending."""
        if self._end is not None:
            return
        self._end = End(EndKind.TRIPPED, trip)
        self._performer.close()

    def _take(self, job_id: int, item_ids: list[int]) -> list[int]:
        return self._performer.intake.offer(item_ids) if job_id == self._job.id else []

    def throttled(self, lane: Lane, evidence: Evidence, wait_s: float) -> None:
        """Hold the whole job back where it has no other endpoint."""
        self._news.throttled(evidence, wait_s, is_held=self._performer.lanes.is_held(time.monotonic()))
        if len(self._ways) == 1:
            now = time.time()  # the ledger's hold must not outlast this process's own: a claim between is in vain
            self._aside.begin_write(lambda c: job_moves.set_throttle(c, self._job.id, wait_s=wait_s, now=now))

    def cooling(self, lane: Lane, evidence: Evidence, wait_s: float) -> None:
        self._news.cooling(lane, evidence, wait_s)

    def doubted(self, lane: Lane, evidence: Evidence) -> None:
        self._news.doubted(lane, evidence)

    def unreachable(self, lane: Lane, evidence: Evidence) -> None:
        self._outage.begin(lane, evidence, self.trip)

    def refused(self, lane: Lane, trip: Trip) -> None:
        """Go on without an endpoint that refuses, while there are others; without any the job stops."""
        if lane.out is not None:
            return
        self._performer.take_out(lane, trip)
        if not self._performer.lanes.left:
            self.trip(all_out([(one.address, one.out) for one in self._performer.lanes if one.out is not None]))
            return
        self._news.tell("endpoint_out", lane, trip.message)
        self._aside.run(self._outage.look_whether_all_are_away())

    # -- supervision ----------------------------------------------------------------------------------------------

    async def _supervise(self, feed: Feeding, feeding: "asyncio.Task[None]", *, trial_only: bool) -> None:
        next_control = 0.0
        while self._end is None:
            if self._performing is not None and self._performing.done():
                self._performing.result()  # raises what ended it: nothing else may
            if feeding.done():
                feeding.result()
            now = time.monotonic()
            try:
                if now >= next_control:
                    next_control = now + CONTROL_S
                    await self._obey()
                await self.beat_when_due()
                await self._look_for_work(feed, trial_only=trial_only)
            except LedgerFault as error:
                self._aside.trouble = error.message  # the writer repeats by itself; a full disk ends the run
            self._check_trouble()
            await self._flush_partial()
            self._show("trial" if trial_only else "running", trial_only=trial_only)
            if self._end is None:
                await asyncio.sleep(0.02 if feed.is_exhausted and not self._performer.has_work else TICK_S)

    async def _obey(self) -> None:
        """Follow what was decided elsewhere: pause, cancel, another holder, or that this process is dead."""
        job = await asyncio.to_thread(self._read_job)
        if job.holder != self._worker.id:
            self._end = End(EndKind.LOST)
        elif await asyncio.to_thread(self._is_buried):
            self._voice.say(
                "another process took this one for dead, since it or its host had stood still: it claims nothing more; "
                f"batchrun resume {job.task_id} goes on"
            )
            self._end = End(EndKind.LOST)
        elif job.state in (JobState.CANCELLING, JobState.CANCELLED):
            self._end = End(EndKind.CANCELLED)
        elif job.state is JobState.PAUSED and job.reason != ENDPOINT_DOWN:
            self._end = End(EndKind.PAUSED)
        elif job.state is JobState.PAUSED and not self._outage.is_probing:
            await self._outage.lift()  # the ledger did not take it when the endpoint came back
        job = await self._climbing.report(job)
        self._performer.resize(job.concurrency)
        await self._follow(job)
        if self._end is not None:
            self._performer.close()
        self._job = job

    async def _follow(self, job: Job) -> None:
        """Keep to the job's limits as they are now."""
        for lane in self._performer.lanes:
            lane.breaker.concurrency = lane.way.concurrency or job.concurrency
            await lane.turnstile.follow(_limits(job, lane.way))

    async def _look_for_work(self, feed: Feeding, *, trial_only: bool) -> None:
        performer = self._performer
        now = time.monotonic()
        if feed.is_exhausted and not performer.has_work:
            ready_at = await asyncio.to_thread(self._next_ready_at, trial_only)
            if ready_at is None:
                self._end = End(EndKind.DONE)
                return
            if (wait_s := ready_at - time.time()) > 0:  # nothing is due yet; a clock set back is seen soon enough
                await asyncio.sleep(min(wait_s, CONTROL_S))
                return
        elif performer.is_idle and not performer.lanes.is_held(now):
            self._idle_since = self._idle_since or now
            if now - self._idle_since < self._waits.idle_claim_s:
                return
        else:
            self._idle_since = None
            return
        if performer.lanes.is_held(now):
            return
        # A hint may be lost: a slot that has been idle takes its work from the ledger, whatever the others do.
        self._idle_since = None
        ids = await asyncio.to_thread(feed.first, 2 * performer.concurrency)
        feed.forget_outstanding()
        for item_id in ids:
            performer.intake.put(item_id)
        if ids and self._job.max_cost_pusd is not None and not performer.tally.in_flight:
            await self._check_budget(ids)

    async def _check_budget(self, ids: list[int]) -> None:
        """Stop when nothing is in flight whose refund could let the next item in."""
        await asyncio.sleep(TICK_S)
        if self._performer.tally.in_flight or self._performer.has_work:
            return
        if await asyncio.to_thread(self._is_over_budget, ids[:1]):
            self.trip(Trip("budget", "the next request could take the job above max_cost_usd", 5))

    def _is_over_budget(self, ids: list[int]) -> bool:
        with self._ledger.read() as connection:
            return not within_budget(connection, self._job.id, ids)

    def _check_trouble(self) -> None:
        trouble = self._commit.trouble
        if trouble is not None and trouble.kind == "disk_full":
            self.trip(Trip(trouble.kind, trouble.message, trouble.exit_code))

    # -- small things ---------------------------------------------------------------------------------------------

    def _wake(self) -> None:
        self._performer.wake()

    def _is_rested(self) -> bool:
        """Say whether no request of this job can have left within the last minute, and a little."""
        since_at = time.time() - MINUTE.span_us / 1e6
        with self._ledger.read() as connection:
            return not has_sent_since(connection, self._job.id, since_at, except_worker=self._worker.id)

    def _count_left(self, trial_only: bool) -> int | None:
        """Return how many items are still to be claimed here; None where nobody here knows."""
        if trial_only:
            return None
        return self._meter.left(self._performer.tally) - self._performer.lanes.in_hand

    async def _answered_routes(self, address: str) -> set[str]:
        def read() -> set[str]:
            with self._ledger.read() as connection:
                return answered_routes(connection, self._job.id, endpoint=address)

        try:
            return await asyncio.to_thread(read)
        except LedgerFault:
            return set()  # a handful of such refusals then stops the job, as without answers

    def _read_job(self) -> Job:
        with self._ledger.read() as connection:
            return job_moves.read_job(connection, self._job.id)

    def _is_buried(self) -> bool:
        with self._ledger.read() as connection:
            return has_ended(connection, self._worker.id)

    def _next_ready_at(self, trial_only: bool) -> float | None:
        with self._ledger.read() as connection:
            return next_ready_at(connection, self._job.id, trial_only=trial_only)

    async def beat_when_due(self) -> None:
        """Move this worker's counter on: others call it dead when it stands still, also while it drains."""
        if time.monotonic() < self._next_beat:
            return
        self._next_beat = time.monotonic() + self._waits.heartbeat_s
        tally = self._performer.tally
        items_per_s, tokens_per_s = tally.rates(time.monotonic())
        await self._aside.write(
            lambda connection: beat(
                connection,
                self._worker.id,
                in_flight=tally.in_flight,
                items_per_s=items_per_s,
                tokens_per_s=tokens_per_s,
            )
        )
        if self._moving_on is None or self._moving_on.done():  # a folder that hangs must not take every thread
            self._moving_on = self._aside.run(self._move_epoch_on())

    async def _move_epoch_on(self) -> None:
        """Leave copies of the ledger behind; stop where one of them has gone on with the job as well."""
        copied = await asyncio.to_thread(move_epoch_on, self._ledger, self._job, self._worker)
        if copied is not None:
            self.trip(Trip(copied.kind, copied.message, copied.exit_code))

    async def _flush_partial(self) -> None:
        if fresh := self._performer.tally.take_completed():
            await asyncio.to_thread(self._partial.add, fresh)

    def _why_waiting(self, is_held: bool) -> str | None:
        if self._commit.trouble is not None:
            return self._commit.trouble.message
        if is_held:
            return self._outage.note or self._news.note or self._aside.trouble
        return next((lane.turnstile.note for lane in self._performer.lanes if lane.turnstile.note), None)

    def _show(self, phase: str, *, trial_only: bool = False, until: float | None = None) -> None:
        now = time.monotonic()
        is_held = until is None and self._performer.lanes.is_held(now)
        note = self._why_waiting(is_held)
        if until is not None and note is None:
            note = f"{self.in_flight} in flight will finish, {max(0.0, until - now):.0f} s at most"
        self._voice.watch(
            self._meter.moment(
                self._job,
                self._performer.tally,
                phase="waiting" if is_held else phase,
                trial_only=trial_only,
                note=note,
                is_away=self._outage.is_probing,
                now=now,
            )
        )


def _limits(job: Job, way: Way) -> Limits:
    """Return what holds for one endpoint: its own rates, or the job's where it is the only one."""
    return Limits(job.rpm, job.tpm) if way.limits is None else way.limits


def _lacks_model(lane: Lane) -> bool:
    return lane.out is not None and lane.out.reason == NO_MODEL
