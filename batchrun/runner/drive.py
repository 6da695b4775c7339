"""Taking a job to its end in this process: hold it, sweep, trial, gate, full run, outputs. Or follow its holder."""

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable
from functools import partial

from batchrun.core.breaker import Trip
from batchrun.core.states import ItemState, JobState
from batchrun.errors import JobBusy
from batchrun.ledger import jobs as job_moves
from batchrun.ledger.jobs import Job
from batchrun.ledger.ledger import Ledger
from batchrun.ledger.liveness import Observer, Worker
from batchrun.ledger.reports import count_items
from batchrun.runner.ends import TRIAL_ONLY, End, EndKind
from batchrun.runner.epoch import begin, let_go
from batchrun.runner.export import Outputs, output_paths, write_outputs
from batchrun.runner.finalize import finalize
from batchrun.runner.gear import Arrival, Gear, Scope, Voice
from batchrun.runner.hold import sweep_all, try_to_hold
from batchrun.runner.onlooker import Onlooker
from batchrun.runner.partial import PartialOutput
from batchrun.runner.progress import done
from batchrun.runner.session import Session
from batchrun.runner.signals import borrowed_signals, listen
from batchrun.runner.standing import read_standing
from batchrun.runner.sweep import follow_policy
from batchrun.runner.trial import TrialReport, report_trial
from batchrun.runner.verdict import TrialNews, judge_trial
from batchrun.runner.writing import GivenUp, Writing

