"""Disks that fill, ledgers that others lock, clocks that are set back: python -m tests.proof.disk [--cuts N] [--seed S]

The disk has room for a part of what a job writes: for its ledger, its spool and its outputs, cut off anywhere. It stops
in words; when there is room again the same command goes on, and no answer that was paid for is lost.
"""

import argparse
import random
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

from tests.proof import points

if __name__ == "__main__":
    points.install()

from batchrun.ledger.engines import sqlite_module
from tests.lab import Lab
from tests.process.limits import small_disk, small_files
from tests.process.steps import ids
from tests.proof.forks import fork, wait
from tests.proof.lanes import LANES, Lanes, prepare, sum_up, tell
from tests.proof.scenes import SUBMIT
from tests.proof.stage import DIED, PATIENCE_S, Actor, Stage
from tests.proof.verdict import Law, Report, Verdict, judge

COUNT, CONCURRENCY = 24, 4
SMALLEST_BYTES, LARGEST_BYTES = 40_000, 1_500_000  # of the disk; a job writes about as much as the largest
LARGEST_FILE_BYTES = 400_000  # where no disk can be mounted, no file grows above a size
LOCKED_S = 10.0
DAY_S = 86_400.0


@dataclass(frozen=True)
class Trouble:
    """What befalls a job: `full` at so many bytes, `locked`, or a clock `set back` at its so many-th reading."""

    kind: str
    at: int = 0

    def __str__(self) -> str:
        return f"{self.kind}/{self.at}"


def draw(cuts: int, seed: int) -> list[Trouble]:
    """Draw the troubles: cut points, spread over the whole range, and one each of the others."""
    dice = random.Random(seed)
    step = (LARGEST_BYTES - SMALLEST_BYTES) // max(1, cuts)
    full = [Trouble("full", SMALLEST_BYTES + number * step + dice.randrange(step)) for number in range(cuts)]
    return [Trouble("locked"), Trouble("set back", dice.randint(5, 60)), Trouble("set back"), *full]


def run_trouble(trouble: Trouble, folder: Path) -> Report:
    """Play a job with its trouble in an empty folder, in forks of this process, and judge it."""
    report = Report(str(trouble))
    lab = Lab(folder, log=folder / "requests.jsonl", db=f"sqlite:///{folder}/outputs/ledger/ledger.db")
    lab.write_input(COUNT)
    lab.write_spec(concurrency=CONCURRENCY, max_tokens=2_000, trial={"size": 4})
    stage = Stage(lab, {"latency_ms": 10, "answer_tokens": 1_000})
    play = {"full": _play_full, "locked": _play_locked, "set back": _play_set_back}[trouble.kind]
    with report.writing():
        play(trouble, stage, report)
    report.verdict.faults += stage.complaints()
    return report


def _judge(stage: Stage, report: Report, *, doubts_at_most: int = 0) -> None:
    law = Law(ids(COUNT), "hold", doubts_at_most, unkept_at_most=None if report.deaths else 0)
    report.verdict = Verdict(**stage.apart(lambda: asdict(judge(stage.lab, law))))


def _play_full(trouble: Trouble, stage: Stage, report: Report) -> None:
    with small_disk(stage.lab.folder / "outputs", str(trouble.at)) as disk, stage:
        limit = None
        if disk is None:
            limit = partial(small_files, trouble.at * LARGEST_FILE_BYTES // LARGEST_BYTES)
        actor = stage.start(SUBMIT, before=limit)
        code = actor.wait()
        report.hits = {"stopped": int(code not in (0, 6))}
        if code not in (0, 6):
            words = actor.said + actor.err_path.with_suffix(".out").read_text()
            assert code in (1, 5), (code, words)
            assert "cannot" in words, words
            assert "  try: " in words or "next:  " in words, words  # and what to do
        if disk is not None:
            disk.resize("64m")
        again = stage.start(SUBMIT)
        assert again.wait() in (0, 6), (again.code, again.said)
        # What was claimed and not sent is given back by a write, which a full disk may refuse: rescue finds doubts.
        _judge(stage, report, doubts_at_most=CONCURRENCY + CONCURRENCY // 4)


def _play_locked(_trouble: Trouble, stage: Stage, report: Report) -> None:
    """Another tool locks the ledger for a while, in the middle of the job."""
    with stage:
        actor = stage.start(SUBMIT)
        _await_arrivals(stage, 8, actor)
        lock = fork(partial(_lock, stage.lab.folder / "outputs" / "ledger" / "ledger.db"))
        assert actor.wait() == 0, actor.said
        assert wait(lock, timeout_s=PATIENCE_S) == 0
        _judge(stage, report)


def _lock(path: Path) -> None:
    connection = sqlite_module().connect(path, timeout=PATIENCE_S, isolation_level=None)
    connection.execute("BEGIN EXCLUSIVE")
    time.sleep(LOCKED_S)
    connection.execute("ROLLBACK")


def _play_set_back(trouble: Trouble, stage: Stage, report: Report) -> None:
    """The clock is set back by a day: while the job runs, or, at 0, between a death and what follows it."""
    with stage:
        if trouble.at:
            actor = stage.start(SUBMIT, before=partial(_set_back, trouble.at))
        else:
            dead = stage.start(SUBMIT, ("settle-due", 9))
            assert dead.wait() == DIED, dead.said
            report.deaths += 1
            actor = stage.start(SUBMIT, before=partial(_set_back, 0))
        assert actor.wait() in (0, 6), (actor.code, actor.said)
        _judge(stage, report, doubts_at_most=report.deaths * CONCURRENCY)


def _set_back(at: int) -> None:
    """Let this process' clock tell the time of yesterday from its `at`-th reading on."""
    told, readings = time.time, iter(range(sys.maxsize))
    time.time = lambda: told() - (DAY_S if next(readings) >= at else 0.0)


def _await_arrivals(stage: Stage, count: int, actor: Actor) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while stage.lab.arrivals() < count and actor.is_alive():
        assert time.monotonic() < deadline, actor.said
        time.sleep(0.003)


def run(options: argparse.Namespace) -> int:
    """Play all troubles, print what came of them, and return the exit code."""
    began = time.monotonic()
    troubles = draw(options.cuts, options.seed)
    print(f"seed {options.seed}: {len(troubles)} troubles", flush=True)
    reports = []
    for _, report in Lanes(postgres=None, lanes=options.lanes).play(troubles, run_trouble):
        reports.append(report)
        tell(report)
    print(f"stopped by a full disk: {sum(report.hits.get('stopped', 0) for report in reports)}")
    return sum_up(reports, seed=options.seed, took_s=time.monotonic() - began)


def main(arguments: Sequence[str]) -> int:
    """Read the command line, and run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cuts", type=int, default=200, help="sizes at which the disk is full")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    parser.add_argument("--lanes", type=int, default=LANES)
    options = parser.parse_args(arguments)
    prepare()
    return run(options)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
