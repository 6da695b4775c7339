"""The crash matrix: python -m tests.proof.matrix [--cases N] [--seed S] [--only CASE] [--postgres URL]

Each point x first, second, last hit x hold, retry x SQLite, Postgres, in every scene that reaches it. The process that
is started here imports everything and opens nothing; every run is forked from it.
"""

import argparse
import gc
import importlib
import json
import os
import random
import secrets
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tests.proof import points

if __name__ == "__main__":
    points.install()

from tests import services
from tests.lab import PRELOAD
from tests.proof.case import Case, Report, make_empty_ledger, make_schemas, run_case
from tests.proof.forks import fork
from tests.proof.scenes import SCENES
from tests.proof.verdict import Verdict

LANES = 3  # runs at once: each of them waits more than it works
TRIES = 4  # to die at the last hit of a point: how many there are differs a little from run to run


@dataclass(frozen=True)
class Options:
    """What was asked for on the command line."""

    cases: int | None
    seed: int
    only: str | None
    postgres: str | None
    counts: Path | None
    part: str
    lanes: int


class Lanes:
    """Plays cases, a few at once, each in a fork of its own."""

    def __init__(self, folder: Path, options: Options) -> None:
        self._folder, self._options = folder, options
        self._empty_ledger = folder / "empty.db"
        make_empty_ledger(self._empty_ledger)
        self._tag = secrets.token_hex(3)  # several runs may share one Postgres
        self._number = 0
        self._playing: dict[int, tuple[Case, Path]] = {}

    def play(self, cases: Sequence[Case]) -> Iterator[tuple[Case, Report]]:
        """Play all of these, and yield each report as it comes."""
        left = list(reversed(cases))
        if self._options.postgres is not None:
            names = [self._name(self._number + number) for number in range(1, len(cases) + 1)]
            make_schemas(self._options.postgres, names)
        while left or self._playing:
            while left and len(self._playing) < self._options.lanes:
                self._start(left.pop())
            yield self._next()

    def _name(self, number: int) -> str:
        return f"{self._tag}_{number}"

    def _start(self, case: Case) -> None:
        self._number += 1
        place = self._folder / self._name(self._number)
        place.mkdir()
        options = self._options

        def work() -> None:
            report = run_case(
                case, place, seed=options.seed, postgres=options.postgres, empty_ledger=self._empty_ledger
            )
            (place / "report.json").write_text(json.dumps(report, default=vars))

        self._playing[fork(work)] = (case, place)

    def _next(self) -> tuple[Case, Report]:
        pid, status = os.wait()
        case, place = self._playing.pop(pid)
        if status != 0:
            return case, Report(str(case), verdict=Verdict(faults=[f"the run itself ended with status {status}"]))
        found = json.loads((place / "report.json").read_text())
        report = Report(**{**found, "verdict": Verdict(**found["verdict"])})
        if report.verdict.faults:
            report.verdict.faults.append(f"its folder: {place}")
        else:
            shutil.rmtree(place)
        return case, report


def count_hits(lanes: Lanes) -> tuple[dict[str, dict[str, int]], list[Report]]:
    """Play every scene without a death, and say how often each reaches each point."""
    undisturbed = [Case(scene.name, "", 0, scene.policies[0], scene.backends[0]) for scene in SCENES.values()]
    hits, reports = {}, []
    for case, report in lanes.play(undisturbed):
        hits[case.scene] = report.hits
        reports.append(report)
    return hits, reports


def all_cases(hits: dict[str, dict[str, int]], *, has_postgres: bool) -> list[Case]:
    """Return every case that there is."""
    return [
        Case(scene.name, point, hit, policy, backend)
        for scene in SCENES.values()
        for point, count in hits[scene.name].items()
        for hit in sorted({1, min(2, count), count})
        for policy in scene.policies
        for backend in scene.backends
        if backend != "postgres" or has_postgres
    ]


def choose(cases: Sequence[Case], count: int, dice: random.Random) -> list[Case]:
    """Choose cases so that every point comes before any comes twice."""
    shuffled = sorted(cases)
    dice.shuffle(shuffled)
    turn: Counter[str] = Counter()
    keyed = []
    for case in shuffled:
        turn[case.point] += 1
        keyed.append((turn[case.point], case))
    return [case for _, case in sorted(keyed, key=lambda pair: pair[0])][:count]


