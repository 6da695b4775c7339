"""The crash matrix: python -m tests.proof.matrix [--cases N] [--seed S] [--only CASE] [--postgres URL] ...

Each point x first, second, last hit x hold, retry x SQLite, Postgres, in every scene that reaches it. The process that
is started here imports everything and opens nothing; every run is forked from it.
"""

import argparse
import json
import random
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path

from tests.proof import points

if __name__ == "__main__":
    points.install()

from tests import services
from tests.proof.case import ITEMS, Case, Plan, make_empty_ledger, run_case
from tests.proof.lanes import LANES, Lanes, prepare, sum_up, tell
from tests.proof.scenes import SCENES
from tests.proof.verdict import Report

Hits = dict[str, dict[str, int]]  # how often a scene reaches a point
TRIES = 4  # to reach a point, or to die at its last hit: how many hits there are differs a little from run to run


class Matrix:
    """Plays cases."""

    def __init__(self, plan: Plan, *, postgres: str, lanes: int) -> None:
        self._lanes = Lanes(postgres=postgres, lanes=lanes)
        empty = self._lanes.folder / "empty.db"
        make_empty_ledger(empty)
        self._run = partial(run_case, plan=plan, postgres=postgres, empty_ledger=empty)

    def count_hits(self) -> tuple[Hits, list[Report]]:
        """Play every scene without a death, and say how often each reaches each point.

        What a scene with faults reaches is partly chance: such scenes are played again while a point is missing.
        """
        undisturbed = [Case(scene.name, "", 0, scene.policies[0], scene.backends[0]) for scene in SCENES.values()]
        hits: Hits = {}
        reports: list[Report] = []
        for _ in range(TRIES):
            for case, report in self._lanes.play(undisturbed, self._run):
                hits[case.scene] = hits.get(case.scene, {}) | report.hits
                reports.append(report)
            if not set(points.find_points()) - {name for reached in hits.values() for name in reached}:
                break
            undisturbed = [case for case in undisturbed if SCENES[case.scene].faults]
        return hits, reports

    def play(self, cases: Sequence[Case]) -> Iterator[Report]:
        """Play cases to the death; where the hit did not come, again with the last one that did."""
        left, tries = list(cases), 0
        while left:
            tries += 1
            again = []
            for case, report in self._lanes.play(left, self._run):
                reached = report.hits.get(case.point, 0)
                if not report.verdict.faults and 0 < reached < case.hit and tries < TRIES:
                    again.append(replace(case, hit=reached))
                else:
                    yield report
            left = again


def all_cases(hits: Hits) -> list[Case]:
    """Return every case that there is."""
    return [
        Case(scene.name, point, hit, policy, backend)
        for scene in SCENES.values()
        for point, count in hits[scene.name].items()
        for hit in sorted({1, min(2, count), count})
        for policy in scene.policies
        for backend in scene.backends
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


def run(options: argparse.Namespace, postgres: str) -> int:
    """Run the matrix, print what came of it, and return the exit code."""
    began = time.monotonic()
    plan = Plan(options.seed, options.later_deaths, options.items)
    matrix = Matrix(plan, postgres=postgres, lanes=options.lanes)
    reports: list[Report] = []
    if options.only is not None:
        scene, point, hit, policy, backend = options.only.split("/")
        chosen = [Case(scene, point, int(hit), policy, backend)]
    else:
        hits, reports = _hits(matrix, options.counts)
        cases = all_cases(hits)
        chosen = choose(cases, len(cases) if options.cases is None else options.cases, random.Random(options.seed))
        part, parts = (int(word) for word in options.part.split("/"))
        chosen = chosen[part - 1 :: parts]
        print(f"seed {options.seed}: {len(chosen)} of {len(cases)} cases", flush=True)
    for report in reports:
        tell(report)
    for report in matrix.play(chosen):
        reports.append(report)
        tell(report)
    return sum_up(reports, seed=options.seed, took_s=time.monotonic() - began)


def _hits(matrix: Matrix, kept: Path | None) -> tuple[Hits, list[Report]]:
    """Count the hits, or take what an earlier run of the same code has counted."""
    if kept is not None and kept.exists():
        found: Hits = json.loads(kept.read_text())
        return found, []
    hits, reports = matrix.count_hits()
    if kept is not None:
        kept.write_text(json.dumps(hits))
    return hits, reports


def main(arguments: Sequence[str]) -> int:
    """Read the command line, see to Postgres, and run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, help="so many of all, chosen by the seed")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    parser.add_argument("--items", type=int, default=ITEMS, metavar="N", help="of each job")
    parser.add_argument("--later-deaths", type=int, default=2, metavar="N", help="so many die at most who clear up")
    parser.add_argument("--only", metavar="SCENE/POINT/HIT/POLICY/BACKEND", help="one case, as it was printed")
    parser.add_argument("--postgres", metavar="URL", help="a database to use; else a private server is started")
    parser.add_argument("--counts", type=Path, metavar="FILE", help="where the counted hits are kept, for a next run")
    parser.add_argument("--part", default="1/1", metavar="K/N", help="of the chosen cases only the K-th of N parts")
    parser.add_argument("--lanes", type=int, default=LANES)
    options = parser.parse_args(arguments)
    prepare()
    with ExitStack() as stack:
        return run(options, options.postgres or stack.enter_context(services.run_postgres()).url())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
