"""A folder with a job in it, a mock endpoint, and real batchrun processes to run, kill and judge.

The processes are forked by a server that has imported everything and opened nothing, so that a run costs no imports.
"""

import contextlib
import faulthandler
import json
import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any

from batchrun.core.prices import usd
from batchrun.core.states import ItemState
from batchrun.ledger.ledger import Ledger
from batchrun.mock.judgement import Judgement
from batchrun.mock.log import read_log
from batchrun.mock.process import MockProcess
from batchrun.runner.standing import Standing, read_standing

# Imported once, before the first fork; a module that is not there is passed over.
PRELOAD = [
    "tests.lab",
    "tests.acceptance.case",
    "batchrun.__main__",
    "batchrun.wiring",
    "batchrun.cli.submit",
    "batchrun.cli.series",
    "batchrun.runner.handover",
    "batchrun.runner.specs",
    "celery.loaders.app",
    "encodings.idna",
    "batchrun.cli.resume",
    "batchrun.cli.trial",
    "batchrun.cli.status",
    "batchrun.cli.retry_failed",
    "batchrun.cli.reconcile",
    "batchrun.cli.revalidate",
    "batchrun.cli.cancel",
    "batchrun.cli.export",
    "batchrun.cli.purge",
    "batchrun.cli.failures",
    "batchrun.cli.show",
    "batchrun.cli.ls",
    "batchrun.cli.validate",
    "batchrun.cli.db",
    "batchrun.runner.submit",
    "batchrun.runner.drive",
    "batchrun.runner.resume",
    "batchrun.runner.control",
    "batchrun.runner.export_job",
    "batchrun.runner.purge",
    "batchrun.runner.reconcile",
    "openai",
    "httpcore2",
    "anyio._backends._asyncio",
    "pysqlite3",
    "psycopg",
    "psycopg_binary",
    "sqlalchemy.dialects.sqlite.pysqlite",
    "sqlalchemy.dialects.postgresql.psycopg",
    "alembic.command",
    "alembic.config",
    "alembic.context",
    "alembic.autogenerate",
    "mako.template",
    "celery.app.amqp",
    "celery.app.control",
    "celery.app.events",
    "celery.app.trace",
    "celery.backends.base",
    "celery.concurrency.solo",
    "celery.events.dispatcher",
    "celery.worker.worker",
    "celery.worker.components",
    "celery.worker.autoscale",
    "celery.worker.consumer.agent",
    "celery.worker.consumer.delayed_delivery",
    "celery.worker.control",
    "celery.worker.pidbox",
    "celery.worker.strategy",
    "kombu.transport.memory",
    "kombu.pidbox",
    "concurrent.futures.thread",
]
QUICK = {
    "BATCHRUN_FIRST_WAIT_S": "0.05",
    "BATCHRUN_LONGEST_WAIT_S": "0.5",
    "BATCHRUN_IDLE_CLAIM_S": "0.2",
    "BATCHRUN_PROBE_S": "0.1",
    "BATCHRUN_REFUSED_S": "0.5",
}
_forks = multiprocessing.get_context("forkserver")
_forks.set_forkserver_preload(PRELOAD)


def become_batchrun(
    arguments: list[str], folder: str, env: dict[str, str], out: str, err: str, before: Callable[[], None] | None
) -> None:
    """Be one `batchrun` process: its own session, folder, environment and output files."""
    os.setsid()
    os.chdir(folder)
    for name in list(os.environ):
        if name.startswith(("BATCHRUN_", "OPENAI_")):
            del os.environ[name]
    os.environ.update(env)
    for number, path in ((1, out), (2, err)):
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        os.dup2(fd, number)
        os.close(fd)
    devnull = os.open(os.devnull, os.O_RDONLY)
    os.dup2(devnull, 0)
    for stream in (sys.stdin, sys.stdout, sys.stderr):
        if stream is not None:
            stream.close()
    sys.stdin, sys.stdout, sys.stderr = (
        os.fdopen(0, "r"),
        os.fdopen(1, "w", buffering=1),
        os.fdopen(2, "w", buffering=1),
    )
    signal.signal(signal.SIGINT, signal.default_int_handler)
    faulthandler.register(signal.SIGUSR1, file=2)
    from batchrun.cli.main import run

    if before is not None:
        before()
    code = run(arguments)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


