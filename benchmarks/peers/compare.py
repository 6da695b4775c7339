"""Runners side by side: python -m benchmarks.peers.compare [--items N] [--only NAME ...] [--environments FOLDER]

Each goes through two tests against the mock endpoint, which finishes and bills what it has begun, as hosted ones do:
killed with `kill -9` in the middle and run again; and started twice at the same place. Judged by the endpoint's log.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from batchrun.mock.config import MockConfig
from batchrun.mock.judgement import Judgement, read_log
from batchrun.mock.process import MockProcess
from benchmarks.peers.runners import CONCURRENCY, RUNNERS, Runner

PATIENCE_S = 300.0
COLUMNS = "{:<20} {:<9} {:<17} {:>5} {:>8} {:>6} {:>12} {:>6}"
HEAD = COLUMNS.format("runner", "version", "test", "items", "requests", "billed", "second bills", "doubts")


@dataclass(frozen=True)
class Place:
    """One runner's folder for one test, with its endpoint."""

    runner: Runner
    programs: Path
    folder: Path
    base_url: str

    def start(self, *, again: bool = False) -> "subprocess.Popen[bytes]":
        """Start the runner."""
        command = (self.runner.again if again else None) or self.runner.command
        env = {name: value for name, value in os.environ.items() if not name.startswith(("OPENAI_", "BATCHRUN_"))}
        env |= {"OPENAI_BASE_URL": self.base_url, "HOME": str(self.folder)}
        with (self.folder / "said").open("ab") as said:
            return subprocess.Popen(
                command(self.programs, self.base_url),
                cwd=self.folder,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
                start_new_session=True,
            )

    @property
    def log(self) -> Path:
        return self.folder / "requests.jsonl"

    def arrivals(self) -> int:
        """Count the requests that the endpoint has seen."""
        return self.log.read_bytes().count(b'"method":"POST"') if self.log.exists() else 0


def write_job(folder: Path, items: int) -> None:
    """Write one job in the words of each runner."""
    prompts = [f"[[item-{number:05d}]] Name three rivers." for number in range(items)]
    lines = [{"id": str(number), "prompt": prompt} for number, prompt in enumerate(prompts)]
    (folder / "prompts.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    spec = {
        "task_id": "compared",
        "model": "mock",
        "input_file": "prompts.jsonl",
        "prompt_template": "{{ prompt }}",
        "output_file": "answers.jsonl",
        "max_tokens": 256,
        "concurrency": CONCURRENCY,
        "retry_times": 3,
    }
    (folder / "job.json").write_text(json.dumps(spec))


def kill_and_go_on(place: Place, items: int) -> None:
    """Kill it in the middle, and run it again to its end."""
    first = place.start()
    deadline = time.monotonic() + PATIENCE_S
    while place.arrivals() < items // 2:
        if first.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(f"it ended before it could be killed: {last_words(place)}")
        time.sleep(0.01)
    end(first, at_once=True)
    end(place.start(again=True))


def last_words(place: Place) -> str:
    """Return the last line that a runner has written."""
    lines = (place.folder / "said").read_text(errors="replace").strip().splitlines()
    return lines[-1][:300] if lines else "it said nothing"


def start_twice(place: Place, items: int) -> None:
    """Start it twice, the second once the first is at work, and let both end."""
    first = place.start()
    deadline = time.monotonic() + PATIENCE_S
    while place.arrivals() < 1 and first.poll() is None and time.monotonic() < deadline:
        time.sleep(0.01)
    second = place.start()
    end(first)
    end(second)
    if place.arrivals() < items // 2:
        raise RuntimeError(f"it did not run: {last_words(place)}")


def end(process: "subprocess.Popen[bytes]", *, at_once: bool = False) -> None:
    """Wait for a process's end, or kill it with its children."""
    try:
        process.wait(0 if at_once else PATIENCE_S)
    except subprocess.TimeoutExpired:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


TESTS = {"killed, run again": kill_and_go_on, "started twice": start_twice}


def environment(runner: Runner, folder: Path) -> tuple[Path, str]:
    """Install a runner into an environment of its own; return its programs' folder and its version.

    Raises:
        RuntimeError: it cannot be installed.
    """
    if not runner.packages:
        from batchrun import __version__

        return Path(sys.executable).parent, __version__
    programs = folder / runner.name / "bin"
    if not (programs / "python").exists():
        venv.create(folder / runner.name, with_pip=True)
    pip = [str(programs / "python"), "-m", "pip", "--disable-pip-version-check"]
    done = subprocess.run([*pip, "install", "--quiet", *runner.packages], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"cannot be installed: {done.stderr.strip().splitlines()[-1]}")
    shown = subprocess.run([*pip, "show", runner.name], capture_output=True, text=True, check=True).stdout
    return programs, next(line.split()[1] for line in shown.splitlines() if line.startswith("Version:"))


def row(runner: Runner, version: str, test: str, items: int, judged: Judgement, doubts: int | None) -> str:
    """Return one line of the table."""
    second = sum(record.billed_count - 1 for record in judged.repeated.values())
    named = "-" if doubts is None else str(doubts)
    return COLUMNS.format(runner.name, version, test, items, judged.posts, judged.billed, second, named)


def main(arguments: Sequence[str]) -> int:
    """Read the command line, and compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--items", type=int, default=400)
    parser.add_argument("--latency-ms", type=float, default=1_000.0)
    parser.add_argument("--only", nargs="*", choices=[runner.name for runner in RUNNERS])
    parser.add_argument("--environments", type=Path, default=Path("build/peers"), help="where they are installed")
    options = parser.parse_args(arguments)
    print(HEAD, flush=True)
    for runner in RUNNERS:
        if options.only and runner.name not in options.only:
            continue
        try:
            programs, version = environment(runner, options.environments.absolute())
        except (RuntimeError, OSError) as error:
            print(f"{runner.name:<20} skipped: {error}", flush=True)
            continue
        for test, play in TESTS.items():
            with tempfile.TemporaryDirectory(prefix="compared-") as name:
                folder = Path(name)
                write_job(folder, options.items)
                config = MockConfig(log_path=str(folder / "requests.jsonl"), latency_ms=options.latency_ms, seed=1)
                with MockProcess(config) as mock:
                    place = Place(runner, programs, folder, mock.base_url)
                    try:
                        play(place, options.items)
                    except RuntimeError as error:
                        print(f"{runner.name:<20} {version:<9} {test:<17} {error}", flush=True)
                        continue
                    doubts = runner.count_doubts(folder) if runner.count_doubts else None
                print(row(runner, version, test, options.items, read_log(place.log), doubts), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
