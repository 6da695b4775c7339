"""One run of the matrix: a scene in which a process dies at a hit of a point, and what comes after: deaths mostly."""

import random
import shutil
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from batchrun.ledger.ledger import Ledger
from tests.lab import Lab
from tests.process.steps import ids
from tests.proof.forks import fork, wait
from tests.proof.lanes import in_schema
from tests.proof.scenes import MOVE, RESUME, SCENES, SUBMIT, TRIAL, Scene, Step, moved_to
from tests.proof.stage import DIED, PATIENCE_S, Actor, Stage
from tests.proof.verdict import Law, Report, Verdict, judge

FIRST_OPENING = ("schema-written", "schema-durable", "ledger-named")  # points that only a new ledger reaches
ITEMS = 14
RESUMES = 5  # a job that rests before its end is resumed so often
# Where those may die who clear up after a death: what nearly every command comes past that goes on with a job.
ONCE = (
    *("hold-taken", "sweep-adopted", "rescue-moved", "sweep-buried", "grave-cleared", "file-written", "file-in-place"),
    *("end-begun", "end-written", "end-durable", "hold-let-go", "leave-said"),
)
OFTEN = (
    *("claim-moved", "claim-known", "group-written", "group-durable", "send-permitted", "send-marked", "send-begun"),
    *("receive-whole", "spool-written", "settle-due", "answers-moved", "settle-known"),
)


def draw_death(dice: random.Random) -> tuple[str, int]:
    """Draw a point on the way, and a hit of it that a process is likely to come to."""
    point = dice.choice(ONCE + OFTEN)
    return point, 1 if point in ONCE else dice.choice((1, 1, 1, 2, 3))


@dataclass(frozen=True)
class Plan:
    """What all cases of one run of the matrix have in common."""

    seed: int
    later_deaths: int = 2  # so many die at most of those who clear up
    items: int = ITEMS


@dataclass(frozen=True, order=True)
class Case:
    """A death: where, and in which of the four worlds."""

    scene: str
    point: str
    hit: int  # from 1; 0: nobody dies, and what is reached is counted
    policy: str
    backend: str

    def __str__(self) -> str:
        return "/".join((self.scene, self.point, str(self.hit), self.policy, self.backend))


def make_empty_ledger(path: Path) -> None:
    """Make a ledger without jobs, for cases that do not look at its making."""
    wait(fork(lambda: Ledger(str(path), folder=path.parent).close()), timeout_s=PATIENCE_S)


def run_case(case: Case, folder: Path, *, plan: Plan, postgres: str, empty_ledger: Path) -> Report:
    """Play a case in an empty folder, in forks of this process, which opens nothing itself."""
    report = Report(str(case))
    with report.writing():
        if case.backend == "sqlite" and case.hit and case.point not in FIRST_OPENING:
            (folder / ".batchrun").mkdir()
            shutil.copy(empty_ledger, folder / ".batchrun" / "ledger.db")
        _Play(case, folder, plan, postgres, report).run()
    return report


class _Play:
    def __init__(self, case: Case, folder: Path, plan: Plan, postgres: str, report: Report) -> None:
        self._case, self._plan, self._report = case, plan, report
        dice = random.Random(f"{plan.seed}/{case}")
        self._later = [draw_death(dice) for _ in range(plan.later_deaths)]
        self._scene: Scene = SCENES[case.scene]
        lab = Lab(folder, log=folder / "requests.jsonl")
        if case.backend == "postgres":
            lab.db = in_schema(postgres, folder)
        lab.write_input(self._plan.items)
        lab.write_spec(concurrency=self._scene.concurrency, on_unknown=case.policy, trial={"size": TRIAL})
        timing = {"latency_ms": 8, "latency_sigma": 0.3, "retry_after_s": 0.05}
        self._stage = Stage(lab, {"seed": plan.seed, "faults_per_item": 1, **timing, **self._scene.faults})

    def run(self) -> None:
        """Play it to the job's end, and judge."""
        with self._stage:
            self._play()
            self._judge()
        self._report.verdict.faults += self._stage.complaints()

    def _play(self) -> None:
        for step in self._scene.before:
            self._step(step)
        dies_at = (self._case.point, self._case.hit) if self._case.hit else None
        actor = self._run(self._scene.command, dies_at)
        self._report.hits = actor.board.hits()
        if actor.code != DIED:
            assert actor.code in (0, 6), (actor.code, actor.said)
            return
        self._report.deaths += 1
        for command in self._scene.again:
            if self._run_to_an_end(command) == 2 and command == RESUME:  # it died before the job had a name
                self._run_to_an_end(SUBMIT)

    def _run_to_an_end(self, command: tuple[str, ...]) -> int | None:
        """Run a command again and again until it does not die, and return its exit code: death comes back as drawn."""
        while (actor := self._run(command, self._later.pop(0) if self._later else None)).code == DIED:
            self._report.deaths += 1
        return actor.code

    def _step(self, step: Step) -> None:
        if step.first is not None:
            step.first(self._stage.lab)
        actor = self._run(step.command, step.dies_at)
        assert (actor.code == DIED) == (step.dies_at is not None), (actor.code, actor.said)
        self._report.deaths += actor.code == DIED

    def _run(self, command: tuple[str, ...], dies_at: tuple[str, int] | None = None) -> Actor:
        """Run one command to its end."""
        lab = self._stage.lab
        actor = self._stage.start(tuple(word.format(elsewhere=moved_to(lab.folder)) for word in command), dies_at)
        if actor.wait() == 0 and command == MOVE:
            lab.db = moved_to(lab.folder)
        return actor

    def _judge(self) -> None:
        """Judge the job once it has ended; until then, resume it."""
        most = self._report.deaths * self._scene.concurrency
        for _ in range(RESUMES):
            self._report.verdict = Verdict(**self._stage.apart(partial(self._look, most)))
            if self._report.verdict.has_ended:
                break
            self._run(RESUME)

    def _look(self, doubts_at_most: int) -> dict[str, Any]:
        return asdict(judge(self._stage.lab, Law(self._ids(), self._case.policy, doubts_at_most)))

    def _ids(self) -> list[str]:
        count = self._plan.items
        if self._scene.name != "changed input":
            return ids(count)
        return [*ids(count - 1), *ids(count + 2)[count:]]