@dataclass
class Run:
    """One `batchrun` process, running or ended."""

    arguments: list[str]
    process: ForkServerProcess
    out_path: Path
    err_path: Path

    def kill(self, number: int = signal.SIGKILL) -> None:
        """Send it a signal; one that has ended is left alone."""
        if self.process.is_alive() and self.process.pid is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.process.pid, number)

    def children(self) -> list[int]:
        """Return the processes that it has started and that run."""
        pid = self.process.pid
        try:
            return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
        except OSError:
            return []

    def wait(self, timeout_s: float = 60.0) -> int:
        """Wait for its end and return its exit code; -9 for a killed one.

        Raises:
            AssertionError: it has not ended in time. It is killed.
        """
        self.process.join(timeout_s)
        if self.process.exitcode is None:
            self.kill(signal.SIGUSR1)  # where does it hang?
            self.process.join(0.5)
            self.kill()
            self.process.join(5)
            raise AssertionError(f"{' '.join(self.arguments)} did not end within {timeout_s} s\n{self.err}")
        return self.process.exitcode

    @property
    def out(self) -> str:
        return self.out_path.read_text() if self.out_path.exists() else ""

    @property
    def err(self) -> str:
        return self.err_path.read_text() if self.err_path.exists() else ""

    @property
    def json(self) -> dict[str, Any]:
        """Return the last object that it printed; each of them follows its schema."""
        from tests.cli.contract import read_stream

        return read_stream(self.out)[-1]


@dataclass
class Lab:
    """A folder to run jobs in. `base_url` and `log` are the endpoint's, where there is one."""

    folder: Path
    base_url: str | None = None
    log: Path | None = None
    db: str | None = None
    env: dict[str, str] = field(default_factory=dict)
    runs: list[Run] = field(default_factory=list)
    mock: MockProcess | None = None

    def __post_init__(self) -> None:
        for name in ("jobs", "inputs", "outputs"):
            (self.folder / name).mkdir(exist_ok=True)

    # -- making ---------------------------------------------------------------------------------------------------

    def write_input(self, count: int, *, name: str = "in.jsonl", prefix: str = "a", text: str = "hello") -> Path:
        """Write `count` OpenAI Batch lines; each prompt carries its id in [[ ]]."""
        path = self.folder / "inputs" / name
        path.write_text("".join(batch_line(f"{prefix}{number:05d}", text) for number in range(count)))
        return path

    def write_spec(self, name: str = "job.json", **changes: Any) -> Path:
        """Write a spec: the seven keys, and whatever else is given; None takes a key out."""
        spec: dict[str, Any] = {
            "task_id": "batch-001",
            "model": "mock",
            "input_file": "./inputs/in.jsonl",
            "output_file": "./outputs/out.jsonl",
            "max_tokens": 64,
            "concurrency": 8,
            "retry_times": 3,
        }
        spec |= changes
        path = self.folder / "jobs" / name
        path.write_text(json.dumps({key: value for key, value in spec.items() if value is not None}, indent=2))
        return path

    # -- running --------------------------------------------------------------------------------------------------

    def start(
        self,
        *arguments: str,
        env: Mapping[str, str] | None = None,
        before: Callable[[], None] | None = None,
        on: Path | None = None,
    ) -> Run:
        """Start `batchrun ARGUMENTS...` in the folder.

        Args:
            before: called in the process first, to limit it; can be pickled.
            on: a terminal that gets what it writes, instead of files, and becomes its own.
        """
        number = len(self.runs)
        out, err = (on or self.folder / f"run-{number}.{name}" for name in ("out", "err"))
        variables = QUICK | self.env | dict(env or {})
        if self.base_url is not None:
            variables.setdefault("OPENAI_BASE_URL", self.base_url)
        if self.db is not None:
            variables.setdefault("BATCHRUN_DB", self.db)
        process = _forks.Process(
            target=become_batchrun,
            args=(list(arguments), str(self.folder), variables, str(out), str(err), before),
            daemon=True,
        )
        process.start()
        run = Run(list(arguments), process, out, err)
        self.runs.append(run)
        return run

    def run(
        self,
        *arguments: str,
        timeout_s: float = 60.0,
        env: Mapping[str, str] | None = None,
        before: Callable[[], None] | None = None,
    ) -> Run:
        """Run `batchrun ARGUMENTS...` to its end."""
        run = self.start(*arguments, env=env, before=before)
        run.wait(timeout_s)
        return run

    def stop(self) -> None:
        """Kill what still runs."""
        for run in self.runs:
            children = run.children()
            run.kill()
            run.process.join(5)
            for child in children:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(child, signal.SIGKILL)

    # -- looking --------------------------------------------------------------------------------------------------

    def ledger(self) -> Ledger:
        """Open the folder's ledger."""
        return Ledger(self.db or f"sqlite:///{self.folder}/.batchrun/ledger.db", folder=self.folder / ".batchrun")

    def standing(self, task_id: str = "batch-001") -> Standing:
        """Read where the job stands."""
        ledger = self.ledger()
        try:
            return read_standing(ledger, task_id)
        finally:
            ledger.close()

    def judged(self) -> Judgement:
        """Read the endpoint's log."""
        assert self.log is not None
        return read_log(self.log)

    def arrivals(self) -> int:
        """Count the requests that the endpoint has seen so far; cheap enough to poll."""
        return self.log.read_bytes().count(b'"method":"POST"') if self.log is not None and self.log.exists() else 0

    def await_arrivals(self, count: int, *, run: Run, timeout_s: float = 60.0) -> None:
        """Wait until the endpoint has seen `count` requests, or the run has ended."""
        deadline = time.monotonic() + timeout_s
        while self.arrivals() < count and run.process.is_alive():
            assert time.monotonic() < deadline, f"only {self.arrivals()} of {count} requests arrived\n{run.err}"
            run.process.join(0.002)

    def gate(self, admits: int | None) -> None:
        """Let the endpoint serve so many requests since its start; the others wait until the gate is moved, or gone."""
        assert self.mock is not None
        self.mock.resize(admits=admits)

    def lines(self, name: str = "out.jsonl") -> list[dict[str, Any]]:
        """Read an output file, each line as strict JSON."""
        path = self.folder / "outputs" / name
        text = path.read_bytes()
        assert text == b"" or text.endswith(b"\n")
        return [strict_json(line) for line in text.split(b"\n")[:-1]]


