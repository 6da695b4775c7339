"""Many workers on one job, with Redis between them: the same promise, one concurrency, and nobody who must stay."""

import os
import re
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from batchrun.core.states import ItemState, JobState
from batchrun.ledger.engines import sqlite_module
from tests.lab import Lab, Run, assert_accounts_agree, assert_outputs_whole
from tests.process.steps import (
    TASK,
    assert_sent_once,
    assert_settled,
    gated,
    ids,
    stop_between_writes,
    until,
    until_said,
)

SUBMIT = ("submit", "jobs/job.json")
READY = "is ready"
LIVENESS_S = 10.0  # BATCHRUN_DEAD_AFTER_S: after so long a dead worker's share must be in use again


@pytest.fixture(params=["sqlite", "postgres"])
def make_scaled(request: pytest.FixtureRequest, make_lab: Callable[..., Lab], redis_url: str) -> Callable[..., Lab]:
    """Return a function that makes a lab with a broker; its arguments are settings of its mock endpoint."""

    def make(**settings: object) -> Lab:
        lab = make_lab(**settings)
        if request.param == "postgres":
            lab.db = request.getfixturevalue("postgres_url")
        lab.env["BATCHRUN_BROKER"] = redis_url
        return lab

    return make


def worker(lab: Lab, *options: str) -> Run:
    """Start a worker and wait until it works."""
    run = lab.start("worker", "--alone", *(options or ("-c", "8")))
    until_said(run, READY)
    return run


def test_three_workers_share_the_concurrency_and_a_killed_ones_part_is_used_again(
    make_scaled: Callable[..., Lab],
) -> None:
    lab = make_scaled(latency_ms=150)
    lab.write_input(120)
    lab.write_spec(concurrency=6, on_unknown="retry")
    workers = [worker(lab) for _ in range(3)]
    with gated(lab, admits=40):
        run = lab.start(*SUBMIT)
        lab.await_arrivals(40 + 6, run=run)  # six of them stand at the gate
        workers[0].kill()
        until(lambda: is_full_again(lab, 6, after=46), "the dead one's slots are in use", timeout_s=LIVENESS_S + 10)
    assert run.wait() == 0, run.err
    assert run.err.count("trial of batch-001: 10 of 120 items") == 1  # no worker has told it
    assert_settled(lab, count=120, concurrency=6)
    assert lab.standing().counts[ItemState.COMPLETED] == 120
    assert_outputs_whole(lab, ids(120))
    for one in workers[1:]:
        one.kill(signal.SIGTERM)
        assert one.wait() == 0, one.err


def is_full_again(lab: Lab, concurrency: int, *, after: int) -> bool:
    """Say whether so many requests stand at the endpoint's gate, some of which came after the first so many."""
    assert lab.mock is not None
    return lab.arrivals() > after and lab.mock.stats()["in_flight"] == concurrency


def test_the_same_job_embedded_and_scaled_gives_the_same_outputs(make_scaled: Callable[..., Lab]) -> None:
    lab = make_scaled(latency_ms=20)
    lab.write_input(60)
    lab.write_spec(concurrency=8)
    lab.write_spec("other.json", task_id="embedded", output_file="./outputs/embedded.jsonl", concurrency=8)
    crew = [worker(lab), worker(lab)]
    scaled = lab.run(*SUBMIT, "--json")
    assert scaled.wait() == 0, scaled.err
    assert scaled.json["trial_report"]["size"] == 10  # however quickly the job went by
    embedded = lab.start("submit", "jobs/other.json", env={"BATCHRUN_BROKER": ""})
    assert embedded.wait() == 0, embedded.err
    texts = [
        {line["custom_id"]: line["response"]["body"]["choices"] for line in lab.lines(name)}
        for name in ("out.jsonl", "embedded.jsonl")
    ]
    assert texts[0] == texts[1]
    assert list(texts[0]) == list(texts[1]) == ids(60)
    for one in crew:
        one.kill(signal.SIGTERM)
        assert one.wait() == 0


def test_whoever_submits_may_leave_and_the_job_goes_on(make_scaled: Callable[..., Lab]) -> None:
    lab = make_scaled(latency_ms=50)
    lab.write_input(80)
    lab.write_spec(concurrency=4)
    detached = lab.run(*SUBMIT, "--detach")
    assert detached.wait() == 0, detached.err
    assert lab.arrivals() == 0
    with gated(lab, admits=30):
        crew = worker(lab)
        lab.await_arrivals(30, run=crew)
        watching = lab.start("status", TASK, "-w")
        again = lab.start(*SUBMIT)
        until_said(again, "Ctrl-C leaves it to them")
        again.kill(signal.SIGINT)
        assert again.wait() == 130, again.err
    assert "goes on without this command" in again.err
    assert watching.wait() == 0, watching.err
    assert lab.standing().job.state is JobState.COMPLETED
    assert_sent_once(lab)
    assert_outputs_whole(lab, ids(80))
    crew.kill(signal.SIGTERM)
    assert crew.wait() == 0


def test_a_worker_that_is_told_to_leave_finishes_what_it_has_in_flight(make_scaled: Callable[..., Lab]) -> None:
    lab = make_scaled()
    lab.write_input(40)
    lab.write_spec(concurrency=8)
    leaving, staying = worker(lab), worker(lab)
    with gated(lab, admits=14):
        run = lab.start(*SUBMIT)
        lab.await_arrivals(14, run=run)
        leaving.kill(signal.SIGTERM)
    assert leaving.wait() == 0, leaving.err
    assert run.wait() == 0, run.err
    assert_sent_once(lab)
    assert lab.standing().counts[ItemState.COMPLETED] == 40
    staying.kill(signal.SIGTERM)
    assert staying.wait() == 0


