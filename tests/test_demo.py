"""The demo: that it runs, and above all that it can fail."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from batchrun.cli.context import Context
from batchrun.cli.demo import close
from batchrun.cli.main import run
from batchrun.cli.proof import Bills, Check, count_bills, prove
from batchrun.cli.stage import EndpointLog
from batchrun.cli.tour import Tour, TourFault

IDS = ["a", "b", "c"]


def arrival(item: str, *, billed: bool = True, method: str = "POST") -> str:
    return json.dumps({"ev": "arrive", "method": method, "item": item, "billed": billed})


def status(*, certain: int, possible: int, answered: int = 0, refused: int = 0, sent: int = 0) -> dict[str, Any]:
    return {
        "billing": {"certain_requests": certain, "possible_requests": possible},
        "attempts": {"answered": answered, "refused": refused, "unusable": 0, "sent": sent, "open": 0},
    }


def broken(log: Iterable[str], about: dict[str, Any], **changes: Any) -> list[str]:
    """Name the claims that a log breaks, where a and b are answered and c is in doubt unless said otherwise."""
    files = {"ids": IDS, "output": ["a", "b"], "errors": ["c"]} | changes
    return [check.name for check in prove(count_bills(log), status=about, **files) if not check.holds]


GOOD = [
    arrival("a", billed=False),  # refused
    arrival("a"),
    arrival("b"),
    arrival("c"),
    json.dumps({"ev": "end", "req": 1, "outcome": "answered"}),
    arrival("-", billed=False, method="GET"),
]
GOOD_STATUS = status(certain=2, possible=1, answered=2, refused=1, sent=4)


def test_a_log_that_keeps_the_promise_breaks_no_claim() -> None:
    assert broken(GOOD, GOOD_STATUS) == []


def test_an_item_billed_twice_is_a_violation() -> None:
    about = status(certain=2, possible=2, answered=2, refused=1, sent=5)
    assert broken([*GOOD, arrival("c")], about) == ["billed_once"]


def test_a_bill_for_something_that_was_never_asked_is_a_violation() -> None:
    about = status(certain=2, possible=2, answered=2, refused=1, sent=5)
    assert broken([*GOOD, arrival("d")], about) == ["billed_once"]


def test_a_bill_that_the_ledger_does_not_know_is_a_violation() -> None:
    about = status(certain=2, possible=0, answered=2, refused=1, sent=4)
    assert broken(GOOD, about) == ["bills_bounded"]


def test_a_bill_that_the_ledger_made_up_is_a_violation() -> None:
    about = status(certain=4, possible=0, answered=2, refused=1, sent=4)
    assert broken(GOOD, about) == ["bills_bounded"]


def test_a_request_that_was_not_written_down_is_a_violation() -> None:
    about = status(certain=2, possible=1, answered=2, refused=1, sent=3)
    assert broken(GOOD, about) == ["requests_written_down"]


def test_a_reply_to_no_request_is_a_violation() -> None:
    about = status(certain=2, possible=1, answered=2, refused=3, sent=5)
    assert broken(GOOD, about) == ["requests_written_down"]


@pytest.mark.parametrize(
    ("output", "errors"),
    [(["a", "b"], []), (["a", "b", "c"], ["c"]), (["a", "a", "b"], ["c"]), (["a", "b"], ["c", "d"]), ([], [])],
)
def test_a_lost_a_doubled_or_a_foreign_id_is_a_violation(output: list[str], errors: list[str]) -> None:
    assert broken(GOOD, GOOD_STATUS, output=output, errors=errors) == ["ids_once"]


def test_a_consent_allows_one_more_bill_for_its_item_and_no_other() -> None:
    about = status(certain=3, possible=1, answered=3, refused=1, sent=5)
    files = {"output": IDS, "errors": []}
    assert broken([*GOOD, arrival("c")], about, consented=["c"], **files) == []
    assert broken([*GOOD, arrival("b")], about, consented=["c"], **files) == ["billed_once"]
    about = status(certain=3, possible=2, answered=3, refused=1, sent=6)
    assert broken([*GOOD, arrival("c"), arrival("c")], about, consented=["c"], **files) == ["billed_once"]


def test_a_broken_claim_is_exit_7_and_names_the_evidence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tour = Tour(Context(), tmp_path, 40)
    checks = [Check("billed_once", "no item was billed twice", "ticket-00007", holds=False)]
    assert close(tour, checks, kept=True, elapsed_s=1.0) == 7
    said = capsys.readouterr().out
    assert "BROKEN: no item was billed twice (ticket-00007)" in said
    assert str(tmp_path) in said


def test_a_submit_that_ends_too_early_stops_the_tour(tmp_path: Path) -> None:
    log, said = tmp_path / "requests.jsonl", tmp_path / "said"
    log.touch()
    said.touch()
    child = subprocess.Popen([sys.executable, "-c", ""], text=True)
    child.wait()
    with pytest.raises(TourFault, match="ended before it could be killed"):
        Tour(Context(), tmp_path, 40)._await_middle(child, EndpointLog(log), said)


# -- whole runs -------------------------------------------------------------------------------------------------------


def demo(*arguments: str, folder: Path) -> "subprocess.CompletedProcess[str]":
    env = {**os.environ, "TMPDIR": str(folder)}
    return subprocess.run(
        [sys.executable, "-m", "batchrun", "demo", *arguments],
        cwd=folder,
        env=env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )


@pytest.mark.slow
@pytest.mark.process
@pytest.mark.timeout(180)
def test_the_demo_kills_resumes_and_proves(tmp_path: Path) -> None:
    ended = demo("--items", "60", "--keep", folder=tmp_path)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert [f"{number}/5" for number in range(1, 6) if f"\n{number}/5  " in ended.stdout] == [
        "1/5", "2/5", "3/5", "4/5", "5/5",
    ]  # fmt: skip
    for typed in ("submit jobs/job.json", "resume demo", "reconcile demo", "reconcile demo --retry"):
        assert f"$ batchrun {typed}\n" in ended.stdout
    assert "verdict: no silent second bill" in ended.stdout
    (kept,) = tmp_path.glob("batchrun-demo-*")
    # The same evidence with one bill more does not pass.
    log = (kept / "requests.jsonl").read_text().splitlines()
    bills = count_bills(log)
    again = next(line for line in log if '"billed":true' in line)
    assert max(bills.by_item.values()) == 2
    assert count_bills([*log, again]).total == bills.total + 1


@pytest.mark.slow
@pytest.mark.process
@pytest.mark.timeout(180)
def test_the_demo_speaks_json_and_leaves_nothing_behind(tmp_path: Path) -> None:
    ended = demo("--items", "40", "--json", folder=tmp_path)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    told = json.loads(ended.stdout)
    assert (told["schema"], told["kind"], told["ok"], told["folder"]) == ("batchrun/1", "demo", True, None)
    assert told["killed_in_flight"] >= 4
    assert told["under_hold"]["counts"]["in_doubt"] == told["in_doubt"] > 0
    assert told["after_retry"]["counts"]["completed"] == 40
    assert all(check["holds"] for part in ("under_hold", "after_retry") for check in told[part]["checks"])
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
@pytest.mark.process
@pytest.mark.timeout(180)
def test_the_demo_fails_where_the_log_shows_a_second_bill(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def doctored(log: Iterable[str]) -> Bills:
        lines = list(log)
        return count_bills([*lines, next(line for line in lines if '"billed":true' in line)])

    monkeypatch.setattr("batchrun.cli.proof.count_bills", doctored)
    monkeypatch.chdir(tmp_path)
    assert run(["demo", "--items", "40", "--keep"]) == 7
    said = capsys.readouterr().out
    assert "FAIL  no item was billed twice" in said
    assert "verdict: BROKEN" in said
    assert "--retry\n" not in said.partition("5/5")[2]
    assert len(list(tmp_path.glob("batchrun-demo-*"))) == 1


@pytest.mark.slow
@pytest.mark.process
@pytest.mark.timeout(120)
def test_ctrl_c_ends_the_tour_and_all_its_processes(tmp_path: Path) -> None:
    env = {**os.environ, "TMPDIR": str(tmp_path), "PYTHONUNBUFFERED": "1"}
    tour = subprocess.Popen(
        [sys.executable, "-m", "batchrun", "demo"], env=env, stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    assert tour.stdout is not None
    for line in tour.stdout:
        if "full run" in line:  # submit's trial has ended: it is at work
            break
    tour.send_signal(signal.SIGINT)
    assert tour.wait(30) == 130
    assert list(tmp_path.iterdir()) == []
    deadline = time.monotonic() + 60
    while left := processes_in(tmp_path):
        assert time.monotonic() < deadline, left
        time.sleep(0.05)


def processes_in(folder: Path) -> list[str]:
    """Return the processes that work in this folder."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdecimal() and os.readlink(entry / "cwd").startswith(str(folder)):
                found.append(entry.name)
        except OSError:
            continue  # gone, or not ours
    return found


def test_the_demo_takes_no_foreign_ledger() -> None:
    assert run(["demo", "--db", "other.db"]) == 2