FOLLOW_S = 0.5


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
    make_session: Callable[..., Session] = Session,
) -> Arrival:
    """Take a job as far as `scope`, here or by following whoever performs it, and say how it ended.

    Args:
        prepare: what the command decides about the job, once this process holds it and has swept.
        make_session: what works on it here; takes what `Session` takes.

    Raises:
        JobBusy: another living process performs the job, and `wait` is false.
    """
    with borrowed_signals():
        return asyncio.run(_Drive(ledger, task_id, gear, voice, worker, scope, wait, prepare, make_session).run())


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
        make_session: Callable[..., Session],
    ) -> None:
        self._ledger, self._task_id, self._gear, self._voice, self._worker = ledger, task_id, gear, voice, worker
        self._scope, self._wait, self._prepare = scope, wait, prepare
        self._make_session = make_session
        self._observer = Observer(ledger, dead_after_s=gear.dead_after_s)
        self._follow_s = min(FOLLOW_S, gear.dead_after_s / 8)  # an observer counts dense readings only
        self._session: Session | None = None
        self._signal: int | None = None
        self._trial: TrialReport | None = None
        self._news = TrialNews(ledger, lambda job: gear.rules_of(job).price, voice.show_trial)
        self._onlooker = Onlooker(ledger, task_id)
        self._writing: Writing | None = None

    async def run(self) -> Arrival:
        listen(self._take_signal)
        outputs, end = None, None
        if await self._hold():
            try:
                outputs, end = await self._as_holder()
            finally:
                active_s = self._session.active_s if self._session else 0.0
                let_go(self._ledger, self._job(), self._worker, active_s=active_s)
        is_given_up = self._writing is not None and self._writing.is_given_up
        if self._signal is not None and (end is None or is_given_up):
            end = End(EndKind.DRAINED, signal=self._signal)
        worked_s = self._session.active_s if self._session else None
        standing = read_standing(self._ledger, self._task_id)
        return Arrival(standing, outputs, self._trial or self._news.report, end, worked_s)

    def _take_signal(self, number: int) -> None:
        if self._writing is not None:
            if self._signal is None:
                self._voice.say(f"writing the outputs; once more leaves that to `batchrun resume {self._task_id}`")
            self._writing.is_given_up = self._signal is not None
        elif self._signal is None and self._session is not None:
            in_flight = self._session.in_flight
            noun = "request" if in_flight == 1 else "requests"
            will = f"{in_flight} {noun} in flight will finish; once more gives them up (in doubt)"
            self._voice.say(f"draining: {will if in_flight else 'nothing is in flight'}")
        self._signal = number
        if self._session is not None:
            self._session.signal(number)

    # -- holding and following --------------------------------------------------------------------------------------

    async def _hold(self) -> bool:
        """Hold the job, or follow it until it ends; false when it ended, or was left, elsewhere."""
        is_told = False
        while True:
            job = self._job()
            self._news.look(job)
            if is_told and job.holder is None and self._is_over(job):
                return False
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
        progress = self._onlooker.look()
        if progress is not None:
            self._voice.watch(progress)

    # -- performing -------------------------------------------------------------------------------------------------

    async def _as_holder(self) -> tuple[Outputs | None, End | None]:
        swept = await asyncio.to_thread(sweep_all, self._ledger, self._gear, self._worker, self._observer)
        job_id = self._job().id
        if swept.adopted[job_id] or swept.in_doubt[job_id]:
            self._voice.say(
                f"a process died here: {swept.adopted[job_id]} answers it had received are kept, "
                f"{swept.in_doubt[job_id]} items are in doubt"
            )
        is_tried = self._scope is Scope.TRIAL and self._job().phase == "full"
        if self._prepare is not None and not is_tried:  # a trial that was made is not made again, and opens nothing
            self._prepare(self._job())
        follow_policy(self._ledger, self._job())
        job = self._job()
        end = None
        if job.state is JobState.IN_PROGRESS and not is_tried and self._is_unfinished(job):
            end = await self._perform(job)
        return await self._finish(end), end

    def _is_unfinished(self, job: Job) -> bool:
        with self._ledger.read() as connection:
            counts = count_items(connection, job.id)
        return bool(counts[ItemState.PENDING] or counts[ItemState.RUNNING])

    async def _perform(self, job: Job) -> End:
        if not await asyncio.to_thread(begin, self._ledger, job, self._worker):
            return End(EndKind.LOST)
        partial = PartialOutput(self._ledger, job.id, output_paths(job)[0])
        await asyncio.to_thread(partial.rebuild)
        with self._ledger.write() as connection:
            job_moves.share(connection, job.id, is_shared=False)
            job_moves.start(connection, job.id, now=time.time())
        session = self._make_session(
            ledger=self._ledger, job=job, worker=self._worker, gear=self._gear, voice=self._voice, partial=partial
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
            if (stop := await self._judge_trial(session, job)) is not None:
                return stop
        return await session.work(trial_only=False)

    async def _judge_trial(self, session: Session, job: Job) -> End | None:
        """Let the trial's gate, and the person, decide about the full run; return the end when it must not follow."""
        report = await asyncio.to_thread(report_trial, self._ledger, job, price=self._gear.rules_of(job).price)
        self._trial = report
        self._voice.show_trial(report)
        verdict = judge_trial(self._job(), report, rests_after=self._scope is Scope.TRIAL)
        if verdict.trip is None and report.left:
            answer = await self._ask(session, report)
            if answer is None:
                return End(EndKind.DRAINED, signal=self._signal)
            if not answer:
                return End(EndKind.TRIPPED, Trip("declined", "you did not want the full run; resume starts it", 0))
        with self._ledger.write() as connection:
            job_moves.set_phase(connection, job.id, phase=verdict.phase, verdict=verdict.word, now=time.time())
        return None if verdict.trip is None else End(EndKind.TRIPPED, verdict.trip)

    async def _ask(self, session: Session, report: TrialReport) -> bool | None:
        """Ask whether to go on, however long that takes; None when a signal came instead of an answer."""
        answers: list[bool] = []
        # A thread that nobody waits for: it may sit in a read from the terminal that never ends.
        asking = threading.Thread(target=lambda: answers.append(self._voice.go_on(report)), daemon=True)
        asking.start()
        while asking.is_alive():
            if self._signal is not None:
                return None
            await session.beat_when_due()
            await asyncio.sleep(0.05)
        return bool(answers and answers[0]) if self._signal is None else None

    # -- the end ----------------------------------------------------------------------------------------------------

    async def _finish(self, end: End | None) -> Outputs | None:
        """Make the job's state say how it ended, and write the outputs where it has."""
        job = self._job()
        if end is not None and end.trip is not None:
            with self._ledger.write() as connection:
                job_moves.move_job(
                    connection, job.id, "pause", now=time.time(), reason=end.trip.reason, message=end.trip.message
                )
        is_over = end is None or end.kind in (EndKind.DONE, EndKind.CANCELLED)
        if not is_over and end is not None and end.kind not in (EndKind.TRIPPED, EndKind.DRAINED, EndKind.PAUSED):
            return None
        with self._ledger.read() as connection:
            counts = count_items(connection, job.id)
        self._writing = writing = Writing(job, counts, lines=done(counts))
        close = partial(finalize, holder=self._worker.id) if is_over else partial(write_outputs, so_far=True)
        with contextlib.suppress(GivenUp):
            return await writing.watched(
                partial(close, self._ledger, job, wrote=writing.wrote), watch=self._voice.watch, beat=self._beat
            )
        return None

    async def _beat(self) -> None:
        if self._session is not None:
            await self._session.beat_when_due()

    def _job(self) -> Job:
        with self._ledger.read() as connection:
            return job_moves.find_job(connection, self._task_id)
