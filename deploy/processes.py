"""Processes that outlive whoever started them, known by number and start time, so that nothing else is ever ended."""

import contextlib
import dataclasses
import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

START_S = 60.0
POLL_S = 0.05
LOG_LINES = 15


class Trouble(Exception):
    """The topology cannot be had, or not ended; what is running stays."""


def stat_of(pid: int) -> list[str]:
    """Return a process' fields from its state on, as proc(5) lists them; empty where there is none."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


@dataclasses.dataclass(frozen=True)
class Process:
    """One process that was started here: its number alone may be another's by now."""

    name: str
    pid: int
    born: str  # in clock ticks since boot
    command: list[str]

    @property
    def is_alive(self) -> bool:
        fields = stat_of(self.pid)
        return bool(fields) and fields[0] not in "ZX" and fields[19] == self.born

    def send(self, number: int) -> None:
        if self.is_alive:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self) -> None:
        """Kill it with what it has started."""
        below = [int(entry) for entry in os.listdir("/proc") if entry.isdigit() and self._is_parent_of(int(entry))]
        for pid in (self.pid, *below) if self.is_alive else ():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def _is_parent_of(self, pid: int) -> bool:
        fields = stat_of(pid)
        return bool(fields) and fields[1] == str(self.pid)


@dataclasses.dataclass(frozen=True)
class Site:
    """The folder of one topology: what was started, its logs, its passwords and ports."""

    folder: Path

    def read(self) -> dict[str, Any]:
        """Read passwords, ports and places."""
        try:
            known: dict[str, Any] = json.loads((self.folder / "state.json").read_text())
            return known
        except FileNotFoundError:
            return {}

    def write(self, known: dict[str, Any]) -> None:
        write_private(self.folder / "state.json", json.dumps(known, indent=1))

    def process(self, name: str) -> Process | None:
        """Return a process of this name that is running."""
        try:
            found = Process(name, **json.loads((self.folder / "pids" / name).read_text()))
        except (FileNotFoundError, ValueError, TypeError):
            return None
        return found if found.is_alive else None

    def processes(self) -> list[Process]:
        """Return all that run, the workers first."""
        names = sorted(path.name for path in (self.folder / "pids").glob("*"))
        found = [self.process(name) for name in names]
        return sorted((one for one in found if one is not None), key=lambda one: not one.name.startswith("worker"))

    def log(self, name: str) -> Path:
        return self.folder / "logs" / f"{name}.log"

    def start(self, name: str, command: Sequence[str], *, cwd: Path, env: dict[str, str], **user: Any) -> Process:
        """Start a process that outlives this one."""
        with self.log(name).open("ab") as log:
            started = subprocess.Popen(
                command, cwd=cwd, env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                start_new_session=True, **user,
            )  # fmt: skip
        process = Process(name, started.pid, stat_of(started.pid)[19], list(command))
        kept = {"pid": process.pid, "born": process.born, "command": process.command}
        write_private(self.folder / "pids" / name, json.dumps(kept))
        return process

    def await_ready(self, process: Process, is_ready: Callable[[], bool]) -> None:
        """Wait until it works.

        Raises:
            Trouble: it died, or took too long.
        """
        deadline = time.monotonic() + START_S
        while not is_ready():
            with contextlib.suppress(ChildProcessError):
                os.waitpid(process.pid, os.WNOHANG)
            if not process.is_alive or time.monotonic() > deadline:
                how = "did not become ready" if process.is_alive else "ended at once"
                said = "\n".join(self.log(process.name).read_text(errors="replace").splitlines()[-LOG_LINES:])
                raise Trouble(f"{process.name} {how}; the end of {self.log(process.name)}:\n{said}")
            time.sleep(POLL_S)


def write_private(path: Path, text: str) -> None:
    """Replace a file in one step; nobody else may read it."""
    new = path.with_name(f".{path.name}.new")
    new.touch(0o600)
    new.write_text(text)
    new.replace(path)
