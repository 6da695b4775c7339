"""Playing one round of `batchrun chaos`: processes at one job, blows as they were drawn, and the judgement."""

import os
import signal
import subprocess
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from batchrun.cli.ordeal import Ordeal, Strike
from batchrun.cli.ordeal_verdict import TASK, Report, judge
from batchrun.cli.stage import LOG, EndpointLog, Stage, batch_line
from batchrun.errors import JobNotFound

if TYPE_CHECKING:
    from batchrun.ledger.ledger import Ledger

PROMPT = "Name three rivers."
POLL_S = 0.02
SAMPLE_S = 0.1  # between two counts of the running job's items
STALL_S = 90.0  # a job that moves nothing for so long is stuck
STARTS = 40  # of processes that ended by themselves and left the job unfinished
OVER = (0, 3, 6)  # the job has ended
GOES_ON = (5, 130, 143, -signal.SIGKILL, -signal.SIGTERM)  # stopped by a guard or by us
# What a user waits for seconds, these wait for moments.
QUICK = {
    "BATCHRUN_FIRST_WAIT_S": "0.05",
    "BATCHRUN_LONGEST_WAIT_S": "0.5",
    "BATCHRUN_IDLE_CLAIM_S": "0.2",
    "BATCHRUN_PROBE_S": "0.1",
    "BATCHRUN_REFUSED_S": "0.5",
}
ENDPOINT: dict[str, Any] = {"latency_ms": 60.0, "latency_sigma": 0.5, "retry_after_s": 0.1, "faults_per_item": 1}
SUBMIT = ("submit", "jobs/job.json", "-y", "--no-progress")
RESUME = ("resume", TASK, "-y", "--no-progress")
RECONCILE = ("reconcile", TASK, "--retry", "-y", "--no-progress")


class Broken(Exception):
    """The round cannot go on: the job is stuck, or a process said what none may say."""


@dataclass
class _Actor:
    """One `batchrun` process."""

    arguments: tuple[str, ...]
    process: "subprocess.Popen[str]"
    said: Path
    woken_at: float | None = None  # when it is, if it was stopped


