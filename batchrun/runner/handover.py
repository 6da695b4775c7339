"""Handing a job over to the workers of its ledger, and following them. Who hands over may leave at any time."""

import asyncio
import json
import time
from collections.abc import Callable

from batchrun.core.states import FINAL_JOB_STATES, JobState
from batchrun.errors import JobBusy, LedgerFault
from batchrun.ledger import jobs as job_moves
from batchrun.ledger.backlog import is_over
from batchrun.ledger.jobs import Job
from batchrun.ledger.leases import total_load
from batchrun.ledger.ledger import Ledger
from batchrun.ledger.liveness import Observer, Worker
from batchrun.runner.ends import TRIAL_ONLY, End, EndKind
from batchrun.runner.epoch import let_go
from batchrun.runner.export import Outputs, output_paths
from batchrun.runner.finalize import finalize
from batchrun.runner.gear import Arrival, Gear, Scope, Voice
from batchrun.runner.hold import sweep_all, try_to_hold
from batchrun.runner.onlooker import LONELY_S, Onlooker
from batchrun.runner.outage import ENDPOINT_DOWN
from batchrun.runner.signals import borrowed_signals, listen
from batchrun.runner.standing import read_standing
from batchrun.runner.sweep import follow_policy
from batchrun.runner.verdict import TrialNews

FOLLOW_S = 0.5


def hand_over(
    ledger: Ledger,
    task_id: str,
    *,
    gear: Gear,
    voice: Voice,
    worker: Worker,
    scope: Scope = Scope.WHOLE,
    wait: bool = True,
    is_followed: bool = True,
    prepare: Callable[[Job], None] | None = None,
) -> Arrival:
    """Open a job to all workers of this ledger, and follow it to its end; a signal only ends the following.

    Args:
        wait: follow a job that another process performs alone.
        is_followed: stay until the job rests.
        prepare: what the command decides about the job, before any worker may go on with it.

    Raises:
        JobBusy: another living process performs the job alone, and `wait` is false.
    """
    with borrowed_signals():
        return asyncio.run(_Handover(ledger, task_id, gear, voice, worker, scope).run(wait, is_followed, prepare))


