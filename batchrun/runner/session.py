"""One process at work on one job: the performer, what feeds it, what watches it, and every way it can end."""

import asyncio
import gc
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from batchrun.core.breaker import Breaker, Trip
from batchrun.core.outcome import Evidence
from batchrun.core.prices import Price
from batchrun.core.retry import RetryPolicy
from batchrun.core.states import ItemState, JobState
from batchrun.errors import LedgerFault
from batchrun.ledger import jobs as job_moves
from batchrun.ledger.claims import within_budget
from batchrun.ledger.commit import GroupCommit
from batchrun.ledger.jobs import Job
from batchrun.ledger.ledger import Ledger
from batchrun.ledger.liveness import HEARTBEAT_S, Worker, beat
from batchrun.ledger.reports import count_items, next_ready_at
from batchrun.runner.feed import Carrier, Feed
from batchrun.runner.partial import PartialOutput
from batchrun.runner.perform import Judge, Log, Means, Performer, Sender
from batchrun.runner.progress import Progress, Watcher, done

TICK_S = 0.2
CONTROL_S = 0.5
ENDPOINT_DOWN = "endpoint_down"


class Endpoint(Sender, Protocol):
    """What a session needs of an endpoint beside sending."""

    async def is_reachable(self) -> bool: ...

    async def close(self) -> None: ...


class Queue(Carrier, Protocol):
    """The queue of this process: carries hints, and hands each to `take`."""

    def start(self, take: Callable[[int, int], None]) -> None: ...

    def stop(self) -> None: ...


class EndKind(StrEnum):
    """How a session's work ended."""

    DONE = "done"  # nothing is left in the scope
    TRIPPED = "tripped"  # a guard stopped the job
    PAUSED = "paused"  # somebody paused it from elsewhere
    CANCELLED = "cancelled"
    DRAINED = "drained"  # a signal; what was in flight has finished
    ABORTED = "aborted"  # a second signal; what was in flight is in doubt
    LOST = "lost"  # another process holds the job now


@dataclass(frozen=True, slots=True)
class End:
    kind: EndKind
    trip: Trip | None = None
    signal: int | None = None


@dataclass(frozen=True, slots=True)
class Waits:
    """Durations in seconds that tests shorten; nothing else about a session is adjustable."""

    idle_claim_s: float = 1.0
    never_reached_s: float = 10.0
    probe_s: float = 1.0
    drain_s: float = 600.0
    heartbeat_s: float = HEARTBEAT_S
    refused_s: float = 5.0  # how long a ledger that takes nothing is waited for at the end


