"""A worker process: it joins every shared job of its ledger, and does the chores of those that it holds.

The chores of a job are done by one worker at a time, its holder: hints for the broker, the judgement of the trial, the
outputs. When the holder dies another one takes them over.
"""

import asyncio
import dataclasses
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from batchrun.core.breaker import Trip
from batchrun.core.states import JobState
from batchrun.errors import BatchrunError, LedgerCopied, LedgerFault
from batchrun.ledger import jobs as job_moves
from batchrun.ledger.jobs import Job
from batchrun.ledger.ledger import Ledger
from batchrun.ledger.liveness import Observer, Worker, beat, beat_of, has_ended
from batchrun.ledger.reports import is_over
from batchrun.runner.ends import TRIAL_ONLY, EndKind
from batchrun.runner.epoch import begin, let_go, refuse_copy
from batchrun.runner.export import output_paths, write_outputs
from batchrun.runner.finalize import finalize
from batchrun.runner.gear import Gear, Voice
from batchrun.runner.hold import sweep_all, try_to_hold, working
from batchrun.runner.means import Queue
from batchrun.runner.shared import SharedSession
from batchrun.runner.signals import ENDING, listen
from batchrun.runner.sweep import follow_policy
from batchrun.runner.trial import gate, report_trial
from batchrun.runner.window import Broker

AGAIN_S = 2.0  # after a job went wrong here
LOOK_S = 0.25  # between two looks for jobs
BURIED = 75  # the exit code of a worker that others have declared dead: its supervisor starts a new one


class BrokerQueue(Queue, Broker, Protocol):
    """The queue of this process, and the broker behind it."""

    @property
    def trouble(self) -> str | None:
        """Why the broker could not be used the last time; None where it could."""
        ...


class Crew:
    """This process's part in all shared jobs. To be used on one event loop."""

    def __init__(
        self,
        ledger: Ledger,
        worker: Worker,
        gear: Gear,
        queue: BrokerQueue,
        voice: Voice,
        *,
        slots: int,
        heartbeat_file: Path | None = None,
    ) -> None:
        """Make a worker.

        Args:
            slots: requests in flight at once, divided among the jobs that it is at work on.
            heartbeat_file: touched as long as this worker's loop turns.
        """
        self._heartbeat_file = heartbeat_file
        self.ledger, self.worker, self.gear, self.queue, self.voice = ledger, worker, gear, queue, voice
        self.slots = slots
        self.observer = Observer(ledger, dead_after_s=gear.dead_after_s)
        self.is_closing = asyncio.Event()
        self.exit_code = 0
        self._takes: dict[int, Callable[[int, int], None]] = {}
        self._posts: dict[int, asyncio.Task[None]] = {}
        self._sessions: dict[int, SharedSession] = {}
        self._next_sweep = 0.0
        self._trouble: str | None = None

    async def run(self) -> int:
        """Work until a signal, and return the exit code."""
        self.queue.start(self._take)
        try:
            while not self.is_closing.is_set():
                with suppress(LedgerFault):  # it is asked again, and again
                    await self._look()
                self._give_sign()
                with suppress(TimeoutError):
                    await asyncio.wait_for(self.is_closing.wait(), LOOK_S)
        except Exception as error:  # a fault of ours: the supervisor starts a new worker, and somebody reads this
            self.voice.say(f"unexpected {type(error).__name__}: {error}")
            self.signal(signal.SIGTERM)
            self.exit_code = 1
        finally:
            while self._posts:
                await asyncio.wait(self._posts.values(), timeout=LOOK_S)
                self._give_sign()
            await asyncio.to_thread(self.queue.stop)
        return self.exit_code

    def _give_sign(self) -> None:
        """Touch the heartbeat file: this loop turns. Say once that the broker is away, and once that it is back."""
        if self._heartbeat_file is not None:
            with suppress(OSError):
                self._heartbeat_file.touch()
        trouble = self.queue.trouble
        if (trouble is None) is not (self._trouble is None):
            self.voice.say(f"no broker, going on from the ledger: {trouble}" if trouble else "the broker is back")
        self._trouble = trouble

    def signal(self, number: int) -> None:
        """Take a signal: the first drains, the second gives up what is in flight."""
        self.is_closing.set()
        for session in list(self._sessions.values()):
            session.signal(number)

    @property
    def in_flight(self) -> int:
        return sum(session.in_flight for session in self._sessions.values())

    # -- jobs ---------------------------------------------------------------------------------------------------------

    async def _look(self) -> None:
        now = time.monotonic()
        jobs, is_buried = await asyncio.to_thread(self._read)
        if is_buried:
            self.voice.say("this worker was declared dead by another one: it starts anew")
            self.signal(0)
            self.exit_code = BURIED
            return
        for job in jobs:
            if job.id not in self._posts and not (job.state is JobState.PAUSED and job.reason != "endpoint_down"):
                self._posts[job.id] = asyncio.create_task(self._attend(job))
        if now >= self._next_sweep:
            self._next_sweep = now + min(1.0, self.gear.dead_after_s / 8)
            await asyncio.to_thread(self._sweep)

    def _read(self) -> tuple[list[Job], bool]:
        with self.ledger.read() as connection:
            return job_moves.shared_jobs(connection), has_ended(connection, self.worker.id)

    def _sweep(self) -> None:
        with self.ledger.write() as connection:
            beat(connection, self.worker.id, in_flight=self.in_flight, items_per_s=None, tokens_per_s=None)
        sweep_all(self.ledger, self.gear, self.worker, self.observer)

    async def _attend(self, job: Job) -> None:
        try:
            await Post(self, job).run()
        except BatchrunError as error:
            self.voice.say(f"{job.task_id}: {error.message}")
            await self._rest()
        except Exception as error:
            self.voice.say(f"{job.task_id}: unexpected {type(error).__name__}: {error}")
            await self._rest()
        finally:
            self._posts.pop(job.id, None)

    async def _rest(self) -> None:
        """Wait before a job that went wrong is looked at again, but not at the end."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self.is_closing.wait(), AGAIN_S)

    def slots_of_one(self) -> int:
        """Return how many of its slots this worker can give to each job that it is at work on."""
        return max(1, self.slots // max(1, len(self._sessions)))

    def slots_of_all(self) -> int:
        """Return the concurrency, over all workers, of the jobs that this worker is at work on."""
        return sum(session.concurrency for session in self._sessions.values())

    # -- hints --------------------------------------------------------------------------------------------------------

    def _take(self, job_id: int, item_id: int) -> None:
        """Hand a hint to its job's session; from the queue's thread. One for a job unknown here is dropped."""
        take = self._takes.get(job_id)
        if take is not None:
            take(job_id, item_id)

    def gear_of(self, job_id: int) -> Gear:
        """Return the gear with a queue that brings one job's hints."""
        return dataclasses.replace(self.gear, queue_of=lambda _incarnation: _Door(self._takes, job_id))

    def enlist(self, job_id: int, session: SharedSession | None) -> None:
        """Remember which session signals are for."""
        if session is None:
            self._sessions.pop(job_id, None)
        else:
            self._sessions[job_id] = session


