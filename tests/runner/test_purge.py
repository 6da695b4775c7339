"""`purge` waits for whoever may still have answers, adopts those of the dead, and then forgets."""

import json
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import insert

from batchrun.core.concurrency import Concurrency
from batchrun.core.outcome import Break, Reply
from batchrun.core.states import JobState
from batchrun.errors import EndpointFault, IllegalMove, JobBusy
from batchrun.ledger import jobs as job_moves
from batchrun.ledger.claims import claim
from batchrun.ledger.compaction import Compaction
from batchrun.ledger.jobs import Job
from batchrun.ledger.liveness import Worker, beat, enter
from batchrun.ledger.rescue import rescue
from batchrun.ledger.schema import attempts
from batchrun.ledger.sweeps import bury
from batchrun.runner.evidence import describe
from batchrun.runner.finalize import finalize
from batchrun.runner.means import Rules
from batchrun.runner.purge import PurgeReport, jobs_to_purge, plan_purge, purge_jobs
from batchrun.runner.purged import CHANGE, SEND, WRITE, purged_when, refuse_purged
from batchrun.runner.reconcile import fail_doubts, list_doubts
from batchrun.runner.resume import change_of_mind
from batchrun.runner.retry import plan_retry
from tests.ledger.desk import let_lock_go
from tests.runner.bench import Bench, Endpoint, broken, reply
from tests.runner.jobs import a_job

DEAD_AFTER_S = 0.5


async def _some_in_doubt(custom_id: str, nth: int) -> Reply | Break:
    return broken() if custom_id in ("a1", "a2") else reply()


def ended(folder: Path, answer: Any = None, **settings: Any) -> Bench:
    """Return a job that has ended, and whose process has left."""
    bench = Bench(folder, count=6, endpoint=Endpoint(answer), **settings)
    bench.run()
    finalize(bench.ledger, bench.job, holder=bench.worker.id)
    with bench.ledger.write() as connection:
        job_moves.drop(connection, bench.job_id, worker_id=bench.worker.id, active_s=0.0)
    return bench


def left(bench: Bench) -> Bench:
    bench.worker.leave(bench.ledger, now=time.time())
    return bench


def purge(
    bench: Bench,
    *names: str,
    is_named: bool = True,
    rules_of: Callable[[Job], Rules] | None = None,
    dead_after_s: float = DEAD_AFTER_S,
) -> PurgeReport:
    gear = replace(bench.gear(), dead_after_s=dead_after_s)
    if rules_of is not None:
        gear = replace(gear, rules_of=rules_of)
    return purge_jobs(bench.ledger, gear, ["job"], is_named=is_named)


def test_a_purge_says_what_is_gone_and_what_is_left(tmp_path: Path) -> None:
    bench = left(ended(tmp_path, _some_in_doubt))
    before = {name: (tmp_path / name).read_bytes() for name in ("out.jsonl", "out.errors.jsonl")}
    (tmp_path / "out.jsonl.partial").write_text("answers so far")
    plan = plan_purge(bench.ledger, ["job"])
    report = purge(bench)
    (one,) = report.purged
    assert one.contents == plan.purged[0].contents
    assert (one.contents.requests, one.contents.answers, one.in_doubt, one.was_purged) == (6, 4, 2, False)
    assert [path.name for path in one.files] == ["out.jsonl", "out.errors.jsonl"]
    assert {name: (tmp_path / name).read_bytes() for name in before} == before
    assert not (tmp_path / "out.jsonl.partial").exists(), "that one is ours"
    assert (report.compaction, report.left) == (Compaction.DONE, [])
    assert bench.job.purged_at is not None
    assert bench.job.holder is None
    assert bench.counts == {"completed": 4, "in_doubt": 2}


def test_a_plan_changes_nothing(tmp_path: Path) -> None:
    bench = left(ended(tmp_path))
    plan = plan_purge(bench.ledger, ["job"])
    assert (plan.purged[0].contents.requests, plan.compaction) == (6, None)
    assert not bench.job.is_purged
    assert plan_purge(bench.ledger, ["job"]) == plan


