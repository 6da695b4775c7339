"""Taking a job to its end in this process: hold it, sweep, trial, gate, full run, outputs. Or follow whoever holds it."""

import asyncio
import contextlib
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum

from batchrun.core.breaker import Trip
from batchrun.core.prices import Price
from batchrun.core.retry import RetryPolicy
from batchrun.core.states import ItemState, JobState
from batchrun.errors import JobBusy, LedgerFault
from batchrun.ledger import jobs as job_moves
from batchrun.ledger.consents import cancel_pending
from batchrun.ledger.jobs import Job
from batchrun.ledger.ledger import Ledger
from batchrun.ledger.liveness import Observer, Worker, enter
from batchrun.ledger.reports import count_items
from batchrun.runner.export import Outputs, output_paths, write_outputs
from batchrun.runner.partial import PartialOutput
from batchrun.runner.perform import Judge, Log
from batchrun.runner.progress import Progress, Watcher, done
from batchrun.runner.session import End, EndKind, Endpoint, Queue, Session, Waits
from batchrun.runner.standing import Standing, read_standing
from batchrun.runner.sweep import Rules, Swept, follow_policy, sweep
from batchrun.runner.trial import TrialReport, gate, report_trial

FOLLOW_S = 0.5
ROOM_PER_SLOT_BYTES = 16_384
TRIAL_ONLY = "trial_only"


class Scope(StrEnum):
    """How far a drive goes."""

    TRIAL = "trial"  # the trial and no further
    WHOLE = "whole"


@dataclass(frozen=True, slots=True)
class Gear:
    """What wiring hands to a drive: how to reach the endpoint, judge, queue and wait for one job."""

    endpoint_of: Callable[[Job], Endpoint]
    judge_of: Callable[[Job], Judge]
    price_of: Callable[[Job], Price | None]
    is_free: Callable[[Job], bool]  # requests probably cost nothing there
    policy_of: Callable[[Job], RetryPolicy]
    queue_of: Callable[[str], Queue]  # by the worker's incarnation
    waits_of: Callable[[Job], Waits]
    dead_after_s: float
    worker_name: str


@dataclass(frozen=True, slots=True)
class Voice:
    """What a drive tells, and asks, the person in front of it."""

    watch: Watcher
    say: Callable[[str], None]
    log: Log
    show_trial: Callable[[TrialReport], None]
    go_on: Callable[[TrialReport], bool]  # asked once after a trial that passed


@dataclass(frozen=True, slots=True)
class Arrival:
    """How a drive ended: where the job stands, what was written, and which signal or guard stopped it."""

    standing: Standing
    outputs: Outputs | None
    trial: TrialReport | None = None
    end: End | None = None

    @property
    def exit_code(self) -> int:
        if self.end is not None and self.end.signal is not None:
            return 128 + self.end.signal
        if self.end is not None and self.end.trip is not None:
            return self.end.trip.exit_code
        return self.standing.exit_code


@contextlib.contextmanager
def working(ledger: Ledger, gear: Gear, *, concurrency: int) -> Iterator[Worker]:
    """Be a worker of this ledger for a while.

    Raises:
        LedgerFault: no space for the spool.
    """
    try:
        worker = enter(
            ledger, name=gear.worker_name, now=time.time(), room_bytes=max(1 << 18, concurrency * ROOM_PER_SLOT_BYTES)
        )
    except OSError as error:
        where = str(ledger.folder / "workers")
        raise LedgerFault(
            f"{where!r} cannot hold this worker's spool: {error.strerror}", hint="free disk space"
        ) from None
    try:
        yield worker
    finally:
        worker.leave(ledger, now=time.time())


def try_to_hold(ledger: Ledger, job: Job, worker: Worker, observer: Observer) -> bool:
    """Become the job's holder where nobody is, or where the holder is dead."""
    if job.holder == worker.id:
        return True
    if job.holder is not None and not observer.is_dead(job.holder):
        return False
    with ledger.write() as connection:
        return job_moves.take(connection, job.id, worker_id=worker.id, instead_of=job.holder, now=time.time())


def sweep_all(ledger: Ledger, gear: Gear, worker: Worker, observer: Observer | None = None) -> Swept:
    """Adopt and rescue whatever dead workers of this ledger have left."""
    observer = observer or Observer(ledger, dead_after_s=gear.dead_after_s)
    return sweep(ledger, observer, except_worker=worker.id, rules_of=lambda job: rules_of(gear, job))


def rules_of(gear: Gear, job: Job) -> Rules:
    """Return how a job's evidence is judged, priced and followed."""
    return Rules(gear.judge_of(job), gear.price_of(job), gear.policy_of(job))


def drive(
    ledger: Ledger,
    task_id: str,
    *,
    gear: Gear,
    voice: Voice,
    worker: Worker,
    scope: Scope = Scope.WHOLE,
    wait: bool = True,
    prepare: Callable[[Job], None] | None = None,
) -> Arrival:
    """Take a job as far as `scope`, here or by following whoever performs it, and say how it ended.

    Args:
        prepare: what the command decides about the job, once this process holds it and has swept.

    Raises:
        JobBusy: another living process performs the job, and `wait` is false.
    """
    before = signal.getsignal(signal.SIGTERM)
    try:
        return asyncio.run(_Drive(ledger, task_id, gear, voice, worker, scope, wait, prepare).run())
    finally:
        signal.signal(signal.SIGTERM, before)  # the loop has taken its own handler away, and left none