class _Door:
    """One job's part of the process's queue."""

    def __init__(self, takes: dict[int, Callable[[int, int], None]], job_id: int) -> None:
        self._takes, self._job_id = takes, job_id

    def start(self, take: Callable[[int, int], None]) -> None:
        self._takes[self._job_id] = take

    def send(self, job_id: int, item_ids: list[int]) -> None:
        """Do nothing: the window sends, for all workers."""

    def stop(self) -> None:
        self._takes.pop(self._job_id, None)


class Post:
    """This worker's part in one job, from joining it until the job rests or the worker leaves."""

    def __init__(self, crew: Crew, job: Job) -> None:
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
                if job.state is JobState.IN_PROGRESS or job.reason == "endpoint_down":
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
            all_slots=self._crew.slots_of_all,
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
        share = float(job.spec["trial"]["max_failed_share"])
        why = gate(report, max_failed_share=share, max_cost_pusd=job.max_cost_pusd)
        now = time.time()
        with self._ledger.write() as connection:
            phase, verdict = ("trial", "failed") if why else ("full", "passed")
            holder = self._worker.id
            if not job_moves.set_phase(connection, job.id, phase=phase, verdict=verdict, now=now, holder=holder):
                return  # another worker does the chores now
            if why:
                job_moves.move_job(connection, job.id, "pause", now=now, reason="trial_gate", message=why)
            elif job.spec.get("after_trial") == "pause":
                message = "the trial passed; submit or resume starts the full run"
                job_moves.move_job(connection, job.id, "pause", now=now, reason=TRIAL_ONLY, message=message)

    def _close_out(self, job: Job) -> None:
        """Bring a job to its end where nothing of it is left to do, and write its outputs where this host has them."""
        if self._is_holder:
            finalize(self._ledger, job, holder=self._worker.id, is_written=_has_place(job))


def _has_place(job: Job) -> bool:
    """Say whether the folder of a job's outputs is on this host; where it is not, who follows the job writes them."""
    return output_paths(job)[0].parent.is_dir()


def work(
    ledger: Ledger,
    gear: Gear,
    queue: BrokerQueue,
    voice: Voice,
    *,
    slots: int,
    heartbeat_file: Path | None,
) -> int:
    """Be a worker of this ledger until a signal, and return the exit code."""
    with working(ledger, gear, concurrency=slots) as worker:
        crew = Crew(ledger, worker, gear, queue, voice, slots=slots, heartbeat_file=heartbeat_file)
        return asyncio.run(_run(crew))


async def _run(crew: Crew) -> int:
    listen(crew.signal, numbers=(*ENDING, signal.SIGQUIT))
    crew.voice.say(f"worker {crew.worker.incarnation} is ready: {crew.slots} slots")
    try:
        return await crew.run()
    finally:
        crew.voice.say(f"worker {crew.worker.incarnation} leaves")