def test_a_purge_again_deletes_nothing_and_keeps_the_time_of_the_first(tmp_path: Path) -> None:
    bench = left(ended(tmp_path))
    purge(bench)
    at = bench.job.purged_at
    report = purge(bench)
    assert (report.purged[0].was_purged, report.purged[0].contents.requests) == (True, 0)
    assert report.compaction is Compaction.DONE
    assert bench.job.purged_at == at


# -- whom it waits for ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("state", [JobState.IN_PROGRESS, JobState.PAUSED, JobState.FINALIZING, JobState.CANCELLING])
def test_a_job_that_has_not_ended_is_refused_with_what_to_do(tmp_path: Path, state: JobState) -> None:
    bench = left(Bench(tmp_path, count=1))
    with bench.ledger.write() as connection:
        connection.exec_driver_sql(f"UPDATE jobs SET state = '{state.value}'")
    with pytest.raises(IllegalMove, match="only a job that has ended can be purged") as refused:
        jobs_to_purge(bench.ledger, "job", older_than_s=None)
    assert "batchrun resume job" in str(refused.value.hint)
    with pytest.raises(IllegalMove):
        purge(bench)


def test_a_job_that_somebody_holds_is_left_alone(tmp_path: Path) -> None:
    bench = left(ended(tmp_path))
    other = enter(bench.ledger, name="other", now=time.time())
    with bench.ledger.write() as connection:
        assert job_moves.take(connection, bench.job_id, worker_id=other.id, instead_of=None, now=time.time())
    with pytest.raises(JobBusy, match="is performed by other"):
        purge(bench)
    assert not bench.job.is_purged
    report = purge(bench, is_named=False)
    assert [(name, error.kind) for name, error in report.left] == [("job", "job_busy")]
    assert (report.purged, report.compaction) == ([], None)
    other.leave(bench.ledger, now=time.time())


def test_a_process_that_performed_the_job_and_is_idle_is_no_hindrance(tmp_path: Path) -> None:
    bench = ended(tmp_path)
    assert purge(bench).purged[0].contents.requests == 6
    assert not any(any(path.read_bytes()) for path in (tmp_path / "workers").glob("*.spool.*"))


def test_a_process_whose_spool_holds_answers_of_the_job_is_waited_for(tmp_path: Path) -> None:
    """It performs another job by now, whose answer is not in the ledger yet: the segment stays as it is."""
    bench = Bench(tmp_path, count=6)
    assert bench.worker.spool.append(99 << 20 | 1, describe(reply(), "/v1/chat/completions"), b"of another job")
    bench.run()
    finalize(bench.ledger, bench.job, holder=bench.worker.id)
    with bench.ledger.write() as connection:
        job_moves.drop(connection, bench.job_id, worker_id=bench.worker.id, active_s=0.0)
    with pytest.raises(JobBusy, match="may have answers of it in its spool") as refused:
        purge(bench)
    assert "when it is idle or has ended" in str(refused.value.hint)
    assert not bench.job.is_purged
    bench.worker.spool.settled(99 << 20 | 1)
    assert purge(bench).purged[0].contents.requests == 6