class _Drive:
    def __init__(
        self,
        ledger: Ledger,
        task_id: str,
        gear: Gear,
        voice: Voice,
        worker: Worker,
        scope: Scope,
        wait: bool,
        prepare: Callable[[Job], None] | None,
    ) -> None:
        self._ledger, self._task_id, self._gear, self._voice, self._worker = ledger, task_id, gear, voice, worker
        self._scope, self._wait, self._prepare = scope, wait, prepare
        self._observer = Observer(ledger, dead_after_s=gear.dead_after_s)
        self._follow_s = min(FOLLOW_S, gear.dead_after_s / 8)  # an observer counts dense readings only
        self._session: Session | None = None
        self._signal: int | None = None
        self._trial: TrialReport | None = None

    async def run(self) -> Arrival:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            with contextlib.suppress(ValueError, RuntimeError, NotImplementedError):
                loop.add_signal_handler(number, self._take_signal, int(number))
        outputs, end = None, None
        if await self._hold():
            try:
                outputs, end = await self._as_holder()
            finally:
                active_s = self._session.active_s if self._session else 0.0
                with self._ledger.write() as connection:
                    job_moves.drop(connection, self._job().id, worker_id=self._worker.id, active_s=active_s)
        if end is None and self._signal is not None:
            end = End(EndKind.DRAINED, signal=self._signal)
        return Arrival(read_standing(self._ledger, self._task_id), outputs, self._trial, end)

    def _take_signal(self, number: int) -> None:
        if self._signal is None and self._session is not None:
            in_flight = self._session.in_flight
            self._voice.say(f"draining: {in_flight} requests in flight will finish; once more gives them up (in doubt)")
        self._signal = number
        if self._session is not None:
            self._session.signal(number)

    # -- holding and following --------------------------------------------------------------------------------------

    async def _hold(self) -> bool:
        """Hold the job, or follow it until it ends; false when it ended, or was left, elsewhere."""
        is_told = False
        while True:
            job = self._job()
            if try_to_hold(self._ledger, job, self._worker, self._observer):
                if is_told:
                    self._voice.say(f"nobody performs {self._task_id} any more; going on here")
                return True
            if not self._wait:
                raise self._busy()
            if not is_told:
                is_told = True
                self._voice.say(f"{self._busy().message}; following it, and taking over if it dies")
            if self._signal is not None:
                return False
            self._watch_from_outside()
            await asyncio.sleep(self._follow_s)
            job = self._job()
            if job.holder is None and self._is_over(job):
                return False

    def _is_over(self, job: Job) -> bool:
        if self._scope is Scope.TRIAL and job.phase == "full":
            return True
        if self._scope is Scope.WHOLE and job.state is JobState.PAUSED and job.reason == TRIAL_ONLY:
            return False  # somebody's trial passed: the full run is this command's
        return job.state in (JobState.COMPLETED, JobState.CANCELLED, JobState.FAILED, JobState.PAUSED)

    def _busy(self) -> JobBusy:
        who = read_standing(self._ledger, self._task_id).performer
        return JobBusy(f"job {self._task_id!r} is performed by {who}", hint=f"batchrun status {self._task_id} -w")

    def _watch_from_outside(self) -> None:
        standing = read_standing(self._ledger, self._task_id)
        self._voice.watch(progress_of(standing, phase="following"))

    # -- performing -------------------------------------------------------------------------------------------------

    async def _as_holder(self) -> tuple[Outputs | None, End | None]:
        swept = await asyncio.to_thread(sweep_all, self._ledger, self._gear, self._worker, self._observer)
        if swept.adopted or swept.in_doubt:
            self._voice.say(
                f"a process died here: {swept.adopted} answers it had received are kept, {swept.in_doubt} items are in doubt"
            )
        if self._prepare is not None:
            self._prepare(self._job())
        follow_policy(self._ledger, self._job())
        job = self._job()
        end = None
        is_tried = self._scope is Scope.TRIAL and job.phase == "full"
        if job.state is JobState.IN_PROGRESS and not is_tried and self._is_unfinished(job):
            end = await self._perform(job)
        return self._finish(end), end

    def _is_unfinished(self, job: Job) -> bool:
        with self._ledger.read() as connection:
            counts = count_items(connection, job.id)
        return bool(counts[ItemState.PENDING] or counts[ItemState.RUNNING])

    async def _perform(self, job: Job) -> End:
        partial = PartialOutput(self._ledger, job.id, output_paths(job)[0])
        await asyncio.to_thread(partial.rebuild)
        with self._ledger.write() as connection:
            job_moves.start(connection, job.id, now=time.time())
        price, spec = self._gear.price_of(job), job.spec
        session = Session(
            ledger=self._ledger,
            job=job,
            worker=self._worker,
            endpoint=self._gear.endpoint_of(job),
            judge=self._gear.judge_of(job),
            queue=self._gear.queue_of(self._worker.incarnation),
            policy=self._gear.policy_of(job),
            price=price,
            fail_on_error=spec["fail_on_error"],
            endpoint_down_limit_s=spec["endpoint_down_limit_s"],
            partial=partial,
            watch=self._voice.watch,
            waits=self._gear.waits_of(job),
            log=self._voice.log,
            say=self._voice.say,
            is_free=self._gear.is_free(job),
        )
        self._session = session
        session.start()
        try:
            if self._signal is not None:
                session.signal(self._signal)
            end = await self._phases(session, job)
        finally:
            await session.finish()
        return session.end_after(end)

    async def _phases(self, session: Session, job: Job) -> End:
        if job.phase == "trial":
            end = await session.work(trial_only=True)
            if end.kind is not EndKind.DONE:
                return end
            stop = await asyncio.to_thread(self._judge_trial, job)
            if stop is not None:
                return stop
        return await session.work(trial_only=False)

    def _judge_trial(self, job: Job) -> End | None:
        """Let the trial's gate, and the person, decide about the full run; return the end when it must not follow."""
        report = report_trial(self._ledger, job, price=self._gear.price_of(job))
        self._trial = report
        self._voice.show_trial(report)
        job = self._job()
        share = float(job.spec["trial"]["max_failed_share"])
        if why := gate(report, max_failed_share=share, max_cost_pusd=job.max_cost_pusd):
            self._set_verdict(job, "trial", "failed")
            return End(EndKind.TRIPPED, Trip("trial_gate", why, 5))
        if self._scope is Scope.TRIAL:
            self._set_verdict(job, "full", "passed")
            return End(EndKind.TRIPPED, Trip(TRIAL_ONLY, "the trial passed; submit or resume starts the full run", 0))
        if not self._voice.go_on(report):
            return End(EndKind.TRIPPED, Trip("declined", "you did not want the full run; resume starts it", 0))
        self._set_verdict(job, "full", "passed")
        return None

    def _set_verdict(self, job: Job, phase: str, verdict: str) -> None:
        with self._ledger.write() as connection:
            job_moves.set_phase(connection, job.id, phase=phase, verdict=verdict, now=time.time())

    # -- the end ----------------------------------------------------------------------------------------------------

    def _finish(self, end: End | None) -> Outputs | None:
        """Make the job's state say how it ended, and write the outputs where it has."""
        job = self._job()
        if end is not None and end.trip is not None:
            with self._ledger.write() as connection:
                job_moves.move_job(
                    connection, job.id, "pause", now=time.time(), reason=end.trip.reason, message=end.trip.message
                )
        if end is None or end.kind in (EndKind.DONE, EndKind.CANCELLED):
            return finalize(self._ledger, job)
        if end.kind in (EndKind.TRIPPED, EndKind.DRAINED, EndKind.PAUSED):
            return write_outputs(self._ledger, job, so_far=True)
        return None

    def _job(self) -> Job:
        with self._ledger.read() as connection:
            return job_moves.find_job(connection, self._task_id)