class _Handover:
    def __init__(self, ledger: Ledger, task_id: str, gear: Gear, voice: Voice, worker: Worker, scope: Scope) -> None:
        self._ledger, self._task_id, self._gear, self._voice, self._worker = ledger, task_id, gear, voice, worker
        self._scope = scope
        self._observer = Observer(ledger, dead_after_s=gear.dead_after_s)
        self._onlooker = Onlooker(ledger, task_id)
        self._signal: int | None = None
        self._news = TrialNews(ledger, lambda job: gear.rules_of(job).price, voice.show_trial)
        self._outputs: Outputs | None = None
        self._lonely_since: float | None = None

    async def run(self, wait: bool, is_followed: bool, prepare: Callable[[Job], None] | None) -> Arrival:
        listen(self._take_signal)
        await asyncio.to_thread(self._open, wait, prepare)
        end = await self._follow() if is_followed else End(EndKind.LEFT)
        return Arrival(read_standing(self._ledger, self._task_id), self._outputs, self._news.report, end)

    def _take_signal(self, number: int) -> None:
        self._signal = number

    # -- handing over -------------------------------------------------------------------------------------------------

    def _open(self, wait: bool, prepare: Callable[[Job], None] | None) -> None:
        """Decide about the job while nobody else does, and share it."""
        while not try_to_hold(self._ledger, job := self._job(), self._worker, self._observer):
            self._news.look(job)
            if job.is_shared and job.state is JobState.IN_PROGRESS:
                if prepare is not None:  # what it changes of a job under way are settings, which workers follow
                    prepare(job)
                return
            if not job.is_shared and not wait:
                who = read_standing(self._ledger, self._task_id).performer
                raise JobBusy(
                    f"job {self._task_id!r} is performed by {who}", hint=f"batchrun status {self._task_id} -w"
                )
            if self._signal is not None:
                return
            time.sleep(FOLLOW_S / 5)
        try:
            sweep_all(self._ledger, self._gear, self._worker, self._observer)
            if prepare is not None:
                prepare(self._job())
            follow_policy(self._ledger, self._job())
            job = self._job()
            self._news.look(job)
            after = {"after_trial": "pause" if self._is_asked_after_trial(job) else "go_on"}
            with self._ledger.write() as connection:
                job_moves.keep_spec(connection, job.id, spec=json.dumps({**job.spec, **after}))
                job_moves.share(connection, job.id, is_shared=True)
        finally:
            let_go(self._ledger, job, self._worker, active_s=0.0)

    def _is_asked_after_trial(self, job: Job) -> bool:
        return job.phase == "trial" and (self._scope is Scope.TRIAL or self._voice.asks(job))

    # -- following ----------------------------------------------------------------------------------------------------

    async def _follow(self) -> End | None:
        self._voice.say(f"the workers of this ledger have {self._task_id}; Ctrl-C leaves it to them")
        is_away = False
        while self._signal is None:
            try:
                if await self._look():
                    return None
                is_away = False
            except LedgerFault as error:  # the workers wait for it too, and so does whoever follows them
                if not is_away:
                    self._voice.say(f"waiting, and going on by itself: {error.message}")
                is_away = True
            await asyncio.sleep(min(FOLLOW_S, self._gear.dead_after_s / 8))
        self._voice.say(f"{self._task_id} goes on without this command: batchrun status {self._task_id} -w follows it")
        return End(EndKind.LEFT, signal=self._signal)

    async def _look(self) -> bool:
        """Look at the job once, show where it is, and help where nobody else does; True when it rests."""
        job = await asyncio.to_thread(self._job)
        await asyncio.to_thread(self._news.look, job)
        if job.state in FINAL_JOB_STATES:
            await asyncio.to_thread(self._write_outputs, job)
            return True
        if job.state is JobState.PAUSED and job.reason != ENDPOINT_DOWN and not await self._goes_on(job):
            return True
        if (progress := await asyncio.to_thread(self._onlooker.look)) is not None:
            self._voice.watch(progress)
        await asyncio.to_thread(self._help_out, job)
        return False

    async def _goes_on(self, job: Job) -> bool:
        """Show what a trial came to, and ask whether the full run is to follow, where that is this command's."""
        if job.reason not in (TRIAL_ONLY, "trial_gate"):
            return False
        report = await asyncio.to_thread(self._news.show, job)
        if job.reason != TRIAL_ONLY or self._scope is Scope.TRIAL:
            return False
        if not await asyncio.to_thread(self._voice.go_on, report):
            return False
        with self._ledger.write() as connection:
            return job_moves.move_job(connection, job.id, "resume", now=time.time(), only_reason=TRIAL_ONLY)

    def _help_out(self, job: Job) -> None:
        """Sweep up after the dead, say when nobody works, and end a job of which nothing is left to do."""
        sweep_all(self._ledger, self._gear, self._worker, self._observer)
        with self._ledger.read() as connection:
            has_workers = total_load(connection, job.id).wants > 0
            is_left = not is_over(connection, job.id, trial_only=False)
        if has_workers:
            self._lonely_since = None
            return
        if not is_left and try_to_hold(self._ledger, job, self._worker, self._observer):
            try:
                self._outputs = finalize(self._ledger, job, holder=self._worker.id)
            finally:
                let_go(self._ledger, job, self._worker, active_s=0.0)
            return
        now = time.monotonic()
        if self._lonely_since is None:
            self._lonely_since = now
        elif now - self._lonely_since > LONELY_S:
            self._lonely_since = float("inf")
            self._voice.say("no worker is at work on this job; start one with this broker and ledger: batchrun worker")

    def _write_outputs(self, job: Job) -> None:
        """Write the outputs where no worker could: on the host of whoever follows."""
        if output_paths(job)[0].parent.is_dir():
            self._outputs = finalize(self._ledger, job, holder=self._worker.id)

    def _job(self) -> Job:
        with self._ledger.read() as connection:
            return job_moves.find_job(connection, self._task_id)
