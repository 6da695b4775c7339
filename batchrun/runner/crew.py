"""A worker process: it joins every shared job of its ledger, hands hints on, sweeps, and leaves when it is told to."""

import asyncio
import dataclasses
import signal
import time
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from batchrun.core.states import JobState
from batchrun.errors import BatchrunError, LedgerFault
from batchrun.ledger import jobs as job_moves
from batchrun.ledger.jobs import Job
from batchrun.ledger.ledger import Ledger
from batchrun.ledger.liveness import Observer, Worker, beat, has_ended
from batchrun.runner.gear import Gear, Voice
from batchrun.runner.hold import sweep_all, working
from batchrun.runner.means import Queue, Take
from batchrun.runner.outage import ENDPOINT_DOWN
from batchrun.runner.post import Post
from batchrun.runner.shared import SharedSession
from batchrun.runner.signals import ENDING, listen
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
        leash: int | None = None,
    ) -> None:
        """Make a worker.

        Args:
            slots: requests in flight at once, divided among the jobs that it is at work on.
            heartbeat_file: touched as long as this worker's loop turns.
            leash: a pipe whose other end is held by the supervisor: when that is gone nobody looks after this worker.
        """
        self._heartbeat_file, self._leash = heartbeat_file, leash
        self.ledger, self.worker, self.gear, self.queue, self.voice = ledger, worker, gear, queue, voice
        self.slots = slots
        self.observer = Observer(ledger, dead_after_s=gear.dead_after_s)
        self.is_closing = asyncio.Event()
        self.exit_code = 0
        self._takes: dict[int, Take] = {}
        self._posts: dict[int, asyncio.Task[None]] = {}
        self._sessions: dict[int, SharedSession] = {}
        self._next_sweep = 0.0
        self._trouble: str | None = None

    async def run(self) -> int:
        """Work until a signal, and return the exit code."""
        self.queue.start(self._take)
        if self._leash is not None:
            asyncio.get_running_loop().add_reader(self._leash, self._be_orphaned, self._leash)
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

    def _be_orphaned(self, leash: int) -> None:
        """Drain: nobody would start this worker anew, and nobody's signal would reach it."""
        asyncio.get_running_loop().remove_reader(leash)
        self.voice.say("the supervisor of this worker is gone: it finishes what is in flight, and leaves")
        self.signal(signal.SIGTERM)

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
            if job.id not in self._posts and not (job.state is JobState.PAUSED and job.reason != ENDPOINT_DOWN):
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

    # -- hints --------------------------------------------------------------------------------------------------------

    def _take(self, job_id: int, item_ids: list[int]) -> list[int]:
        """Hand a hint to its job's session; from the queue's thread. One for a job unknown here is dropped."""
        take = self._takes.get(job_id)
        return [] if take is None else take(job_id, item_ids)

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

    def __init__(self, takes: dict[int, Take], job_id: int) -> None:
        self._takes, self._job_id = takes, job_id

    def start(self, take: Take) -> None:
        self._takes[self._job_id] = take

    def send(self, job_id: int, item_ids: list[int]) -> None:
        """Do nothing: the window sends, for all workers."""

    def stop(self) -> None:
        self._takes.pop(self._job_id, None)


def work(
    ledger: Ledger,
    gear: Gear,
    queue: BrokerQueue,
    voice: Voice,
    *,
    slots: int,
    heartbeat_file: Path | None,
    leash: int | None = None,
) -> int:
    """Be a worker of this ledger until a signal, and return the exit code."""
    with working(ledger, gear, concurrency=slots) as worker:
        crew = Crew(ledger, worker, gear, queue, voice, slots=slots, heartbeat_file=heartbeat_file, leash=leash)
        return asyncio.run(_run(crew))


async def _run(crew: Crew) -> int:
    listen(crew.signal, numbers=(*ENDING, signal.SIGQUIT))
    crew.voice.say(f"worker {crew.worker.incarnation} is ready: {crew.slots} slots")
    try:
        return await crew.run()
    finally:
        crew.voice.say(f"worker {crew.worker.incarnation} leaves")
