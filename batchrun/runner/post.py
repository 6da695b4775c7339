"""A worker's part in one job, from joining it until the job rests or the worker leaves; and its chores.

The chores are done by one worker at a time, the job's holder: the hints, the judgement of the trial, the outputs.
"""

import asyncio
import signal
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from batchrun.core.breaker import Trip
from batchrun.core.states import JobState
from batchrun.errors import LedgerCopied, LedgerFault
from batchrun.ledger import jobs as job_moves
from batchrun.ledger.backlog import is_over
from batchrun.ledger.jobs import Job
from batchrun.ledger.liveness import beat_of
from batchrun.runner.ends import EndKind
from batchrun.runner.epoch import begin, let_go, refuse_copy
from batchrun.runner.export import output_paths, write_outputs
from batchrun.runner.finalize import finalize
from batchrun.runner.hold import try_to_hold
from batchrun.runner.outage import ENDPOINT_DOWN
from batchrun.runner.shared import SharedSession
from batchrun.runner.sweep import follow_policy
from batchrun.runner.trial import report_trial
from batchrun.runner.verdict import judge_trial

if TYPE_CHECKING:
    from batchrun.runner.crew import Crew

LOOK_S = 0.25  # between two looks at a job that others are busy with


class Post:
    """This worker's part in one job, from joining it until the job rests or the worker leaves."""

    def __init__(self, crew: "Crew", job: Job) -> None:
        self._crew, self._job = crew, job
        self._ledger, self._worker = crew.ledger, crew.worker
        self._is_holder = False
        self._held_since = time.monotonic()
        self._has_joined = False
        self._seen: tuple[int, int | None] | None = None  # the holder and its counter at the last look
        self._session: SharedSession | None = None

    async def run(self) -> None:
        """Work on the job, and do its chores while this worker holds it.

        Raises:
            LedgerCopied: another copy of this ledger has gone on with the job.
        """
        await asyncio.to_thread(refuse_copy, self._ledger, self._job)
        holding = asyncio.create_task(self._keep_trying_to_hold())
        try:
            while not self._crew.is_closing.is_set():
                job = await asyncio.to_thread(self._read)
                if not job.is_shared:
                    return
                if job.state is JobState.IN_PROGRESS or job.reason == ENDPOINT_DOWN:
                    if not await asyncio.to_thread(self._may_join, job):
                        await asyncio.sleep(LOOK_S)
                    elif not await self._perform(job):
                        return
                elif job.state in (JobState.CANCELLING, JobState.FINALIZING):
                    await asyncio.to_thread(self._close_out, job)
                    await asyncio.sleep(LOOK_S)
                else:
                    if self._is_holder and job.state is JobState.PAUSED and _has_place(job):
                        await asyncio.to_thread(write_outputs, self._ledger, job, so_far=True)
                    return
        finally:
            holding.cancel()
            with suppress(LedgerFault):
                await asyncio.to_thread(self._let_go)

    def _may_join(self, job: Job) -> bool:
        """Say whether this worker may claim: it holds the job, or its holder lives in this very ledger.

        In a copy of the ledger the holder is the original's: its lock is held, but its counter stands still here.
        """
        if self._is_holder or self._has_joined:
            self._has_joined = True
        elif job.holder is not None:
            with self._ledger.read() as connection:
                seen = (job.holder, beat_of(connection, job.holder))
            before, self._seen = self._seen, seen
            self._has_joined = before is not None and before[0] == seen[0] and before[1] != seen[1]
        return self._has_joined

    # -- performing ---------------------------------------------------------------------------------------------------

    async def _perform(self, job: Job) -> bool:
        """Perform the job's items until the job changes; False when this worker is done with it for now."""
        session = SharedSession(
            ledger=self._ledger,
            job=job,
            worker=self._worker,
            gear=self._crew.gear_of(job.id),
            voice=self._crew.voice,
            broker=self._crew.queue,
            most_slots=self._crew.slots_of_one,
            is_holder=lambda: self._is_holder,
        )
        self._session = session
        self._crew.enlist(job.id, session)
        await asyncio.to_thread(self._note_start)
        session.start()
        if self._crew.is_closing.is_set():  # the signal came before there was a session to hear it
            session.signal(signal.SIGTERM)
        try:
            while True:
                is_trial = job.phase == "trial"
                end = await session.work(trial_only=is_trial)
                if end.trip is not None:
                    await asyncio.to_thread(self._pause, end.trip)
                if end.kind is not EndKind.DONE:
                    break
                if self._is_holder and is_trial and await asyncio.to_thread(self._is_tried):
                    await asyncio.to_thread(self._judge_trial)
                elif self._is_holder and not is_trial:
                    await asyncio.to_thread(self._close_out, job)
                job = await asyncio.to_thread(self._read)
                if job.state is not JobState.IN_PROGRESS or self._crew.is_closing.is_set():
                    break
                await asyncio.sleep(LOOK_S)  # the holder has not got there yet
        finally:
            await session.finish()
            self._crew.enlist(job.id, None)
        return end.signal is None

    def _read(self) -> Job:
        with self._ledger.read() as connection:
            return job_moves.read_job(connection, self._job.id)

    def _note_start(self) -> None:
        with self._ledger.write() as connection:
            job_moves.start(connection, self._job.id, now=time.time())

    def _pause(self, trip: Trip) -> None:
        with self._ledger.write() as connection:
            job_moves.move_job(
                connection, self._job.id, "pause", now=time.time(), reason=trip.reason, message=trip.message
            )

    # -- chores -------------------------------------------------------------------------------------------------------

    async def _keep_trying_to_hold(self) -> None:
        said: str | None = None
        while True:
            try:
                self._is_holder = await asyncio.to_thread(self._try_to_hold)
            except LedgerCopied as copied:  # whoever holds the job here: no worker of this copy may go on
                if self._session is not None:
                    self._session.trip(Trip(copied.kind, copied.message, copied.exit_code))
            except LedgerFault as error:  # it is asked again, and again
                if error.message != said:
                    self._crew.voice.say(f"{self._job.task_id}: {error.message}")
                said = error.message
            except Exception as error:
                self._is_holder = False
                self._crew.voice.say(f"{self._job.task_id}: unexpected {type(error).__name__}: {error}")
            await asyncio.sleep(min(0.5, self._crew.gear.dead_after_s / 8))

    def _try_to_hold(self) -> bool:
        job = self._read()
        has_begun = job.holder == self._worker.id and job.epoch_token == self._worker.incarnation
        is_holder = try_to_hold(self._ledger, job, self._worker, self._crew.observer)
        if is_holder and not has_begun:
            is_holder = begin(self._ledger, job, self._worker)
        if is_holder and not has_begun:
            self._held_since = time.monotonic()
            follow_policy(self._ledger, job)
        return is_holder

    def _let_go(self) -> None:
        active_s = time.monotonic() - self._held_since
        let_go(self._ledger, self._job, self._worker, active_s=active_s)

    def _is_tried(self) -> bool:
        with self._ledger.read() as connection:
            return is_over(connection, self._job.id, trial_only=True)

    def _judge_trial(self) -> None:
        """Open the full run, or pause the job: by the gate, or since whoever submitted it wants to decide."""
        job = self._read()
        report = report_trial(self._ledger, job, price=self._crew.gear.rules_of(job).price)
        verdict = judge_trial(job, report, rests_after=job.spec.get("after_trial") == "pause")
        now, holder = time.time(), self._worker.id
        with self._ledger.write() as connection:
            if not job_moves.set_phase(
                connection, job.id, phase=verdict.phase, verdict=verdict.word, now=now, holder=holder
            ):
                return  # another worker does the chores now
            if trip := verdict.trip:
                job_moves.move_job(connection, job.id, "pause", now=now, reason=trip.reason, message=trip.message)

    def _close_out(self, job: Job) -> None:
        """Bring a job to its end where nothing of it is left to do, and write its outputs where this host has them."""
        if self._is_holder:
            finalize(self._ledger, job, holder=self._worker.id, is_written=_has_place(job))


def _has_place(job: Job) -> bool:
    """Say whether the folder of a job's outputs is on this host; where it is not, who follows the job writes them."""
    return output_paths(job)[0].parent.is_dir()
