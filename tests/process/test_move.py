"""`batchrun db move`, and a ledger copied: what was sent is not sent again by the other one."""

import json
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from batchrun.core.states import ItemState, JobState
from batchrun.files.epoch import epoch_file, read_epoch
from tests.acceptance.endpoint import ScriptedEndpoint
from tests.lab import Lab, Run, assert_accounts_agree, assert_outputs_whole
from tests.process.steps import (
    TASK,
    assert_sent_once,
    assert_settled,
    gated,
    ids,
    interrupted,
    kill_with_answers_in_hand,
    until,
    until_said,
    until_standing,
)

COUNT, CONCURRENCY = 120, 8
SUBMIT = ("submit", "jobs/job.json", "--no-trial")
RESUME = ("resume", TASK)
OUTPUT = "outputs/out.jsonl"


@pytest.fixture
def lab(make_lab: Callable[..., Lab]) -> Lab:
    lab = make_lab(latency_ms=60)
    lab.write_input(COUNT)
    lab.write_spec(concurrency=CONCURRENCY)
    return lab


def drained(lab: Lab, *, at: int, command: tuple[str, ...] = SUBMIT) -> Run:
    """Start a job and stop it in order when `at` requests have arrived."""
    with gated(lab, admits=at):
        run = lab.start(*command)
        lab.await_arrivals(at, run=run)
        run.kill(signal.SIGINT)
        until_said(run, "draining")
    assert run.wait() == 130, run.err
    return run


def all_that_is_said(lab: Lab) -> dict[str, str]:
    """What every command that only looks says of the job, and the bytes of an export."""
    commands: list[tuple[str, ...]] = [("ls",), ("status", TASK), ("failures", TASK), ("reconcile", TASK)]
    commands += [("show", TASK, item, "--request", "--response") for item in ids(COUNT)[:12]]
    said = {" ".join(command): lab.run(*command, "--json").out for command in commands}
    assert lab.run("export", TASK, "-o", "looked.jsonl").wait() == 0
    for name in ("looked.jsonl", "looked.errors.jsonl"):
        said[name] = (lab.folder / name).read_text()
    return said


# -- moved -------------------------------------------------------------------------------------------------------------


def test_a_job_is_moved_in_the_middle_and_finished_in_postgres(lab: Lab, postgres_url: str) -> None:
    drained(lab, at=50)
    before = all_that_is_said(lab)
    moved = lab.run("db", "move", "--to", postgres_url, "--json")
    assert moved.wait() == 0, moved.err
    assert moved.json["rows"]["items"] == COUNT
    assert moved.json["applied"] is True
    password = postgres_url.partition("://")[2].partition(":")[2].partition("@")[0]
    assert password not in moved.out + moved.err
    old, lab.db = lab.folder / ".batchrun" / "ledger.db", postgres_url
    assert all_that_is_said(lab) == before
    for command in (RESUME, SUBMIT, ("status", TASK), ("ls",), ("cancel", TASK), ("export", TASK)):
        refused = lab.run(*command, "--json", "--db", str(old))
        assert refused.wait() == 1
        error = refused.json["error"]
        assert error["kind"] == "ledger_moved"
        assert "was moved to postgresql+psycopg://" in error["message"]
        assert error["hint"].startswith("export BATCHRUN_DB=postgresql+psycopg://")
    assert lab.run(*RESUME).wait() == 0, lab.runs[-1].err
    assert_settled(lab, count=COUNT, concurrency=CONCURRENCY)
    assert_sent_once(lab)
    assert_outputs_whole(lab, ids(COUNT))
    assert lab.arrivals() == COUNT
    again = lab.run("db", "move", "--to", postgres_url, "--db", str(old), "--json")
    assert again.json["applied"] is False


