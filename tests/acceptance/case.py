"""One case: what it puts into the folder, the steps it takes, and what must be true at the end. All of it is data.

A case is one line of cases.jsonl:

id, about   the number of the kind of fault, and the fault in a sentence
input       {"items": n, "prefix": "a"} | {"lines": [line or text, ...]} | {"base64": "..."} | {"big_line_mb": n}
job         changes to the base spec; `env` the environment (null takes a variable out); `endpoint` the script
limits      what the processes may not do: {"file_bytes": n} or {"clock": {"after_s": s, "by_s": s}}
ledger      "postgres" where it is not SQLite
broker      true where workers and a Redis of its own take part: its steps are those of `scaled.py` too
steps       one after another, see `Steps`
expect      see `expectations.py`
"""

import base64
import json
import os
import resource
import shlex
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from tests.acceptance.endpoint import ScriptedEndpoint
from tests.lab import Lab, Run, batch_line
from tests.restartable import RestartableRedis

Json = dict[str, Any]
TASK = "case"
BASE = {"task_id": TASK, "model": "m", "concurrency": 4, "retry_times": 3}
KEY = "sk-Zq7vKx93mWtB2nPd"


def read_cases() -> list[Json]:
    """Read every case."""
    return [json.loads(line) for line in Path(__file__).with_name("cases.jsonl").read_text().splitlines()]


@dataclass
class Played:
    """A case that is being played."""

    case: Json
    lab: Lab
    endpoint: ScriptedEndpoint
    broker: RestartableRedis | None = None
    runs: list[Run] = field(default_factory=list)
    remembered: dict[str, Any] = field(default_factory=dict)

    @property
    def said(self) -> str:
        """Everything that was said on any terminal."""
        return "\n".join(run.out + run.err for run in self.lab.runs)

    @property
    def ids(self) -> list[str]:
        """The ids of the input as it was put there last, in order, as far as the lines have any."""
        found = []
        for line in (self.lab.folder / "inputs" / "in.jsonl").read_bytes().lstrip(b"\xef\xbb\xbf").split(b"\n"):
            try:
                value = json.loads(line)
                found.append(value["custom_id"])
            except (ValueError, LookupError, TypeError):
                continue
        return found


def prepare(case: Json, lab: Lab, endpoint: ScriptedEndpoint, broker: RestartableRedis | None) -> Played:
    """Write input and spec, and set the environment."""
    played = Played(case, lab, endpoint, broker)
    lab.env |= {"OPENAI_API_KEY": KEY}
    if broker is not None:
        lab.env |= {"BATCHRUN_BROKER": broker.url, "BATCHRUN_HEARTBEAT_S": "0.5", "BATCHRUN_DEAD_AFTER_S": "3"}
    for name, value in case.get("env", {}).items():
        if value is None:
            lab.env.pop(name, None)
        else:
            lab.env[name] = value.replace("<port>", str(endpoint.port))
    write_input(lab, case["input"])
    lab.write_spec(**{**BASE, **case.get("job", {})})
    return played


def write_input(lab: Lab, given: Json) -> None:
    """Write the input file in one of the forms a case may give it."""
    path = lab.folder / "inputs" / "in.jsonl"
    if "items" in given:
        lines = [batch_line(name, given.get("text", "hello")) for name in numbered(given)]
        path.write_text("".join(lines))
    elif "lines" in given:
        texts = [line if isinstance(line, str) else json.dumps(line, ensure_ascii=False) for line in given["lines"]]
        path.write_text("".join(text + "\n" for text in texts), encoding="utf-8", newline="")
    elif "base64" in given:
        path.write_bytes(base64.b64decode(given["base64"]))
    else:
        picture = "data:image/png;base64," + "A" * (given["big_line_mb"] << 20)
        path.write_text(batch_line("big", picture) + batch_line("a2") + batch_line("a3"))


def numbered(given: Json) -> list[str]:
    """Return the ids of `{"items": n, "prefix": "a"}`."""
    return [f"{given.get('prefix', 'a')}{number}" for number in range(1, given["items"] + 1)]


def limit(limits: Json) -> None:
    """Keep this process from something; called in it before it begins."""
    if (size := limits.get("file_bytes")) is not None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
    if clock := limits.get("clock"):
        _set_clock_back(clock["after_s"], clock["by_s"])


def _set_clock_back(after_s: float, by_s: float) -> None:
    """Make the wall clock jump back once; the monotonic clock knows nothing of it."""
    true_time, jumps_at = time.time, time.monotonic() + after_s
    time.time = lambda: true_time() - (by_s if time.monotonic() >= jumps_at else 0.0)


