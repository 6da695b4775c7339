"""The demo's tour: a job against a mock endpoint with faults, killed in the middle, resumed, judged and made whole."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import click

import batchrun
from batchrun.cli.context import Context
from batchrun.cli.say import columns_of, fold
from batchrun.errors import BatchrunError

if TYPE_CHECKING:
    from batchrun.cli.proof import Check
    from batchrun.mock.process import MockProcess

STEPS = 5
CONCURRENCY = 8
KILL_AT_SHARE = 0.45  # of the items, counted by the endpoint
POLL_S = 0.01
STALL_S = 60.0  # without a new request the tour is stuck
INDENT = "     "
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
class EndpointLog:
    """The mock's request log while it grows."""

    path: Path
    arrived: int = 0
    ended: int = 0
    _offset: int = 0

    @property
    def in_flight(self) -> int:
        return self.arrived - self.ended

    def look(self) -> bool:
        """Read what is new; say whether a request has come."""
        before = self.arrived
        with self.path.open("rb") as file:
            file.seek(self._offset)
            fresh = file.read()
        whole = fresh[: fresh.rfind(b"\n") + 1]
        self._offset += len(whole)
        self.arrived += whole.count(b'"ev":"arrive"')
        self.ended += whole.count(b'"ev":"end"')
        return self.arrived > before


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

        self._prepare()
        self.say("batchrun demo: nothing leaves this machine, and nothing costs money")
        with MockProcess(MockConfig(log_path=str(self.folder / "requests.jsonl"), **ENDPOINT)) as mock:
            self._show_endpoint(mock)
            self._kill_in_the_middle(mock)
            self._resume(mock)
            doubts = self._list_doubts(mock)
            return self._prove(mock, doubts)

    # -- the steps --------------------------------------------------------------------------------------------------

    def _prepare(self) -> None:
        for name in ("jobs", "inputs", "outputs"):
            (self.folder / name).mkdir()
        (self.folder / "inputs" / "batch_input.jsonl").write_text("".join(map(_input_line, self.ids)))
        spec = {
            "task_id": "demo",
            "model": "mock",
            "input_file": "./inputs/batch_input.jsonl",
            "output_file": "./outputs/batch_output.jsonl",
            "max_tokens": 256,
            "concurrency": CONCURRENCY,
            "retry_times": 3,
        }
        (self.folder / "jobs" / "job.json").write_text(json.dumps(spec, indent=2) + "\n")

    def _show_endpoint(self, mock: "MockProcess") -> None:
        self.step(1, "a mock endpoint, and a job for it")
        rates = [f"{100 * ENDPOINT[name]:g} % {what}" for name, what in _FAULTS.items()]
        self.tell(f"endpoint  {mock.base_url}")
        self.tell("          its own log says which requests a provider would bill")
        self.tell(f"faults    {', '.join(rates)}")
        self.tell(f"job       {self.items:,} prompts, {CONCURRENCY} at once: the seven keys of jobs/job.json")
        self.command(f"cd {self.folder}")
        self.command(f"export OPENAI_BASE_URL={mock.base_url}")

    def _kill_in_the_middle(self, mock: "MockProcess") -> None:
        self.step(2, "submit it, and kill it with SIGKILL in the middle")
        self.command("batchrun submit jobs/job.json")
        log = EndpointLog(self.folder / "requests.jsonl")
        with (self.folder / "submit.out").open("w") as said:
            child = self._spawn(mock, ("submit", "jobs/job.json"), out=said)
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

    def _resume(self, mock: "MockProcess") -> None:
        self.step(3, "resume it")
        self.call(mock, "resume", "demo", expected=(0, 6))

    def _list_doubts(self, mock: "MockProcess") -> list[str]:
        self.step(4, "look at what nobody can know")
        self.call(mock, "reconcile", "demo")
        errors = self.lines("batch_output.errors.jsonl")
        doubts = [line["custom_id"] for line in errors if line["batchrun"]["state"] == "in_doubt"]
        self.facts["in_doubt"] = len(doubts)
        self.tell("batchrun never sends these again by itself: each may be billed already.")
        return doubts

    def _prove(self, mock: "MockProcess", doubts: list[str]) -> "list[Check]":
        self.step(5, "the proof, from the endpoint's own log")
        checks = self.judge(mock)
        if doubts and all(check.holds for check in checks):
            self.tell("You decide about doubts. Here: send them again, a second bill is all right.")
            self.call(mock, "reconcile", "demo", "--retry")
            checks += self.judge(mock, consented=doubts)
        return checks

    def judge(self, mock: "MockProcess", *, consented: Sequence[str] = ()) -> "list[Check]":
        """Hold the promise against the log as it is now, and say how each claim stands."""
        from batchrun.cli.proof import Check, count_bills, prove

        status = json.loads(self.quietly(mock, "status", "demo", "--json"))
        bills = count_bills((self.folder / "requests.jsonl").read_text().splitlines())
        checks = prove(
            bills,
            status=status,
            ids=self.ids,
            output=[line["custom_id"] for line in self.lines("batch_output.jsonl")],
            errors=[line["custom_id"] for line in self.lines("batch_output.errors.jsonl")],
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

    def call(self, mock: "MockProcess", *arguments: str, expected: Sequence[int] = (0,)) -> None:
        """Run one `batchrun` to its end and show what it says."""
        self.command(f"batchrun {' '.join(arguments)}")
        child = self._spawn(mock, arguments, out=subprocess.PIPE)
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

    def quietly(self, mock: "MockProcess", *arguments: str) -> str:
        """Run one `batchrun` to its end and return what it printed."""
        child = self._spawn(mock, arguments, out=subprocess.PIPE, err=subprocess.DEVNULL)
        printed, _ = child.communicate()
        if child.returncode != 0:
            raise TourFault(f"batchrun {' '.join(arguments)} ended with exit {child.returncode}")
        return printed

    def _spawn(
        self, mock: "MockProcess", arguments: Sequence[str], *, out: int | IO[str], err: int = subprocess.STDOUT
    ) -> "subprocess.Popen[str]":
        foreign = ("BATCHRUN_", "OPENAI_")
        env = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
        env["OPENAI_BASE_URL"] = mock.base_url
        env["PYTHONPATH"] = os.pathsep.join(filter(None, [_home(), os.environ.get("PYTHONPATH")]))
        return subprocess.Popen(
            [sys.executable, "-m", "batchrun", *arguments],
            cwd=self.folder,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            text=True,
            start_new_session=True,  # Ctrl-C ends the tour, which ends them
        )

    def lines(self, name: str) -> list[dict[str, Any]]:
        """Read one of the job's output files."""
        return [json.loads(line) for line in (self.folder / "outputs" / name).read_text().split("\n")[:-1]]

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


def _input_line(item: str) -> str:
    """Write one OpenAI Batch line; the id in [[ ]] is what the mock's log calls the item."""
    prompt = f"[[{item}]] Sort this support ticket: the parcel has been 'out for delivery' since Tuesday."
    body = {"messages": [{"role": "user", "content": prompt}]}
    return json.dumps({"custom_id": item, "method": "POST", "url": "/v1/chat/completions", "body": body}) + "\n"


def _home() -> str:
    """Return the folder that holds the package, so that children find it wherever they run."""
    return str(Path(batchrun.__file__).resolve().parents[1])
