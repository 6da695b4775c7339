"""Playing many runs, a few at once, each in a fork and a folder of its own; and telling what came of them."""

import gc
import importlib
import json
import os
import secrets
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import TypeVar

from tests.lab import PRELOAD
from tests.proof.forks import fork, wait
from tests.proof.stage import PATIENCE_S
from tests.proof.verdict import Report, Verdict
from tests.proof.warm import warm_up

Play = TypeVar("Play")
LANES = 3  # runs at once: each of them waits more than it works


def prepare() -> None:
    """Import everything, before the first fork, and open nothing."""
    for name in PRELOAD:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()  # the forks' collectors leave what they share alone


class Lanes:
    """A folder in which runs are played. Those that keep every promise leave nothing in it."""

    def __init__(self, *, postgres: str | None, lanes: int) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="proof-"))
        self._postgres, self._lanes = postgres, lanes
        self._tag = secrets.token_hex(3)  # several of these may share one Postgres
        self._number = 0
        self._warm_up()

    def _warm_up(self) -> None:
        """Perform a small job here, on each database, before anything is forked: the runs need not learn it again."""
        addresses: list[str | None] = [None]
        if self._postgres is not None:
            name = f"{self._tag}_warm"
            _make_schemas(self._postgres, [name])
            addresses.append(in_schema(self._postgres, self.folder / name))
        warm_up(*addresses)

    def play(self, plays: Sequence[Play], run: Callable[[Play, Path], Report]) -> Iterator[tuple[Play, Report]]:
        """Play all of these, and yield each report as it comes."""
        names = [f"{self._tag}_{self._number + number}" for number in range(len(plays))]
        self._number += len(plays)
        if self._postgres is not None:
            _make_schemas(self._postgres, names)
        left = list(reversed(list(zip(plays, names, strict=True))))
        playing: dict[int, tuple[Play, Path]] = {}
        while left or playing:
            while left and len(playing) < self._lanes:
                play, name = left.pop()
                (place := self.folder / name).mkdir()
                playing[_fork(play, place, run)] = (play, place)
            pid, status = os.wait()
            play, place = playing.pop(pid)
            yield play, _report(play, place, status)


def _fork(play: Play, place: Path, run: Callable[[Play, Path], Report]) -> int:
    return fork(lambda: (place / "report.json").write_text(json.dumps(run(play, place), default=vars)))


def _report(play: object, place: Path, status: int) -> Report:
    if status != 0:
        return Report(str(play), verdict=Verdict(faults=[f"the run itself ended with status {status}: {place}"]))
    found = json.loads((place / "report.json").read_text())
    report = Report(**{**found, "verdict": Verdict(**found["verdict"])})
    if report.verdict.faults:
        report.verdict.faults.append(f"its folder: {place}")
    else:
        shutil.rmtree(place)
    return report


def in_schema(url: str, place: Path) -> str:
    """Return the address of a run's own part of the Postgres database."""
    return f"{url}?options=-csearch_path%3Dcase_{place.name}"


def _make_schemas(url: str, names: Sequence[str]) -> None:
    def make() -> None:
        import psycopg

        with closing(psycopg.connect(url, autocommit=True)) as connection:
            for name in names:
                connection.execute(f"CREATE SCHEMA case_{name}")

    assert wait(fork(make), timeout_s=PATIENCE_S) == 0


def tell(report: Report) -> None:
    """Print what went wrong in a run."""
    for fault in report.verdict.faults:
        print(f"VIOLATION  {report.run}\n  {fault}", flush=True)


def sum_up(reports: Sequence[Report], *, seed: int, took_s: float) -> int:
    """Print the sums as one line of JSON, and return the exit code."""
    verdicts = [report.verdict for report in reports]
    summary = {
        "seed": seed,
        "runs": len(reports),
        "deaths": sum(report.deaths for report in reports),
        "requests": sum(verdict.requests for verdict in verdicts),
        "billed": sum(verdict.billed for verdict in verdicts),
        "doubts": sum(verdict.doubts for verdict in verdicts),
        "silent_second_bills": sum(verdict.silent_second_bills for verdict in verdicts),
        "lost_items": sum(verdict.lost_items for verdict in verdicts),
        "violations": sum(bool(verdict.faults) for verdict in verdicts),
        "took_s": round(took_s, 1),
        "cpu_s": round(sum(os.times()[:4]), 1),
    }
    slowest = sorted(reports, key=lambda report: -report.took_s)[:3]
    print("slowest: " + ", ".join(f"{report.run} {report.took_s:.1f} s" for report in slowest))
    print(json.dumps(summary))
    return 1 if summary["violations"] else 0