@pytest.mark.parametrize("state", ["idle", "at work", "dead"])
def test_a_process_of_another_host_is_asked_for_in_the_ledger(tmp_path: Path, state: str) -> None:
    bench = ended(tmp_path)
    bench.worker.spool.remove()
    with bench.ledger.write() as connection:
        connection.exec_driver_sql("UPDATE workers SET folder = '/elsewhere', host = 'far'")
        if state != "idle":
            values = {"state": "intent", "charge": "possible", "endpoint": "x", "queued_at": 1.0, "claimed_at": 1.0}
            ids = {"key": 99, "job_id": bench.job_id, "worker_id": bench.worker.id, "reserved_pusd": 0}
            connection.execute(insert(attempts).values(values | ids))
    if state == "idle":
        assert purge(bench).purged[0].contents.requests == 6
        return
    if state == "dead":
        for dead_after_s in (DEAD_AFTER_S, 4.0, 16.0):  # who looked too seldom cannot tell, and takes it for at work
            with suppress(JobBusy):
                assert purge(bench, dead_after_s=dead_after_s).purged[0].contents.requests == 6
                return
        raise AssertionError("the dead was never seen to be dead")
    is_over = threading.Event()

    def live() -> None:
        while not is_over.wait(DEAD_AFTER_S / 20):
            with bench.ledger.write() as connection:
                beat(connection, bench.worker.id, in_flight=1, items_per_s=None, tokens_per_s=None)

    with ThreadPoolExecutor() as threads:
        threads.submit(live)
        try:
            with pytest.raises(JobBusy, match="is at work"):
                purge(bench)
        finally:
            is_over.set()


def test_the_holder_of_a_purged_job_was_dead(tmp_path: Path) -> None:
    bench = ended(tmp_path)
    with bench.ledger.write() as connection:
        job_moves.take(connection, bench.job_id, worker_id=bench.worker.id, instead_of=None, now=time.time())
    die(bench.worker)
    assert purge(bench).purged[0].contents.requests == 6
    assert [path.name for path in (tmp_path / "workers").iterdir()] == []


def die(worker: Worker) -> None:
    """Leave a worker's files as its process' death does."""
    worker.spool.close()
    let_lock_go(worker)


def with_an_answer_in_a_dead_spool(folder: Path, *, is_buried: bool) -> Bench:
    """Return a job that ended with a doubt about an item whose answer lies in the spool of a process that died."""
    bench = Bench(folder, count=1)
    lost = enter(bench.ledger, name="lost", now=time.time())
    with bench.ledger.write() as connection:
        job_moves.drop(connection, bench.job_id, worker_id=bench.worker.id, active_s=0.0)
        ids = [row[0] for row in connection.exec_driver_sql("SELECT id FROM items").all()]
        order = {"worker_id": lost.id, "endpoint": "http://127.0.0.1:1/v1", "now": time.time()}
        (one,) = claim(connection, job_id=bench.job_id, item_ids=ids, **order)
    answer = reply()
    assert lost.spool.append(one.key, describe(answer, "/v1/chat/completions"), answer.body)
    with bench.ledger.write() as connection:
        rescue(connection, job_id=bench.job_id, worker_id=lost.id, now=time.time())
        if is_buried:
            bury(connection, lost.id, now=time.time())
        job_moves.move_job(connection, bench.job_id, "finalize", now=time.time())
        job_moves.move_job(connection, bench.job_id, "complete", now=time.time())
    die(lost)
    assert bench.counts == {"in_doubt": 1}
    return left(bench)


@pytest.mark.parametrize("is_buried", [True, False])
def test_an_answer_that_a_dead_process_had_received_reaches_the_outputs_before_it_is_forgotten(
    tmp_path: Path, is_buried: bool
) -> None:
    bench = with_an_answer_in_a_dead_spool(tmp_path, is_buried=is_buried)
    (one,) = purge(bench).purged
    assert (one.contents.answers, one.in_doubt) == (1, 0)
    assert bench.counts == {"completed": 1}
    (line,) = (tmp_path / "out.jsonl").read_text().splitlines()
    assert json.loads(line)["response"]["body"]["choices"][0]["message"]["content"] == "yes"
    assert [path.name for path in (tmp_path / "workers").iterdir()] == []


def test_a_dead_spool_that_cannot_be_judged_stops_the_purge(tmp_path: Path) -> None:
    bench = with_an_answer_in_a_dead_spool(tmp_path, is_buried=False)

    def without_key(job: Job) -> Rules:
        raise EndpointFault("no key")

    with pytest.raises(IllegalMove, match="died and left answers") as refused:
        purge(bench, rules_of=without_key)
    assert "set the key" in str(refused.value.hint)
    assert not bench.job.is_purged
    assert purge(bench).purged[0].contents.answers == 1


