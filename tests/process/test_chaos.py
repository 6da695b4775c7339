"""`batchrun chaos` as a user types it: processes die, the verdict is the endpoint's log's, and nothing stays behind."""

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from batchrun.cli import ordeal_verdict
from batchrun.cli.ordeal import draw
from batchrun.cli.ordeal_verdict import Report, judge
from batchrun.cli.proof import Bills, count_bills
from batchrun.cli.stage import Stage
from batchrun.ledger.ledger import Ledger
from tests.cli.contract import read_stream
from tests.test_demo import processes_in

SEED = "7"  # its first round is under hold, with two processes and consent


def chaos(*arguments: str, folder: Path) -> "subprocess.CompletedProcess[str]":
    """Type `batchrun chaos ARGUMENTS...` in a folder."""
    command = [sys.executable, "-m", "batchrun", "chaos", "--seed", SEED, *arguments]
    env = {**os.environ, "TMPDIR": str(folder)}
    return subprocess.run(
        command, cwd=folder, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )


@pytest.mark.slow
@pytest.mark.process
@pytest.mark.timeout(400)
def test_a_round_kills_and_keeps_every_promise_and_its_evidence_with_one_bill_more_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = chaos("--round", "1", "--keep", "--json", folder=tmp_path)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    (told,) = read_stream(ended.stdout)
    assert (told["ok"], told["silent_second_bills"], told["lost_items"]) == (True, 0, 0)
    assert told["deaths"] >= 1
    assert told["requests"] >= told["answers"] > 0
    folder = Path(told["folder"]) / "round-1"

    def doctored(log: list[str]) -> Bills:
        return count_bills([*log, next(line for line in log if '"billed":true' in line)])

    monkeypatch.setattr(ordeal_verdict, "count_bills", doctored)
    ordeal = draw(int(SEED), 1)
    report = Report(1, str(ordeal), deaths=told["deaths"])
    ledger = Ledger(f"sqlite:///{folder}/.batchrun/ledger.db", folder=folder / ".batchrun")
    judge(Stage(folder, "nowhere"), ledger, ordeal, report, consented=Counter(_consented(folder)))
    assert report.silent_second_bills == 1
    assert any("consent" in violation or "billed twice" in violation for violation in report.violations)
    assert any("row of its own" in violation for violation in report.violations)


def _consented(folder: Path) -> list[str]:
    """Return what the ledger's own account says was sent again: nobody else knows any more."""
    log = (folder / "requests.jsonl").read_text().splitlines()
    return [item for item, count in count_bills(log).by_item.items() if count > 1]


@pytest.mark.slow
@pytest.mark.process
@pytest.mark.timeout(400)
def test_ctrl_c_ends_it_with_all_its_processes_and_leaves_nothing(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "batchrun", "chaos", "--seed", SEED]
    env = {**os.environ, "TMPDIR": str(tmp_path), "PYTHONUNBUFFERED": "1"}
    with (tmp_path.parent / "said").open("w") as said:
        storm = subprocess.Popen(command, env=env, stdout=said, stderr=said, text=True, start_new_session=True)
    deadline = time.monotonic() + 120
    while not [log for log in tmp_path.glob("*/round-1/requests.jsonl") if b'"arrive"' in log.read_bytes()]:
        assert time.monotonic() < deadline
        assert storm.poll() is None
        time.sleep(0.02)
    storm.send_signal(signal.SIGINT)
    assert storm.wait(60) == 130
    assert "stopped after 0 whole rounds" in (tmp_path.parent / "said").read_text()
    assert list(tmp_path.iterdir()) == []
    while left := processes_in(tmp_path):
        assert time.monotonic() < deadline, left
        time.sleep(0.05)


def test_the_seed_of_these_tests_is_one_with_consent() -> None:
    ordeal = draw(int(SEED), 1)
    assert (ordeal.policy, ordeal.consents) == ("hold", True)
