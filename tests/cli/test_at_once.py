"""Adaptive concurrency on the command line: set, shown, explained."""

import json
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from batchrun.cli.main import run
from batchrun.cli.trial_report import trial_text
from batchrun.core.gauge import Seen
from batchrun.core.projection import Estimate
from batchrun.core.states import ItemState
from batchrun.ledger import jobs
from batchrun.ledger.climbs import Report, report_round
from batchrun.ledger.jobs import Job
from batchrun.ledger.ledger import Ledger
from batchrun.ledger.reports import AttemptReport
from batchrun.runner.trial import Projection, TrialReport
from batchrun.runner.trial_answers import Answers
from tests.cli.contract import read_stream
from tests.ledger.desk import hire, register
from tests.runner.jobs import a_job


@pytest.fixture
def ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Ledger]:
    """The folder's ledger, with one job of concurrency 4."""
    monkeypatch.chdir(tmp_path)
    ledger = Ledger(f"sqlite:///{tmp_path}/.batchrun/ledger.db", folder=tmp_path / ".batchrun")
    job = register(ledger, 1, holder=hire(ledger), task_id="batch-001")
    with ledger.write() as connection:
        jobs.keep_spec(connection, job.id, spec=json.dumps(a_job(spec={"error_file": "errors.jsonl"}).spec))
    yield ledger
    ledger.close()


def test_a_range_is_set_and_each_change_is_shown_with_its_reason(
    ledger: Ledger, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["set", "batch-001", "-c", "4-64", "--json"]) == 0
    (told,) = read_stream(capsys.readouterr().out)
    assert told["changes"] == {"concurrency": {"before": 4, "after": "4-64"}}
    with ledger.write() as connection:
        job = jobs.find_job(connection, "batch-001")
        assert job.holder is not None
        report = Report(1, Seen(throttled=2))
        report_round(connection, job.id, worker_id=job.holder, report=report, now=time.time())
        report_round(connection, job.id, worker_id=job.holder, report=report, now=time.time())
    assert run(["status", "batch-001"]) == 0
    assert "at once   4 (of 4-64): nothing has changed it yet" in capsys.readouterr().out
    assert run(["set", "batch-001", "-c", "2-64"]) == 0
    assert capsys.readouterr().out == "batch-001: concurrency is 2-64 (was 4-64)\n"
    with ledger.write() as connection:
        report_round(connection, job.id, worker_id=job.holder, report=report, now=time.time())
    assert run(["status", "batch-001"]) == 0
    assert ": the endpoint refused 2 at 4 at once" in capsys.readouterr().out
    assert run(["status", "batch-001", "--json"]) == 0
    (status,) = read_stream(capsys.readouterr().out)
    assert (status["concurrency"]["now"], status["concurrency"]["allowed"]) == (2, "2-64")
    (change,) = status["concurrency"]["changes"]
    assert (change["before"], change["after"], change["reason"]) == (4, 2, "throttled")


@pytest.mark.parametrize("wrong", ["0", "many", "64-4", "1-20000"])
def test_what_is_no_number_at_once_is_refused_with_what_would_be(
    ledger: Ledger, capsys: pytest.CaptureFixture[str], wrong: str
) -> None:
    assert run(["set", "batch-001", "-c", wrong]) == 2
    assert 'or a range such as "4-64"' in capsys.readouterr().err
    assert run(["set", "batch-001", "-c", "1,000", "--dry-run", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["changes"]["concurrency"]["after"] == 1_000


def a_report(job: Job) -> TrialReport:
    """Return what a trial of ten items says of a hundred that are left."""
    nothing = AttemptReport({}, 0, 0, 0, 10, 0, 0, 0, 0, 0)
    left = Projection(100, Estimate(12.5, 11.0, 14.0), None, None, None, None)
    counts = Counter({ItemState.COMPLETED: 10})
    answers = Answers(of=10, durations_s=[1.0] * 10)
    limits = {"concurrency": job.concurrency, "most_at_once": job.allowed.high}
    return TrialReport(
        job.task_id, None, **limits, size=10, counts=counts, lost=0, total=110, answers=answers, causes=[], setbacks={},
        attempts=nothing, price=None, projection=left, changes=[],
    )  # fmt: skip


def test_a_projection_says_at_how_many_at_once_it_holds_where_there_may_be_more() -> None:
    told = "\n".join(trial_text(a_report(a_job(spec={"concurrency": "4-64"}))))
    (line,) = (line for line in told.splitlines() if line.startswith("full run: 100 items left, about "))
    assert line.endswith(" at 8 at once")
    assert "at once   8 requests now; up to 64 if that proves to be quicker" in told
    assert "at once" not in "\n".join(trial_text(a_report(a_job())))
