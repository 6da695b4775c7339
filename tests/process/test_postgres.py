"""The ledger in Postgres: the same processes, the same promise."""

import random
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from batchrun.core.states import ItemState, JobState
from tests.lab import Lab, assert_accounts_agree, assert_outputs_whole
from tests.process.steps import (
    TASK,
    assert_sent_once,
    assert_settled,
    gated,
    ids,
    interrupted,
    performer_among,
    until_said,
)

COUNT, CONCURRENCY = 120, 8
SUBMIT = ("submit", "jobs/job.json", "--no-trial")
RESUME = ("resume", TASK)


@pytest.fixture
def lab(make_lab: Callable[..., Lab], postgres_url: str) -> Lab:
    lab = make_lab(latency_ms=50)
    lab.db = postgres_url
    lab.write_input(COUNT)
    lab.write_spec(concurrency=CONCURRENCY)
    return lab


def test_a_whole_job_with_its_ledger_in_postgres(lab: Lab) -> None:
    run = lab.run("submit", "jobs/job.json")
    assert run.wait() == 0, run.err
    assert_settled(lab, count=COUNT, concurrency=CONCURRENCY)
    assert_sent_once(lab)
    assert_outputs_whole(lab, ids(COUNT))
    before = (lab.folder / "outputs" / "out.jsonl").read_bytes()
    for command in (RESUME, ("submit", "jobs/job.json"), ("export", TASK)):
        assert lab.run(*command).wait() == 0
    assert (lab.folder / "outputs" / "out.jsonl").read_bytes() == before
    assert lab.arrivals() == COUNT
    assert lab.db is not None
    password = lab.db.partition("://")[2].partition(":")[2].partition("@")[0]
    checked = lab.run("db", "check")
    assert checked.wait() == 0, checked.err
    assert password not in "".join(one.out + one.err for one in lab.runs)
    assert not (lab.folder / ".batchrun" / "ledger.db").exists()


@pytest.mark.parametrize("number", range(5))
def test_kill_and_resume_with_the_ledger_in_postgres(number: int, lab: Lab) -> None:
    dice = random.Random(f"postgres-{number}")
    interrupted(lab, at=dice.randint(1, COUNT), command=SUBMIT)
    again = lab.start(*RESUME)
    again.process.join(dice.uniform(0.1, 0.5))
    again.kill()
    again.process.join()
    last = lab.run(*RESUME)
    assert last.wait() in (0, 6), (number, last.err)
    standing = assert_settled(lab, count=COUNT, doubts_at_most=20, concurrency=CONCURRENCY)
    assert_sent_once(lab)
    assert_outputs_whole(lab, ids(COUNT))
    settled = lab.run("reconcile", TASK, "--retry", "-y")
    assert settled.wait() == 0, (number, settled.err)
    billed_twice = lab.judged().repeated
    assert len(billed_twice) <= standing.counts[ItemState.IN_DOUBT]
    assert assert_accounts_agree(lab).counts[ItemState.COMPLETED] == COUNT


def test_of_two_resumes_one_performs_and_the_other_takes_over_in_postgres(lab: Lab) -> None:
    interrupted(lab, at=20, command=SUBMIT)
    with gated(lab, admits=60):
        runs = [lab.start(*RESUME) for _ in range(2)]
        first = performer_among(lab, runs)
        (other,) = (run for run in runs if run is not first)
        until_said(other, "following it")
        lab.await_arrivals(60, run=first)
        first.kill()
        assert first.wait() == -9
    assert other.wait() in (0, 6), other.err
    assert_settled(lab, count=COUNT, doubts_at_most=20, concurrency=CONCURRENCY)
    assert_sent_once(lab)


def test_two_submits_of_one_new_job_are_one_job_in_postgres(lab: Lab) -> None:
    runs = [lab.start("submit", "jobs/job.json") for _ in range(2)]
    assert [run.wait() for run in runs] == [0, 0], [run.err for run in runs]
    assert lab.standing().job.state is JobState.COMPLETED
    assert_settled(lab, count=COUNT, concurrency=CONCURRENCY)
    assert_sent_once(lab)


def test_a_postgres_that_is_away_is_named_without_its_password(lab: Lab, tmp_path: Path) -> None:
    lab.db = "postgresql+psycopg://somebody:very-secret@127.0.0.1:1/nothing"
    run = lab.run("submit", "jobs/job.json")
    assert run.wait() == 1, run.err
    assert "127.0.0.1:1" in run.err
    assert "very-secret" not in run.err + run.out
    assert "unexpected" not in run.err
    assert lab.arrivals() == 0


def test_a_job_in_postgres_is_purged_and_accounted_for(lab: Lab) -> None:
    assert lab.run(*SUBMIT).wait() == 0
    before = lab.standing()
    assert lab.run("export", TASK, "-o", "all.csv", "--join-input", "--order", "finish").wait() == 0
    assert len((lab.folder / "all.csv").read_text().splitlines()) == COUNT + 1
    run = lab.run("purge", TASK, "-y")
    assert run.wait() == 0, run.err
    assert f"purged: {COUNT} requests, {COUNT} answers" in run.out
    assert "when Postgres vacuums its tables" in run.out
    with closing(lab.ledger()) as ledger, ledger.read() as connection:
        for table in ("requests", "answers"):
            assert connection.exec_driver_sql(f"SELECT count(*) FROM {table}").scalar() == 0
    assert lab.run("export", TASK).wait() == 2
    after = assert_accounts_agree(lab)
    assert (after.counts, after.attempts) == (before.counts, before.attempts)