class Session:
    """Works on a job until an end. To be used on one event loop, between `start` and `finish`."""

    def __init__(
        self,
        *,
        ledger: Ledger,
        job: Job,
        worker: Worker,
        endpoint: Endpoint,
        judge: Judge,
        queue: Queue,
        policy: RetryPolicy,
        price: Price | None,
        fail_on_error: float | None,
        endpoint_down_limit_s: float,
        partial: PartialOutput,
        watch: Watcher,
        waits: Waits,
        log: Log,
        say: Callable[[str], None],
        is_free: bool,
    ) -> None:
        self._ledger = ledger
        self._job = job
        self._worker = worker
        self._endpoint = endpoint
        self._queue = queue
        self._down_limit_s = endpoint_down_limit_s
        self._partial = partial
        self._watch = watch
        self._waits = waits
        self._commit = GroupCommit(ledger, worker.id)
        self._end: End | None = None
        self._probing: asyncio.Task[None] | None = None
        self._side_tasks: set[asyncio.Task[None]] = set()
        self._note: str | None = None
        self._idle_since: float | None = None  # since when a slot has been free with nothing on its way to it
        self._say = say
        self._is_free = is_free  # a local endpoint without a price
        self._has_told = False
        with ledger.read() as connection:
            self._base = count_items(connection, job.id)
        self._performer = Performer(
            job_id=job.id,
            worker_id=worker.id,
            concurrency=job.concurrency,
            policy=policy,
            price=price,
            means=Means(self._commit, endpoint, judge, worker.spool, ledger.attempt_id, random.random),
            breaker=Breaker(job.concurrency, job.total, self._base[ItemState.FAILED], fail_on_error),
            alarm=self,
            log=log,
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
        feed = Feed(self._ledger, self._performer, self._queue, trial_only=trial_only)
        feeding = asyncio.create_task(feed.run())
        try:
            await self._supervise(feed, trial_only=trial_only)
        finally:
            feeding.cancel()
        assert self._end is not None
        end, self._end = self._end, None if self._end.kind is EndKind.DONE else self._end
        return end

    async def finish(self) -> None:
        """Finish what is in flight, write everything down, and stop. Safe after any end."""
        self._performer.close()
        if self._probing is not None:
            self._probing.cancel()
        if self._performing is not None:
            await self._drain(self._performing)
        await asyncio.to_thread(self._queue.stop)
        if self._side_tasks:
            await asyncio.wait(self._side_tasks, timeout=5.0)
        await self._commit.stop(within_s=5.0)
        await self._endpoint.close()

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
            self._show("draining")
            await self._flush_partial()
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

    @property
    def trouble(self) -> LedgerFault | None:
        """Why the ledger does not take what it is given; None while it does."""
        return self._commit.trouble

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

    def _take(self, job_id: int, item_id: int) -> None:
        if job_id == self._job.id:
            self._performer.offer(item_id)

    def throttled(self, wait_s: float) -> None:
        self._note = f"the endpoint asked for a pause of {wait_s:.1f} s"
        now = time.time()  # the ledger's hold must not outlast this process's own: a claim in between comes to nothing
        self._aside(self._write, lambda c: job_moves.set_throttle(c, self._job.id, wait_s=wait_s, now=now))

    def unreachable(self, evidence: Evidence) -> None:
        if self._probing is None or self._probing.done():
            self._performer.block()
            self._probing = asyncio.create_task(self._await_endpoint(evidence))

    def doubted(self, evidence: Evidence) -> None:
        """Tell once how doubts can be avoided where a second request costs nothing."""
        if not self._is_free or self._has_told:
            return
        self._has_told = True
        self._say(
            f"an item is in doubt ({evidence.message}); if requests cost nothing at {self._endpoint.address}, this sends "
            f"such items again by itself: batchrun resume {self._job.task_id} --on-unknown retry"
        )

    async def _await_endpoint(self, evidence: Evidence) -> None:
        """Probe until the endpoint answers anything, then go on; a job that never reached it stops soon."""
        was_reached = self._performer.has_reached
        limit_s = self._down_limit_s if was_reached else self._waits.never_reached_s
        began = time.monotonic()
        message = evidence.message or "the endpoint cannot be reached"
        self._note = f"endpoint down: {message}"
        if was_reached:
            await asyncio.to_thread(
                self._write,
                lambda c: job_moves.move_job(
                    c, self._job.id, "pause", now=time.time(), reason=ENDPOINT_DOWN, message=message
                ),
            )
        while not await self._endpoint.is_reachable():
            if time.monotonic() - began > limit_s:
                self.trip(Trip(ENDPOINT_DOWN if was_reached else "unreachable", message, 5))
                return
            await asyncio.sleep(self._waits.probe_s)
        if was_reached:
            await asyncio.to_thread(
                self._write,
                lambda c: job_moves.move_job(c, self._job.id, "resume", now=time.time(), only_reason=ENDPOINT_DOWN),
            )
        self._note = None
        self._performer.unblock()

    # -- supervision ----------------------------------------------------------------------------------------------

    async def _supervise(self, feed: Feed, *, trial_only: bool) -> None:
        next_control = next_beat = 0.0
        while self._end is None:
            if self._performing is not None and self._performing.done():
                self._performing.result()  # raises what ended it: nothing else may
            now = time.monotonic()
            try:
                if now >= next_control:
                    next_control = now + CONTROL_S
                    await self._obey()
                if now >= next_beat:
                    next_beat = now + self._waits.heartbeat_s
                    await asyncio.to_thread(self._beat)
                await self._look_for_work(feed, trial_only=trial_only)
            except LedgerFault as error:
                self._note = error.message  # the writer repeats by itself; a full disk ends the run
            self._check_trouble()
            await self._flush_partial()
            self._show("trial" if trial_only else "running", trial_only=trial_only)
            if self._end is None:
                await asyncio.sleep(0.02 if feed.is_exhausted and not self._performer.has_work else TICK_S)

    async def _obey(self) -> None:
        """Follow what was decided elsewhere: pause, cancel, another holder."""
        job = await asyncio.to_thread(self._read_job)
        if job.holder != self._worker.id:
            self._end = End(EndKind.LOST)
        elif job.state in (JobState.CANCELLING, JobState.CANCELLED):
            self._end = End(EndKind.CANCELLED)
        elif job.state is JobState.PAUSED and job.reason != ENDPOINT_DOWN:
            self._end = End(EndKind.PAUSED)
        if self._end is not None:
            self._performer.close()
        self._job = job

    async def _look_for_work(self, feed: Feed, *, trial_only: bool) -> None:
        performer = self._performer
        now = time.monotonic()
        if performer.pace.is_held(now) or not performer.is_idle:
            self._idle_since = None
            return
        self._idle_since = self._idle_since or now
        if feed.is_exhausted and not performer.has_work:
            ready_at = await asyncio.to_thread(self._next_ready_at, trial_only)
            if ready_at is None:
                self._end = End(EndKind.DONE)
                return
        elif now - self._idle_since < self._waits.idle_claim_s:
            return
        # A hint may be lost: a slot that has been idle takes its work from the ledger, whatever the others do.
        self._idle_since = None
        ids = await asyncio.to_thread(feed.read, after=-1, limit=2 * performer.concurrency)
        feed.forget_outstanding()
        for item_id in ids:
            performer.hint(item_id)
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

    def _read_job(self) -> Job:
        with self._ledger.read() as connection:
            return job_moves.read_job(connection, self._job.id)

    def _next_ready_at(self, trial_only: bool) -> float | None:
        with self._ledger.read() as connection:
            return next_ready_at(connection, self._job.id, trial_only=trial_only)

    def _write(self, step: Callable[..., object]) -> None:
        with self._ledger.write() as connection:
            step(connection)

    def _beat(self) -> None:
        items_per_s, tokens_per_s = self._performer.tally.rates(time.monotonic())
        beat(
            self._ledger,
            self._worker.id,
            in_flight=self._performer.tally.in_flight,
            items_per_s=items_per_s,
            tokens_per_s=tokens_per_s,
        )

    def _aside(self, function: Callable[..., None], *arguments: object) -> None:
        """Run a small ledger write beside the event loop; its failure is not the run's."""

        async def run() -> None:
            try:
                await asyncio.to_thread(function, *arguments)
            except LedgerFault as error:
                self._note = error.message

        task = asyncio.create_task(run())
        self._side_tasks.add(task)
        task.add_done_callback(self._side_tasks.discard)

    async def _flush_partial(self) -> None:
        fresh, self._performer.completed = self._performer.completed, []
        if fresh:
            await asyncio.to_thread(self._partial.add, fresh)

    def _counts(self) -> dict[ItemState, int]:
        counts = dict(self._base)
        moved = 0
        for state, count in self._performer.tally.moved.items():
            counts[state] += count
            moved += count
        in_flight = self._performer.tally.in_flight
        counts[ItemState.RUNNING] = in_flight
        open_before = self._base[ItemState.PENDING] + self._base[ItemState.RUNNING]
        counts[ItemState.PENDING] = max(0, open_before - moved - in_flight)
        return counts

    def _show(self, phase: str, *, trial_only: bool = False) -> None:
        tally, job = self._performer.tally, self._job
        counts = self._counts()
        items_per_s, tokens_per_s = tally.rates(time.monotonic())
        total = min(job.total, int(job.spec["trial"]["size"])) if trial_only else job.total
        self._watch(
            Progress(
                task_id=job.task_id,
                phase="waiting" if self._performer.pace.is_held(time.monotonic()) else phase,
                counts=counts,
                scope_total=total,
                scope_done=min(total, done(counts)),
                in_flight=tally.in_flight,
                concurrency=job.concurrency,
                items_per_s=items_per_s,
                tokens_per_s=tokens_per_s,
                e2el_p50_s=tally.latency(50),
                e2el_p95_s=tally.latency(95),
                spent_pusd=job.spent_pusd,
                budget_pusd=job.max_cost_pusd,
                last_failure=tally.last_failure,
                note=self._note if self._performer.pace.is_held(time.monotonic()) else None,
            )
        )