# -- which jobs -------------------------------------------------------------------------------------------------------


def test_only_jobs_that_ended_long_enough_ago_are_taken(tmp_path: Path) -> None:
    bench = left(ended(tmp_path))
    with bench.ledger.write() as connection:
        connection.exec_driver_sql(f"UPDATE jobs SET ended_at = {time.time() - 100}")
    assert jobs_to_purge(bench.ledger, None, older_than_s=50.0) == ["job"]
    assert jobs_to_purge(bench.ledger, "job", older_than_s=50.0) == ["job"]
    assert jobs_to_purge(bench.ledger, None, older_than_s=500.0) == []
    with pytest.raises(IllegalMove, match="ended later than that"):
        jobs_to_purge(bench.ledger, "job", older_than_s=500.0)
    purge(bench, is_named=False)
    assert jobs_to_purge(bench.ledger, None, older_than_s=50.0) == []
    assert purge(bench).purged[0].was_purged


# -- what cannot be done afterwards -----------------------------------------------------------------------------------


def test_what_would_send_again_is_refused_and_the_rest_is_not(tmp_path: Path) -> None:
    bench = left(ended(tmp_path, _some_in_doubt))
    change_of_mind(bench.ledger, on_unknown="hold")(bench.job)
    purge(bench)
    before = bench.job
    change_of_mind(bench.ledger, concurrency=Concurrency.of(3), spec_of=lambda job: {"system": "a secret"})(bench.job)
    change_of_mind(bench.ledger, cancelled=True)(bench.job)  # none is cancelled, so nothing would be sent
    assert bench.job == before, "nothing of it is changed"
    with pytest.raises(IllegalMove, match="nothing of it can be sent again"):
        change_of_mind(bench.ledger, on_unknown="retry")(bench.job)
    with pytest.raises(IllegalMove, match="nothing of it can be sent again"):
        plan_retry(bench.ledger, "job")
    job, doubts = list_doubts(bench.ledger, "job")
    assert fail_doubts(bench.ledger, job, doubts) == 2
    assert bench.job.state is JobState.COMPLETED
    assert bench.counts == {"completed": 4, "failed": 2}


def test_cancelled_items_of_a_purged_job_stay_cancelled(tmp_path: Path) -> None:
    bench = Bench(tmp_path, count=2)
    with bench.ledger.write() as connection:
        job_moves.cancel_job(connection, bench.job_id, now=time.time())
        job_moves.drop(connection, bench.job_id, worker_id=bench.worker.id, active_s=0.0)
        job_moves.take(connection, bench.job_id, worker_id=bench.worker.id, instead_of=None, now=time.time())
    finalize(bench.ledger, bench.job, holder=bench.worker.id)
    with bench.ledger.write() as connection:
        job_moves.drop(connection, bench.job_id, worker_id=bench.worker.id, active_s=0.0)
    purge(left(bench))
    with pytest.raises(IllegalMove, match="nothing of it can be sent again"):
        change_of_mind(bench.ledger, cancelled=True)(bench.job)
    assert bench.counts == {"cancelled": 2}


@pytest.mark.parametrize(
    ("why", "hint"), [(SEND, "another task_id"), (CHANGE, "another task_id"), (WRITE, "where they were")]
)
def test_a_refusal_says_when_it_was_purged_and_what_is_left_to_do(why: str, hint: str) -> None:
    refuse_purged(a_job(), why)
    purged = a_job(state=JobState.COMPLETED, purge_began_at=1_700_000_000.0, purged_at=1_700_000_001.0)
    with pytest.raises(IllegalMove) as refused:
        refuse_purged(purged, why)
    assert refused.value.message == f"job 'batch-001' was purged on 2023-11-14 at 22:13:21 UTC: {why}"
    assert hint in str(refused.value.hint)
    half = replace(purged, purged_at=None)
    assert purged_when(half) == "on 2023-11-14 at 22:13:20 UTC"
    with pytest.raises(IllegalMove):
        refuse_purged(half, why)