def play_to_death(lanes: Lanes, cases: Sequence[Case]) -> Iterator[Report]:
    """Play cases; one in which the hit did not come is played again with the last one that did."""
    left, tries = list(cases), 0
    while left:
        tries += 1
        again = []
        for case, report in lanes.play(left):
            reached = report.hits.get(case.point, 0)
            if not report.verdict.faults and 0 < reached < case.hit and tries < TRIES:
                again.append(replace(case, hit=reached))
            else:
                yield report
        left = again


def run(options: Options) -> int:
    """Run the matrix, print what came of it, and return the exit code."""
    began = time.monotonic()
    folder = Path(tempfile.mkdtemp(prefix="proof-"))
    lanes = Lanes(folder, options)
    if options.only is not None:
        scene, point, hit, policy, backend = options.only.split("/")
        reports = list(play_to_death(lanes, [Case(scene, point, int(hit), policy, backend)]))
    else:
        hits, reports = _hits(options, lanes)
        cases = all_cases(hits, has_postgres=options.postgres is not None)
        chosen = choose(cases, len(cases) if options.cases is None else options.cases, random.Random(options.seed))
        part, parts = (int(word) for word in options.part.split("/"))
        chosen = chosen[part - 1 :: parts]
        print(f"seed {options.seed}: {len(chosen)} of {len(cases)} cases", flush=True)
        for report in play_to_death(lanes, chosen):
            reports.append(report)
            _tell(report, options)
    return _sum_up(reports, time.monotonic() - began, options)


def _hits(options: Options, lanes: Lanes) -> tuple[dict[str, dict[str, int]], list[Report]]:
    """Count the hits, or take what an earlier run of the same code has counted."""
    if options.counts is not None and options.counts.exists():
        return json.loads(options.counts.read_text()), []
    hits, reports = count_hits(lanes)
    if options.counts is not None:
        options.counts.write_text(json.dumps(hits))
    for report in reports:
        _tell(report, options)
    return hits, reports


def _tell(report: Report, options: Options) -> None:
    for fault in report.verdict.faults:
        print(f"VIOLATION  seed {options.seed}  {report.case}\n  {fault}", flush=True)


def _sum_up(reports: Sequence[Report], took_s: float, options: Options) -> int:
    verdicts = [report.verdict for report in reports]
    violations = sum(bool(verdict.faults) for verdict in verdicts)
    summary = {
        "seed": options.seed,
        "runs": len(reports),
        "deaths": sum(report.deaths for report in reports),
        "requests": sum(verdict.requests for verdict in verdicts),
        "billed": sum(verdict.billed for verdict in verdicts),
        "doubts": sum(verdict.doubts for verdict in verdicts),
        "silent_second_bills": sum(verdict.silent_second_bills for verdict in verdicts),
        "lost_items": sum(verdict.lost_items for verdict in verdicts),
        "violations": violations,
        "took_s": round(took_s, 1),
    }
    slowest = sorted(reports, key=lambda report: -report.took_s)[:3]
    print("slowest: " + ", ".join(f"{report.case} {report.took_s:.1f} s" for report in slowest))
    print(json.dumps(summary))
    return 1 if violations else 0


def main(arguments: Sequence[str]) -> int:
    """Read the command line, see to Postgres, and run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, help="so many of all, chosen by the seed")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    parser.add_argument("--only", metavar="SCENE/POINT/HIT/POLICY/BACKEND", help="one case, as it was printed")
    parser.add_argument("--postgres", metavar="URL", help="a database to use; else a private server is started")
    parser.add_argument("--counts", type=Path, metavar="FILE", help="where the counted hits are kept, for a next run")
    parser.add_argument("--part", default="1/1", metavar="K/N", help="of the chosen cases only the K-th of N parts")
    parser.add_argument("--lanes", type=int, default=LANES)
    options = Options(**vars(parser.parse_args(arguments)))
    for name in PRELOAD:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()  # the forks' collectors leave what they share alone
    with ExitStack() as stack:
        if options.postgres is None:
            server: Any = stack.enter_context(services.run_postgres())
            options = replace(options, postgres=server.url())
        return run(options)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