def test_what_a_killed_process_left_is_moved_as_well(lab: Lab, postgres_url: str) -> None:
    run = lab.start(*SUBMIT)
    lab.await_arrivals(40, run=run)
    kill_with_answers_in_hand(lab, run, CONCURRENCY)
    moved = lab.run("db", "move", "--to", postgres_url)
    assert moved.wait() == 0, moved.err
    assert list((lab.folder / ".batchrun" / "workers").iterdir()) == []
    lab.db = postgres_url
    assert lab.run(*RESUME).wait() in (0, 6), lab.runs[-1].err
    # What it had claimed ahead may stand in doubt, and nothing else: its answers were adopted before the move.
    assert_settled(lab, count=COUNT, doubts_at_most=CONCURRENCY // 4, concurrency=CONCURRENCY)
    assert_sent_once(lab)


def test_doubts_and_consents_keep_their_meaning(make_scripted: Callable[..., tuple[Lab, ScriptedEndpoint]]) -> None:
    rules = [{"when": {"item": ["a00002", "a00004"]}, "replies": [{"answer": {}, "break_at": "head"}], "then": "again"}]
    lab, endpoint = make_scripted(rules=rules)
    lab.write_input(8)
    lab.write_spec()
    assert lab.run(*SUBMIT).wait() == 6
    target = str(lab.folder / "elsewhere" / "ledger.db")
    assert lab.run("db", "move", "--to", target).wait() == 0, lab.runs[-1].err
    lab.db = target
    assert lab.standing().counts[ItemState.IN_DOUBT] == 2
    assert len(endpoint.requests) == 8
    assert lab.run("reconcile", TASK, "--retry", "-y", "--item", "a00002").wait() == 6
    assert len(endpoint.requests) == 9
    assert_accounts_agree(lab)


def test_a_ledger_at_work_is_not_moved_and_its_worker_named(lab: Lab, tmp_path: Path) -> None:
    with gated(lab, admits=5):
        run = lab.start(*SUBMIT)
        lab.await_arrivals(5, run=run)
        refused = lab.run("db", "move", "--to", str(tmp_path / "new.db"))
    assert refused.wait() == 1
    assert "is at work: " in refused.err
    assert f"(pid {run.process.pid} on " in refused.err
    assert run.wait() == 0, run.err
    assert_settled(lab, count=COUNT, concurrency=CONCURRENCY)


def test_a_move_to_nowhere_leaves_everything_as_it_was(lab: Lab) -> None:
    drained(lab, at=20)
    refused = lab.run("db", "move", "--to", "postgresql://somebody:very-secret@127.0.0.1:1/nothing")
    assert refused.wait() == 1
    assert "127.0.0.1:1" in refused.err
    assert "very-secret" not in refused.err + refused.out
    assert lab.run(*RESUME).wait() == 0
    assert_settled(lab, count=COUNT, concurrency=CONCURRENCY)


# -- copied ------------------------------------------------------------------------------------------------------------


def copied(lab: Lab, name: str = "copy") -> str:
    """Copy the ledger with its folder, and return the copy's address."""
    shutil.copytree(lab.folder / ".batchrun", lab.folder / name)
    return str(lab.folder / name / "ledger.db")


def assert_refused(run: Run) -> None:
    assert run.wait() == 1, run.err + run.out
    assert "another copy of ledger" in run.err
    assert ".out.jsonl.epoch" in run.err
    assert "Nothing was sent" in run.err
    assert "billed" in run.err
    assert "Traceback" not in run.err


@pytest.mark.parametrize("first", ["original", "copy"])
def test_of_two_copies_that_are_run_the_second_is_refused(first: str, lab: Lab) -> None:
    interrupted(lab, at=40)
    addresses = {"original": str(lab.folder / ".batchrun" / "ledger.db"), "copy": copied(lab)}
    second = next(name for name in addresses if name != first)
    one = lab.run(*RESUME, "--db", addresses[first])
    assert one.wait() in (0, 6), one.err
    for command in (RESUME, SUBMIT, ("trial", "jobs/job.json"), ("cancel", TASK)):
        assert_refused(lab.run(*command, "--db", addresses[second]))
    refused = lab.run(*RESUME, "--db", addresses[second], "--json")
    assert refused.json["error"]["kind"] == "ledger_copied"
    lab.db = addresses[first]
    assert_settled(lab, count=COUNT, doubts_at_most=10, concurrency=CONCURRENCY)
    assert_sent_once(lab)
    assert lab.run("status", TASK, "--db", addresses[second]).wait() == 0


def test_a_copy_made_while_the_job_runs_is_behind_although_that_run_was_the_only_one(lab: Lab) -> None:
    with gated(lab, admits=30):
        run = lab.start(*SUBMIT, env={"BATCHRUN_HEARTBEAT_S": "0.1"})
        lab.await_arrivals(30, run=run)
        address = copied(lab)
        seen = read_epoch(lab.folder / OUTPUT)
        assert seen is not None
        until(lambda: (now := read_epoch(lab.folder / OUTPUT)) and now.epoch > seen.epoch + 1, "its epoch has moved on")
        run.kill()
        assert run.wait() == -9
    assert_refused(lab.run(*RESUME, "--db", address))
    assert lab.run(*RESUME).wait() in (0, 6), lab.runs[-1].err
    assert_settled(lab, count=COUNT, doubts_at_most=10, concurrency=CONCURRENCY)
    assert_sent_once(lab)


def test_a_copy_that_follows_the_original_is_refused_when_that_ends(lab: Lab) -> None:
    with gated(lab, admits=30):
        run = lab.start(*SUBMIT, env={"BATCHRUN_HEARTBEAT_S": "30"})
        lab.await_arrivals(30, run=run)
        follower = lab.start(*RESUME, "--db", copied(lab), env={"BATCHRUN_DEAD_AFTER_S": "1"})
        until_said(follower, "following it")
    assert run.wait() == 0, run.err
    assert_refused(follower)
    assert_settled(lab, count=COUNT, concurrency=CONCURRENCY)
    assert_sent_once(lab)


def test_a_copy_leaves_the_answers_of_the_dead_to_the_original(lab: Lab) -> None:
    run = lab.start(*SUBMIT)
    lab.await_arrivals(40, run=run)
    received = kill_with_answers_in_hand(lab, run, CONCURRENCY)
    spools = list((lab.folder / ".batchrun" / "workers").glob("*.spool.*"))
    assert lab.run("reconcile", TASK, "--db", copied(lab)).wait() in (0, 6), lab.runs[-1].err
    assert all(path.exists() for path in spools)
    resumed = lab.run(*RESUME)
    assert resumed.wait() in (0, 6), resumed.err
    assert f"{received} answers it had received are kept" in resumed.err
    assert_settled(lab, count=COUNT, doubts_at_most=CONCURRENCY // 4, concurrency=CONCURRENCY)
    assert_sent_once(lab)


def test_a_restored_backup_is_refused_until_the_user_says_that_the_other_one_is_lost(lab: Lab) -> None:
    interrupted(lab, at=30)
    backup = copied(lab, "backup")
    assert lab.run(*RESUME).wait() in (0, 6)
    shutil.rmtree(lab.folder / ".batchrun")
    shutil.copytree(Path(backup).parent, lab.folder / ".batchrun")
    before = lab.arrivals()
    assert_refused(lab.run(*RESUME))
    assert lab.arrivals() == before
    epoch_file(lab.folder / OUTPUT).unlink()
    assert lab.run(*RESUME).wait() in (0, 6), lab.runs[-1].err
    assert lab.arrivals() > before
    assert lab.standing().job.state is JobState.COMPLETED


def test_a_ledger_is_not_refused_by_what_it_wrote_itself_however_it_died(lab: Lab) -> None:
    for at in (10, 30, 50, 70):
        interrupted(lab, at=at, command=SUBMIT if at == 10 else RESUME)
    path = epoch_file(lab.folder / OUTPUT)
    behind = json.loads(path.read_text())
    path.write_text(json.dumps({**behind, "epoch": behind["epoch"] - 1, "token": "of an earlier process"}))
    interrupted(lab, at=90, command=RESUME)
    path.unlink()  # as on another host, or where the outputs were moved
    run = lab.run(*RESUME)
    assert run.wait() in (0, 6), run.err
    assert_settled(lab, count=COUNT, doubts_at_most=50, concurrency=CONCURRENCY)
    assert_sent_once(lab)
    assert path.exists()


def test_a_job_submitted_anew_from_nothing_is_not_refused_by_an_older_ledgers_file(lab: Lab) -> None:
    assert lab.run(*SUBMIT).wait() == 0
    shutil.rmtree(lab.folder / ".batchrun")
    assert lab.run(*SUBMIT).wait() == 0, lab.runs[-1].err


def test_a_file_that_says_nothing_is_named(lab: Lab) -> None:
    interrupted(lab, at=30)
    epoch_file(lab.folder / OUTPUT).write_text("my notes")
    refused = lab.run(*RESUME)
    assert refused.wait() == 1
    assert "it holds something else" in refused.err
    assert f"rm {epoch_file(lab.folder / OUTPUT)}" in refused.err


def test_workers_of_a_copy_stop_and_pause_its_job(lab: Lab, redis_url: str) -> None:
    lab.env |= {"BATCHRUN_BROKER": redis_url, "BATCHRUN_HEARTBEAT_S": "0.1"}
    crew = lab.start("worker", "--alone", "-c", "8")
    until_said(crew, "is ready")
    assert lab.run(*SUBMIT, "--detach").wait() == 0
    lab.await_arrivals(20, run=crew)
    crew.kill()
    crew.process.join()
    address = copied(lab)
    crew = lab.start("worker", "--alone", "-c", "8")
    lab.await_arrivals(60, run=crew)
    before = lab.arrivals()
    stranger = lab.start("worker", "--alone", "-c", "8", "--db", address)
    until_said(stranger, "another copy of ledger")
    until_standing(lab, lambda standing: standing.job.state is JobState.COMPLETED, "the original has ended")
    assert before < lab.arrivals()
    for one in (stranger, crew):
        one.kill(signal.SIGTERM)
        assert one.wait() == 0, one.err
    assert_settled(lab, count=COUNT, doubts_at_most=10)
    assert_sent_once(lab)