def finalize(ledger: Ledger, job: Job) -> Outputs | None:
    """Write a finished job's outputs and close it; None while it is not finished. Repeats nothing that is done.

    Raises:
        LedgerFull: the outputs could not be written; the job stays `finalizing`, and `resume` tries again.
    """
    now = time.time()
    with ledger.write() as connection:
        job = job_moves.read_job(connection, job.id)
        if job.state is JobState.CANCELLING:
            cancel_pending(connection, job.id)  # what became pending after the cancel's own sweep
        job_moves.move_job(connection, job.id, "finalize", now=now, reason=job.reason, message=job.message)
        job = job_moves.read_job(connection, job.id)
    output, errors = output_paths(job)
    if job.state in (JobState.COMPLETED, JobState.CANCELLED):
        if output.exists() and errors.exists():
            return None
        return write_outputs(ledger, job)
    if job.state is not JobState.FINALIZING:
        return None
    outputs = write_outputs(ledger, job)
    with ledger.write() as connection:
        name = "close" if job.was_cancelled else "complete"
        job_moves.move_job(connection, job.id, name, now=time.time(), reason=job.reason if job.was_cancelled else None)
    PartialOutput(ledger, job.id, output).remove()
    return outputs


def progress_of(standing: Standing, *, phase: str) -> Progress:
    """Make a moment of progress from what the ledger says."""
    job = standing.job
    return Progress(
        task_id=job.task_id,
        phase=phase,
        counts=standing.counts,
        scope_total=job.total,
        scope_done=done(standing.counts),
        in_flight=standing.in_flight,
        concurrency=job.concurrency,
        items_per_s=standing.items_per_s,
        e2el_p50_s=standing.e2el_p50_s,
        e2el_p95_s=standing.e2el_p95_s,
        spent_pusd=job.spent_pusd,
        budget_pusd=job.max_cost_pusd,
        note=job.message if job.state is JobState.PAUSED else None,
    )