def batch_line(custom_id: str, text: str = "hello", **body: Any) -> str:
    """Return one OpenAI Batch line."""
    messages = [{"role": "user", "content": f"[[{custom_id}]] {text}"}]
    line = {
        "custom_id": custom_id,
        "method": "POST",
        "url": "/v1/chat/completions",
        "body": {"messages": messages, **body},
    }
    return json.dumps(line) + "\n"


def strict_json(line: bytes) -> dict[str, Any]:
    """Parse a line as JSON without NaN and Infinity."""

    def refuse(name: str) -> None:
        raise AssertionError(f"{name} in an output line")

    value: dict[str, Any] = json.loads(line, parse_constant=refuse)
    return value


def assert_accounts_agree(lab: Lab, task_id: str = "batch-001", *, is_over: bool = True) -> Standing:
    """Assert the accounting identity of BILLING.md against the endpoint's own log; return the job's standing."""
    standing, judged = lab.standing(task_id), lab.judged()
    counts, attempts = standing.counts, standing.attempts
    assert sum(counts.values()) == standing.job.total, counts
    certain, possible = attempts.certain_requests, attempts.possible_requests
    assert certain <= judged.billed <= certain + possible, (certain, judged.billed, possible)
    by_state = {state.value: count for state, count in attempts.by_state.items()}
    replied = by_state.get("answered", 0) + by_state.get("refused", 0) + by_state.get("unusable", 0)
    assert replied <= judged.posts <= attempts.total - by_state.get("not_sent", 0), (by_state, judged.posts)
    if is_over:
        assert counts[ItemState.PENDING] == counts[ItemState.RUNNING] == 0
        assert attempts.open == 0
    assert usd(attempts.certain_pusd) is not None
    return standing


def assert_outputs_whole(
    lab: Lab, ids: list[str], *, output: str = "out.jsonl", errors: str = "out.errors.jsonl"
) -> None:
    """Assert that every input id stands exactly once in the two files, each in input order."""
    done = [line["custom_id"] for line in lab.lines(output)]
    failed = [line["custom_id"] for line in lab.lines(errors)]
    assert sorted(done + failed) == sorted(ids)
    order = {custom_id: number for number, custom_id in enumerate(ids)}
    for listed in (done, failed):
        assert [order[one] for one in listed] == sorted(order[one] for one in listed)


def comparable(path: Path) -> Iterator[bytes]:
    """Yield an output file's lines without what may differ between two runs: our key, the response's ids and times."""
    for raw in path.read_bytes().splitlines():
        line = json.loads(raw)
        del line["batchrun"], line["id"]
        if line["response"] is not None:
            line["response"].pop("request_id")
            if line["response"]["body"] is not None:
                for name in ("id", "created"):
                    line["response"]["body"].pop(name)
        yield json.dumps(line).encode()