class Play:
    """One round, in an empty folder, against one mock endpoint."""

    def __init__(self, ordeal: Ordeal, folder: Path, tell: Callable[[str], None]) -> None:
        """Make a round.

        Args:
            tell: is told how far it has come, again and again.
        """
        self._ordeal, self._folder, self._tell = ordeal, folder, tell
        self.report = Report(ordeal.number, str(ordeal))
        self._company: list[_Actor] = []
        self._started = self._ended_early = 0
        self._started_at = self._sampled_at = 0.0
        self._is_registered = False
        self._consented: Counter[str] = Counter()
        self._ledger: Ledger | None = None

    def run(self) -> Report:
        """Play it to its end, and judge."""
        from batchrun.mock.config import MockConfig
        from batchrun.mock.process import MockProcess

        began, ordeal = time.monotonic(), self._ordeal
        settings = {"seed": ordeal.endpoint_seed, **ENDPOINT, **ordeal.faults}
        with MockProcess(MockConfig(log_path=str(self._folder / LOG), **settings)) as mock:
            self._stage = Stage(self._folder, mock.base_url, QUICK)
            self._log = EndpointLog(self._folder / LOG)
            self._write_job()
            try:
                self._perform(SUBMIT, ordeal.strikes)
                if ordeal.policy == "hold" and ordeal.consents and (doubts := self._doubts()):
                    self._consented.update(doubts)
                    self._perform(RECONCILE, ordeal.strikes_after)
                judge(self._stage, self._open_ledger(), ordeal, self.report, consented=self._consented)
            except Broken as broken:
                self.report.violations.append(str(broken))
            finally:
                self._end_all()
                if self._ledger is not None:
                    self._ledger.close()
        self.report.elapsed_s = round(time.monotonic() - began, 3)
        return self.report

    def _write_job(self) -> None:
        ordeal = self._ordeal
        spec = {
            "task_id": TASK,
            "model": "mock",
            "max_tokens": 64,
            "concurrency": ordeal.concurrency,
            "retry_times": 3,
            "on_unknown": ordeal.policy,
            "timeout_s": 2,
            "endpoint_down_limit_s": 20,  # should all of this be killed, its processes end by themselves
        }
        self._stage.write_job(spec, [batch_line(item, PROMPT) for item in ordeal.ids])

    # -- performing -------------------------------------------------------------------------------------------------

    def _perform(self, first: tuple[str, ...], strikes: Sequence[Strike]) -> None:
        """Let processes work on the job until it has ended, and let every blow fall whose moment comes."""
        left = deque(strikes)
        seen, moved_at = self._log.arrived, time.monotonic()
        command = first
        while True:
            while len(self._company) < self._ordeal.processes:
                self._start(command)
                command = RESUME if self._is_registered else SUBMIT
            if self._log.look():
                moved_at = time.monotonic()
            if left and self._is_due(left[0], seen):
                self._strike(left.popleft())
                seen, moved_at = self._log.arrived, time.monotonic()
            self._sample()
            if self._reap():
                break
            if time.monotonic() - moved_at > STALL_S:
                raise Broken(f"the job did not end: nothing moved for {STALL_S:.0f} s; {self._last_words()}")
            time.sleep(POLL_S)
        self._await_others()

    def _start(self, arguments: tuple[str, ...]) -> None:
        self._started += 1
        said = self._folder / f"process-{self._started}.out"
        with said.open("w") as out:
            self._company.append(_Actor(arguments, self._stage.start(arguments, out=out), said))
        self._started_at = time.monotonic()

    def _is_due(self, strike: Strike, seen: int) -> bool:
        if strike.after_requests is not None:
            return self._log.arrived >= seen + strike.after_requests
        assert strike.after_s is not None
        return time.monotonic() >= self._started_at + strike.after_s

    def _strike(self, strike: Strike) -> None:
        struck = self._company if strike.at_all else [self._company[int(strike.pick * len(self._company))]]
        for actor in struck:
            if strike.how == "stop":
                actor.process.send_signal(signal.SIGSTOP)
                actor.woken_at = time.monotonic() + strike.stopped_s
            else:
                actor.process.send_signal(signal.SIGKILL if strike.how == "kill" else signal.SIGTERM)

    def _reap(self) -> bool:
        """See who has ended, and wake who was stopped for long enough; True where the job is at its end."""
        is_over = False
        for actor in list(self._company):
            if actor.woken_at is not None and time.monotonic() >= actor.woken_at:
                actor.process.send_signal(signal.SIGCONT)
                actor.woken_at = None
            if (code := actor.process.poll()) is not None:
                self._company.remove(actor)
                is_over = self._take_leave(actor, code) or is_over
        return is_over

    def _take_leave(self, actor: _Actor, code: int) -> bool:
        """Note how a process ended; True where it says that the job has ended."""
        self.report.deaths += code == -signal.SIGKILL
        words = actor.said.read_text()
        if code not in (*OVER, *GOES_ON) or "Traceback" in words or "unexpected" in words:
            end = words.strip().splitlines()[-1:] or ["it said nothing"]
            raise Broken(f"`batchrun {' '.join(actor.arguments)}` ended with exit {code}: {end[0]}")
        if code in OVER:
            return True
        self._ended_early += code == 5
        if self._ended_early > STARTS:
            raise Broken(f"the job did not end in {STARTS} runs; {self._last_words()}")
        return False

    def _await_others(self) -> None:
        """Wait for those that are still there: the job has ended, and they see it."""
        deadline = time.monotonic() + STALL_S
        while self._company:
            if time.monotonic() > deadline:
                raise Broken(f"a process did not see the job's end; {self._last_words()}")
            self._reap()
            time.sleep(POLL_S)

    def _last_words(self) -> str:
        outs = sorted(self._folder.glob("process-*.out"), key=lambda path: path.stat().st_mtime)
        lines = outs[-1].read_text().strip().splitlines() if outs else []
        return lines[-1] if lines else "nobody said anything"

    def _end_all(self) -> None:
        for actor in self._company:
            with suppress(ProcessLookupError):
                os.killpg(actor.process.pid, signal.SIGKILL)
            actor.process.wait()

    # -- looking ----------------------------------------------------------------------------------------------------

    def _sample(self) -> None:
        """Count the job's items while it runs: they add up at every instant."""
        now = time.monotonic()
        if now - self._sampled_at < SAMPLE_S:
            return
        self._sampled_at = now
        self._tell(f"round {self._ordeal.number}: {self._ordeal}; {self._log.arrived} requests")
        if self._ledger is None and not (self._folder / ".batchrun" / "ledger.db").exists():
            return
        found, total = self._count_items()
        self._is_registered = self._is_registered or found is not None
        if found is not None and found != total:
            self.report.violations.append(f"{found} items of {total} while the job ran")

    def _count_items(self) -> tuple[int | None, int]:
        """Count the items in every state, and say how many the job has; None until it is registered."""
        from batchrun.core.states import JobState
        from batchrun.ledger.jobs import find_job
        from batchrun.ledger.reports import count_items

        try:
            with self._open_ledger().read() as connection:
                job = find_job(connection, TASK)
                if job.state is JobState.VALIDATING:
                    return None, 0
                return sum(count_items(connection, job.id).values()), job.total
        except JobNotFound:
            return None, 0

    def _open_ledger(self) -> "Ledger":
        """Open the round's ledger, once."""
        from batchrun.ledger.ledger import Ledger

        if self._ledger is None:
            home = self._folder / ".batchrun"
            self._ledger = Ledger(f"sqlite:///{home}/ledger.db", folder=home)
        return self._ledger

    def _doubts(self) -> list[str]:
        """Return what the user sees in doubt at a job's end."""
        errors = self._stage.lines("batch_output.errors.jsonl")
        return [line["custom_id"] for line in errors if line["batchrun"]["state"] == "in_doubt"]
