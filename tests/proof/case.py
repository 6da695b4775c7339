"""One run of the matrix: a scene in which a process dies at a hit of a point, and what comes after."""

import json
import shutil
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from batchrun.errors import BatchrunError
from batchrun.ledger.ledger import Ledger
from batchrun.mock.config import MockConfig
from batchrun.mock.server import render_base_url
from tests.lab import QUICK, Lab, become_batchrun
from tests.process.steps import ids
from tests.proof.forks import fork, fork_endpoint, kill, wait
from tests.proof.points import Board, find_points, use
from tests.proof.scenes import COUNT, MOVE, RESUME, SCENES, SUBMIT, TRIAL, Scene, Step, moved_to
from tests.proof.verdict import Verdict, judge

PATIENCE_S = 60.0
DIED = -9
FIRST_OPENING = ("schema-written", "schema-durable", "ledger-named")  # points that only a new ledger reaches
RESUMES = 5  # a job that rests before its end is resumed so often


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


@dataclass
class Report:
    """What came of a case."""

    case: str
    deaths: int = 0
    hits: dict[str, int] = field(default_factory=dict)
    verdict: Verdict = field(default_factory=Verdict)
    took_s: float = 0.0


def make_empty_ledger(path: Path) -> None:
    """Make a ledger without jobs, for cases that do not look at its making."""
    wait(fork(lambda: Ledger(str(path), folder=path.parent).close()), timeout_s=PATIENCE_S)


def run_case(case: Case, folder: Path, *, seed: int, postgres: str | None, empty_ledger: Path) -> Report:
    """Play a case in an empty folder, in forks of this process, which opens nothing itself."""
    began = time.monotonic()
    report = Report(str(case))
    try:
        if case.backend == "sqlite" and case.hit and case.point not in FIRST_OPENING:
            (folder / ".batchrun").mkdir()
            shutil.copy(empty_ledger, folder / ".batchrun" / "ledger.db")
        _Play(case, folder, seed, postgres, report).run()
    except (AssertionError, TimeoutError, BatchrunError) as error:
        report.verdict.faults.append(f"{type(error).__name__}: {error}")
    report.took_s = time.monotonic() - began
    return report


class _Play:
    def __init__(self, case: Case, folder: Path, seed: int, postgres: str | None, report: Report) -> None:
        self._case, self._report = case, report
        self._scene: Scene = SCENES[case.scene]
        self._lab = Lab(folder, log=folder / "requests.jsonl")
        self._seed = seed
        self._board = Board(list(find_points()))
        self._runs = 0
        if case.backend == "postgres":
            assert postgres is not None, "no Postgres to run this on"
            self._lab.db = f"{postgres}?options=-csearch_path%3Dcase_{folder.name}"

    def run(self) -> None:
        """Play it to the job's end, and judge."""
        self._lab.write_input(COUNT)
        self._lab.write_spec(concurrency=self._scene.concurrency, on_unknown=self._case.policy, trial={"size": TRIAL})
        with ExitStack() as stack:
            config = MockConfig(
                log_path=str(self._lab.log),
                latency_ms=8,
                latency_sigma=0.3,
                seed=self._seed,
                faults_per_item=1,
                retry_after_s=0.05,
                **self._scene.faults,
            )
            pid, port = fork_endpoint(config)
            stack.callback(kill, pid)
            self._lab.base_url = render_base_url(config.host, port)
            self._play()
            self._judge()

    def _play(self) -> None:
        for step in self._scene.before:
            self._step(step)
        deadly = (self._case.point, self._case.hit) if self._case.hit else None
        code = self._command(self._scene.command, deadly)
        self._report.hits = self._board.hits()
        assert code in (0, 6, DIED), self._said(code)
        if code != DIED:
            assert self._report.hits.get(self._case.point, 0) < self._case.hit or deadly is None
            return
        self._report.deaths += 1
        for command in self._scene.again:
            if self._command(command) == 2 and command == RESUME:  # it died before the job had a name
                self._command(SUBMIT)

    def _step(self, step: Step) -> None:
        if step.first is not None:
            step.first(self._lab)
        code = self._command(step.command, step.dies_at)
        assert (code == DIED) == (step.dies_at is not None), self._said(code)
        self._report.deaths += code == DIED

    def _command(self, command: tuple[str, ...], deadly: tuple[str, int] | None = None) -> int:
        """Run one command in a fork; return its exit code."""
        self._board.clear(deadly)
        self._runs += 1
        lab, out, err = self._lab, *(self._lab.folder / f"run-{self._runs}.{name}" for name in ("out", "err"))
        words = [word.format(elsewhere=moved_to(lab.folder)) for word in command]
        env = QUICK | {"OPENAI_BASE_URL": lab.base_url or ""} | ({"BATCHRUN_DB": lab.db} if lab.db else {})
        use(self._board)
        try:
            pid = fork(lambda: become_batchrun(words, str(lab.folder), env, str(out), str(err), None))
            code = wait(pid, timeout_s=PATIENCE_S)
        except TimeoutError as error:
            raise TimeoutError(f"{' '.join(words)}: {error}\n{err.read_text()[-3000:]}") from None
        finally:
            use(None)
        if command == MOVE and code == 0:
            lab.db = moved_to(lab.folder)
        return code

    def _said(self, code: int) -> str:
        return f"exit {code}; {(self._lab.folder / f'run-{self._runs}.err').read_text()[-3000:]}"

    def _judge(self) -> None:
        """Judge the job once it has ended; until then, resume it."""
        most = self._report.deaths * int(1.25 * self._scene.concurrency)
        for _ in range(RESUMES):
            self._report.verdict = Verdict(**self._apart(partial(self._look, most)))
            if self._report.verdict.has_ended:
                break
            self._command(RESUME)
        for path in sorted(self._lab.folder.glob("run-*.err")):
            text = path.read_text()
            if "Traceback" in text or "unexpected" in text:
                self._report.verdict.faults.append(f"{path.name}: {text[-3000:]}")

    def _look(self, doubts_at_most: int) -> dict[str, Any]:
        ids_, policy = self._ids(), self._case.policy
        return asdict(judge(self._lab, ids=ids_, policy=policy, doubts_at_most=doubts_at_most))

    def _ids(self) -> list[str]:
        if self._scene.name != "changed input":
            return ids(COUNT)
        return [*ids(COUNT - 1), *ids(COUNT + 2)[COUNT:]]

    def _apart(self, look: Callable[[], Any]) -> Any:
        """Do something in a fork, and return what it returns: nothing that it opens stays open here."""
        path = self._lab.folder / "apart.json"
        code = wait(fork(lambda: path.write_text(json.dumps(look()))), timeout_s=PATIENCE_S)
        assert code == 0, f"{look} ended with {code}"
        return json.loads(path.read_text())


def make_schemas(url: str, names: Sequence[str]) -> None:
    """Make places in a Postgres database for the ledgers of cases, by the names of their folders."""

    def make() -> None:
        import psycopg

        with closing(psycopg.connect(url, autocommit=True)) as connection:
            for name in names:
                connection.execute(f"CREATE SCHEMA case_{name}")

    assert wait(fork(make), timeout_s=PATIENCE_S) == 0
