"""Adaptive concurrency on the command line: set, shown, explained."""

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from batchrun.cli.main import run
from batchrun.core.gauge import Seen
from batchrun.ledger import jobs
from batchrun.ledger.climbs import Report, report_round
from batchrun.ledger.ledger import Ledger
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