class Steps:
    """The steps a case may take. Each is a method; a step is `{name: argument, ...options}`."""

    def __init__(self, played: Played) -> None:
        self.played = played
        self.lab = played.lab
        limits = played.case.get("limits")
        self.before: Callable[[], None] | None = None if limits is None else partial(limit, limits)

    def take(self, step: Json) -> None:
        """Take one step."""
        name, argument = next(iter(step.items()))
        getattr(self, name)(argument, **{key: value for key, value in step.items() if key != name})

    def run(
        self,
        command: str,
        *,
        exit: int | list[int],
        says: list[str] | None = None,
        within_s: float = 60.0,
        env: Json | None = None,
        unlimited: bool = False,
    ) -> None:
        """Run a command to its end."""
        self.start(command, env=env, unlimited=unlimited)
        self.end(exit, says=says, within_s=within_s)

    def start(self, command: str, *, env: Json | None = None, unlimited: bool = False) -> None:
        """Start a command and go on."""
        run = self.lab.start(*shlex.split(command), env=env, before=None if unlimited else self.before)
        self.played.runs.append(run)

    def end(
        self, exit: int | list[int], *, says: list[str] | None = None, within_s: float = 60.0, of: int = -1
    ) -> None:
        """Wait for the command started last, or for that with number `of`."""
        run = self.played.runs[of]
        code = run.wait(within_s)
        assert code in (exit if isinstance(exit, list) else [exit]), f"exit {code}\n{run.err}{run.out}"
        for words in says or []:
            assert words.lower() in (run.out + run.err).lower(), f"did not say {words!r}\n{run.err}{run.out}"

    def together(self, steps: list[Json]) -> None:
        """Start several commands at once; as a set, their exit codes must be the wanted ones."""
        runs = [self.lab.start(*shlex.split(step["run"]), before=self.before) for step in steps]
        self.played.runs += runs
        assert sorted(run.wait() for run in runs) == sorted(step["exit"] for step in steps), [run.err for run in runs]

    def answers(self, count: int) -> None:
        """Wait until the endpoint has sent so many whole answers."""
        self._wait_for(lambda: self.played.endpoint.answered >= count, f"{count} answers")

    def arrivals(self, count: int) -> None:
        """Wait until so many requests have arrived."""
        self._wait_for(lambda: len(self.played.endpoint.requests) >= count, f"{count} requests")

    def state(self, state: str) -> None:
        """Wait until the ledger says that the job is in a state."""
        self._wait_for(lambda: self.lab.standing(TASK).job.state == state, state)

    def signal(self, name: str, *, of: int = -1) -> None:
        """Send the command started last, or that with number `of`, a signal; a killed one is buried."""
        run = self.played.runs[of]
        run.kill(signal.Signals[f"SIG{name}"])
        if name == "KILL":
            run.process.join()

    def whole_lines(self, name: str) -> None:
        """Read a file again and again while the command runs: but for the end of the last one, its lines are whole."""
        path, run = self.lab.folder / "outputs" / name, self.played.runs[-1]
        seen = 0
        while run.process.is_alive():
            data = path.read_bytes() if path.exists() else b""
            seen = max(seen, sum(1 for line in data.split(b"\n")[:-1] if json.loads(line)))
            run.process.join(0.01)
        assert seen > 0, "nothing was to be seen while it ran"

    def input(self, given: Json) -> None:
        """Write another input."""
        write_input(self.lab, given)

    def endpoint(self, script: Json) -> None:
        """Mend the endpoint, or break it."""
        self.played.endpoint.follow(script)

    def spoil(self, name: str, *, how: str) -> None:
        """Damage the end of an output file, if it is there."""
        path = self.lab.folder / "outputs" / name
        if path.exists() and (data := path.read_bytes()):
            torn = {"cut": data[:-25], "no_newline": data[:-1], "half_character": data[:-1] + b"\xe2\x82"}
            path.write_bytes(torn[how])

    def link(self, name: str, *, to: str, hard: bool = False) -> None:
        """Make a link."""
        if hard:
            os.link(self.lab.folder / to, self.lab.folder / name)
        else:
            (self.lab.folder / name).symlink_to(self.lab.folder / to)

    def remember(self, what: str) -> None:
        """Keep the outputs and the number of arrivals, to compare them at the end."""
        outputs = sorted((self.lab.folder / what).iterdir())
        self.played.remembered = {
            "files": {path: path.read_bytes() for path in outputs},
            "arrivals": len(self.played.endpoint.requests),
        }

    def unchanged(self, is_so: bool) -> None:
        """Compare with what was remembered."""
        for path, data in self.played.remembered["files"].items():
            assert path.read_bytes() == data, path
        assert len(self.played.endpoint.requests) == self.played.remembered["arrivals"]

    def _wait_for(self, holds: Callable[[], bool], what: str) -> None:
        run, deadline = self.played.runs[-1], time.monotonic() + 60.0
        while not holds() and run.process.is_alive():
            assert time.monotonic() < deadline, f"waited in vain for {what}\n{run.err}"
            run.process.join(0.003)
