"""What a process took: time, processor, memory. Each process is accounted for by itself."""

import os
import resource
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

TICKS_PER_S = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Cost:
    """What one process took, its own children included."""

    wall_s: float
    cpu_s: float
    rss_mb: float  # the most at any time
    code: int
    out: str
    err: str


class Child:
    """A process that is accounted for when it has ended."""

    def __init__(self, command: Sequence[str], folder: Path, env: Mapping[str, str]) -> None:
        self._paths = [folder / f".{os.getpid()}.{time.monotonic_ns()}.{name}" for name in ("out", "err")]
        self._files: list[IO[bytes]] = [path.open("wb") for path in self._paths]
        self.began = time.monotonic()
        out, err = self._files
        self.process = subprocess.Popen(list(command), cwd=folder, env=os.environ | env, stdout=out, stderr=err)

    @property
    def is_alive(self) -> bool:
        """Whether it still runs; asking does not take its account away."""
        return os.waitid(os.P_PID, self.process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None

    @property
    def cpu_s(self) -> float:
        """Processor time so far, in steps of a hundredth of a second."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICKS_PER_S

    def said(self) -> str:
        """Return what it has said on its standard error so far."""
        return self._paths[1].read_text()

    def wait(self) -> Cost:
        """Wait for its end, and return what it took."""
        _, status, usage = os.wait4(self.process.pid, 0)
        wall_s = time.monotonic() - self.began
        self.process.returncode = os.waitstatus_to_exitcode(status)
        for file in self._files:
            file.close()
        out, err = (path.read_text() for path in self._paths)
        for path in self._paths:
            path.unlink()
        return Cost(wall_s, _cpu_s(usage), usage.ru_maxrss / 1024, self.process.returncode, out, err)


def _cpu_s(usage: resource.struct_rusage) -> float:
    return usage.ru_utime + usage.ru_stime


def batchrun(
    *arguments: str, folder: Path, env: Mapping[str, str], codes: Sequence[int] = (0,), prelude: str | None = None
) -> Cost:
    """Run `batchrun` to its end.

    Args:
        codes: exit codes that are no fault here.
        prelude: a module of `benchmarks` that changes something first, and then runs it.
    """
    cost = start(*arguments, folder=folder, env=env, prelude=prelude).wait()
    if cost.code not in codes:
        raise SystemExit(f"batchrun {' '.join(arguments)} ended with {cost.code}:\n{cost.err}")
    return cost


def start(*arguments: str, folder: Path, env: Mapping[str, str], prelude: str | None = None) -> Child:
    """Start `batchrun`."""
    module = "batchrun" if prelude is None else f"benchmarks.{prelude}"
    root = str(Path(__file__).parents[1])
    paths = os.pathsep.join([root, *filter(None, [os.environ.get("PYTHONPATH")])])
    return Child([sys.executable, "-m", module, *arguments], folder, {"PYTHONPATH": paths, **env})