@pytest.mark.timeout(120)
def test_a_stopped_worker_starts_nothing_when_it_wakes_and_its_late_answers_are_kept(
    make_scaled: Callable[..., Lab],
) -> None:
    lab = make_scaled(latency_ms=300)
    lab.env["BATCHRUN_DEAD_AFTER_S"] = "2"
    lab.write_input(60)
    lab.write_spec(concurrency=8)
    frozen, awake = worker(lab), worker(lab)
    with gated(lab, admits=16):
        run = lab.start(*SUBMIT)
        lab.await_arrivals(16 + 8, run=run)  # every slot waits for its answer: nothing is on its way when it is stopped
        stop_between_writes(lab, frozen)
        # As if it were on another host: its lock is not seen, only its counter, and that stands still.
        for lock in (lab.folder / ".batchrun" / "workers").glob("*.lock"):
            if lock_holder(lock) == frozen.process.pid:
                lock.unlink()
    assert run.wait(60) in (0, 6), run.err
    before = lab.arrivals()
    frozen.kill(signal.SIGCONT)
    frozen.kill(signal.SIGTERM)
    assert frozen.wait() in (0, 75), frozen.err
    assert lab.arrivals() == before, "it started nothing"
    assert_sent_once(lab)
    assert_accounts_agree(lab)
    awake.kill()


def lock_holder(lock: Path) -> int:
    """Return the process that has a worker's lock open, 0 when none has."""
    inode = lock.stat().st_ino
    for line in Path("/proc/locks").read_text().splitlines():
        fields = line.split()
        if fields[1] == "FLOCK" and fields[5].rpartition(":")[2] == str(inode):
            return int(fields[4])
    return 0


@pytest.mark.parametrize("number", range(3))
def test_with_more_workers_than_slots_the_job_ends_by_itself(
    number: int, make_lab: Callable[..., Lab], redis_url: str
) -> None:
    lab = make_lab(latency_ms=30)
    lab.env["BATCHRUN_BROKER"] = redis_url
    lab.write_input(30)
    lab.write_spec(concurrency=1)
    crew = [worker(lab, "-c", "4") for _ in range(3)]
    run = lab.run(*SUBMIT, "--no-trial")
    assert run.wait() == 0, run.err
    assert_settled(lab, count=30, concurrency=1)
    assert_sent_once(lab)
    for one in crew:
        one.kill(signal.SIGTERM)
        assert one.wait() == 0, one.err


def test_workers_on_a_copy_of_the_ledger_send_nothing_while_the_original_runs(
    make_lab: Callable[..., Lab], redis_url: str
) -> None:
    lab = make_lab(latency_ms=100)
    lab.env["BATCHRUN_BROKER"] = redis_url
    lab.write_input(300)
    lab.write_spec(concurrency=16)
    crew = [worker(lab, "-c", "4") for _ in range(2)]
    with gated(lab, admits=40):
        run = lab.start(*SUBMIT, "--no-trial")
        lab.await_arrivals(40, run=run)
        copy = lab.folder / "copy.db"
        module = sqlite_module()
        connection = module.connect(lab.folder / ".batchrun" / "ledger.db", timeout=20)
        connection.execute("VACUUM INTO ?", (str(copy),))
        connection.close()
        strangers = [worker(lab, "-c", "4", "--db", f"sqlite:///{copy}") for _ in range(2)]
    assert run.wait() == 0, run.err
    assert_sent_once(lab)
    assert lab.arrivals() == 300
    for one in [*crew, *strangers]:
        one.kill(signal.SIGTERM)
        assert one.wait() == 0, one.err


def test_a_job_without_a_worker_says_so_and_waits(make_scaled: Callable[..., Lab]) -> None:
    lab = make_scaled()
    lab.write_input(5)
    lab.write_spec()
    run = lab.start(*SUBMIT)
    until_said(run, "no worker is at work on this job")
    crew = worker(lab)
    assert run.wait() == 0, run.err
    crew.kill()


def test_a_supervised_worker_is_started_again_when_it_dies(make_scaled: Callable[..., Lab]) -> None:
    lab = make_scaled(latency_ms=50)
    lab.write_input(60)
    lab.write_spec(concurrency=4, on_unknown="retry")
    boss = lab.start("worker", "-c", "4")
    until_said(boss, READY)
    with gated(lab, admits=20):
        run = lab.start(*SUBMIT)
        lab.await_arrivals(20, run=run)
        os.kill(boss.children()[0], signal.SIGKILL)
    assert run.wait() == 0, run.err
    assert boss.err.count(READY) == 2
    assert "signal SIGKILL" in boss.err
    boss.kill(signal.SIGTERM)
    assert boss.wait() == 0, boss.err


def test_a_worker_whose_supervisor_is_killed_finishes_what_it_has_and_leaves(
    make_lab: Callable[..., Lab], redis_url: str
) -> None:
    lab = make_lab(latency_ms=500)
    lab.env["BATCHRUN_BROKER"] = redis_url
    lab.write_input(40)
    lab.write_spec(concurrency=4)
    boss = lab.start("worker", "-c", "4")
    until_said(boss, READY)
    run = lab.start(*SUBMIT, "--no-trial")
    lab.await_arrivals(4, run=run)
    boss.kill()
    until(lambda: "the supervisor of this worker is gone" in boss.err, "the orphan has seen it")
    until(lambda: re.search(r"worker \w+ leaves", boss.err) is not None, "the orphan has left")
    run.kill()
    counts = lab.standing().counts
    assert counts[ItemState.COMPLETED] == lab.arrivals() < 40
    assert counts[ItemState.RUNNING] == counts[ItemState.IN_DOUBT] == 0
