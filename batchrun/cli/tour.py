"""The demo's tour: a job against a mock endpoint with faults, killed in the middle, resumed, judged and made whole."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from batchrun.cli.context import Context
from batchrun.cli.say import columns_of, fold
from batchrun.cli.stage import LOG, EndpointLog, Stage, batch_line
from batchrun.errors import BatchrunError

if TYPE_CHECKING:
    from batchrun.cli.proof import Check

STEPS = 5
CONCURRENCY = 8
KILL_AT_SHARE = 0.45  # of the items, counted by the endpoint
POLL_S = 0.01
STALL_S = 60.0  # without a new request the tour is stuck
INDENT = "     "
PROMPT = "Sort this support ticket: the parcel has been 'out for delivery' since Tuesday."
# Seeded: which request goes wrong, and how, depends on its bytes and on nothing else.
ENDPOINT: dict[str, Any] = {
    "seed": 13,
    "latency_ms": 100.0,
    "latency_sigma": 0.3,
    "error_rate": 0.02,
    "rate_limit_rate": 0.01,
    "reset_rate": 0.01,
    "retry_after_s": 0.5,
    "faults_per_item": 1,
}


class TourFault(BatchrunError):
    """The tour could not go on; its folder is kept. This says nothing about the promise."""

    kind = "demo"

    def __init__(self, message: str) -> None:
        super().__init__(message, hint="the lines above say what went wrong; batchrun demo tries it once more")


@dataclass
class Tour:
    """The five steps, in one folder, against one mock endpoint."""

    context: Context
    folder: Path
    items: int
    facts: dict[str, Any] = field(default_factory=dict)

    @property
    def ids(self) -> list[str]:
        return [f"ticket-{number:05d}" for number in range(1, self.items + 1)]

    def run(self) -> "list[Check]":
        """Take the tour and return everything that was checked."""
        from batchrun.mock.config import MockConfig
        from batchrun.mock.process import MockProcess

        self.say("batchrun demo: nothing leaves this machine, and nothing costs money")
        with MockProcess(MockConfig(log_path=str(self.folder / LOG), **ENDPOINT)) as mock:
            stage = Stage(self.folder, mock.base_url)
            self._prepare(stage)
            self._show_endpoint(stage)
            self._kill_in_the_middle(stage)
            self._resume(stage)
            doubts = self._list_doubts(stage)
            return self._prove(stage, doubts)

    # -- the steps --------------------------------------------------------------------------------------------------

    def _prepare(self, stage: Stage) -> None:
        spec = {"task_id": "demo", "model": "mock", "max_tokens": 256, "concurrency": CONCURRENCY, "retry_times": 3}
        stage.write_job(spec, [batch_line(item, PROMPT) for item in self.ids])

    def _show_endpoint(self, stage: Stage) -> None:
        self.step(1, "a mock endpoint, and a job for it")
        rates = [f"{100 * ENDPOINT[name]:g} % {what}" for name, what in _FAULTS.items()]
        self.tell(f"endpoint  {stage.base_url}")
        self.tell("          its own log says which requests a provider would bill")
        self.tell(f"faults    {', '.join(rates)}")
        self.tell(f"job       {self.items:,} prompts, {CONCURRENCY} at once: the seven keys of jobs/job.json")
        self.command(f"cd {self.folder}")
        self.command(f"export OPENAI_BASE_URL={stage.base_url}")

    def _kill_in_the_middle(self, stage: Stage) -> None:
        self.step(2, "submit it, and kill it with SIGKILL in the middle")
        self.command("batchrun submit jobs/job.json")
        log = EndpointLog(self.folder / LOG)
        with (self.folder / "submit.out").open("w") as said:
            child = stage.start(("submit", "jobs/job.json"), out=said)
            try:
                self._await_middle(child, log, Path(said.name))
                in_flight = log.in_flight
            finally:
                child.kill()
                child.wait()
                self.progress(None)
        log.look()
        self.facts |= {"killed_after_requests": log.arrived, "killed_in_flight": in_flight}
        self.command(f"kill -9 {child.pid}")
        self.tell(f"{log.arrived} requests had reached the endpoint by then, {in_flight} were in flight.")

    def _await_middle(self, child: "subprocess.Popen[str]", log: EndpointLog, said: Path) -> None:
        """Wait until the endpoint has seen enough and is busy; show meanwhile what the child says."""
        told, heard = 0, time.monotonic()
        while log.arrived < KILL_AT_SHARE * self.items or log.in_flight < CONCURRENCY // 2:
            for line in said.read_text().split("\n")[told:-1]:
                told += 1
                self.progress(None)
                self.quote(line)
            if log.look():
                heard = time.monotonic()
                self.progress(log)
            if child.poll() is not None:
                why = [line for line in said.read_text().split("\n") if line.startswith("error: ")]
                raise TourFault(f"submit ended before it could be killed (exit {child.returncode}). {''.join(why)}")
            if time.monotonic() - heard > STALL_S:
                raise TourFault(f"submit sent nothing for {STALL_S:.0f} s")
            time.sleep(POLL_S)

    def _resume(self, stage: Stage) -> None:
        self.step(3, "resume it")
        self.call(stage, "resume", "demo", expected=(0, 6))

    def _list_doubts(self, stage: Stage) -> list[str]:
        self.step(4, "look at what nobody can know")
        self.call(stage, "reconcile", "demo")
        errors = stage.lines("batch_output.errors.jsonl")
        doubts = [line["custom_id"] for line in errors if line["batchrun"]["state"] == "in_doubt"]
        self.facts["in_doubt"] = len(doubts)
        self.tell("batchrun never sends these again by itself: each may be billed already.")
        return doubts

    def _prove(self, stage: Stage, doubts: list[str]) -> "list[Check]":
        self.step(5, "the proof, from the endpoint's own log")
        checks = self.judge(stage)
        if doubts and all(check.holds for check in checks):
            self.tell("You decide about doubts. Here: send them again, a second bill is all right.")
            self.call(stage, "reconcile", "demo", "--retry")
            checks += self.judge(stage, consented=doubts)
        return checks

    def judge(self, stage: Stage, *, consented: Sequence[str] = ()) -> "list[Check]":
        """Hold the promise against the log as it is now, and say how each claim stands."""
        from batchrun.cli.proof import Check, count_bills, prove

        status = json.loads(self.quietly(stage, "status", "demo", "--json"))
        bills = count_bills((self.folder / LOG).read_text().splitlines())
        checks = prove(
            bills,
            status=status,
            ids=self.ids,
            output=[line["custom_id"] for line in stage.lines("batch_output.jsonl")],
            errors=[line["custom_id"] for line in stage.lines("batch_output.errors.jsonl")],
            consented=consented,
        )
        if consented:
            done = status["counts"]["completed"]
            seen = f"{done:,} of {self.items:,}, {sum(count > 1 for count in bills.by_item.values())} billed twice"
            checks.append(Check("whole", "every item is answered", seen, done == self.items))
        self.facts["after_retry" if consented else "under_hold"] = {
            "requests": bills.requests,
            "billed": bills.total,
            "counts": status["counts"],
            "billing": status["billing"],
            "checks": [asdict(check) for check in checks],
        }
        for check in checks:
            self.tell(f"{'ok  ' if check.holds else 'FAIL'}  {check.claim}")
            self.tell(f"      {check.seen}")
        return checks

    # -- running batchrun -------------------------------------------------------------------------------------------

    def call(self, stage: Stage, *arguments: str, expected: Sequence[int] = (0,)) -> None:
        """Run one `batchrun` to its end and show what it says."""
        self.command(f"batchrun {' '.join(arguments)}")
        child = stage.start(arguments, out=subprocess.PIPE)
        said = []
        try:
            assert child.stdout is not None
            for line in child.stdout:
                said.append(line)
                self.quote(line.rstrip())
            child.wait()
        finally:
            child.kill()
            child.wait()
        if child.returncode not in expected:
            last = said[-1].strip() if said else "it said nothing"
            raise TourFault(f"batchrun {' '.join(arguments)} ended with exit {child.returncode}: {last}")

    def quietly(self, stage: Stage, *arguments: str) -> str:
        """Run one `batchrun` to its end and return what it printed."""
        child = stage.start(arguments, out=subprocess.PIPE, err=subprocess.DEVNULL)
        printed, _ = child.communicate()
        if child.returncode != 0:
            raise TourFault(f"batchrun {' '.join(arguments)} ended with exit {child.returncode}")
        return printed

    # -- saying -----------------------------------------------------------------------------------------------------

    def say(self, text: str) -> None:
        if not (self.context.json or self.context.quiet):
            click.echo(fold(text, columns_of(sys.stdout)))

    def step(self, number: int, title: str) -> None:
        self.say(f"\n{number}/{STEPS}  {title}")

    def tell(self, text: str, *, mark: str = INDENT) -> None:
        columns = columns_of(sys.stdout)
        for line in fold(text, None if columns is None else columns - len(mark)).split("\n"):
            self.say(mark + line)

    def quote(self, text: str) -> None:
        self.tell(text, mark=f"{INDENT}| ")

    def command(self, text: str) -> None:
        self.say(f"{INDENT}$ {text}")

    def progress(self, log: EndpointLog | None) -> None:
        """Show on a terminal how far the endpoint has come; None takes the line away."""
        if self.context.json or self.context.quiet or not sys.stderr.isatty() or os.environ.get("CI"):
            return
        text = "" if log is None else f"{INDENT}{log.arrived:,} of {self.items:,} requests have reached the endpoint"
        sys.stderr.write(f"\r\x1b[K{text}")
        sys.stderr.flush()


_FAULTS = {
    "rate_limit_rate": "429",
    "error_rate": "500",
    "reset_rate": "resets after the work was done and billed",
}
