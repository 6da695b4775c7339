"""Doubts that are settled after a job's end: its outputs are written anew, and what was cancelled stays cancelled."""

import time
from pathlib import Path

from batchrun.core.states import JobState
from batchrun.ledger import jobs as job_moves
from batchrun.ledger.liveness import enter
from batchrun.runner.reconcile import fail_doubts, list_doubts
from batchrun.runner.sweep import follow_policy
from tests.runner.bench import Bench, Endpoint, broken, reply


def _with_two_doubts(folder: Path, *, cancelled: bool) -> Bench:
    async def answer(custom_id: str, nth: int):  # type: ignore[no-untyped-def]
        return broken() if custom_id in ("a1", "a2") else reply()

    bench = Bench(folder, count=6, endpoint=Endpoint(answer))
    bench.run()
    with bench.ledger.write() as connection:
        if cancelled:
            job_moves.cancel_job(connection, bench.job_id, now=time.time())
        assert job_moves.move_job(connection, bench.job_id, "finalize", now=time.time())
        assert job_moves.move_job(connection, bench.job_id, "close" if cancelled else "complete", now=time.time())
    return bench


def test_giving_up_one_doubt_of_a_cancelled_job_sends_no_other_again(tmp_path: Path) -> None:
    bench = _with_two_doubts(tmp_path, cancelled=True)
    with bench.ledger.write() as connection:
        job_moves.change_settings(connection, bench.job_id, now=time.time(), on_unknown="retry")
    job, doubts = list_doubts(bench.ledger, "job", custom_ids=["a1"])
    assert fail_doubts(bench.ledger, job, doubts) == 1
    assert (bench.job.state, bench.job.was_cancelled) == (JobState.FINALIZING, True)
    assert follow_policy(bench.ledger, bench.job) == 0
    assert bench.counts == {"completed": 4, "failed": 1, "in_doubt": 1}


def test_giving_up_a_doubt_of_a_completed_job_writes_its_outputs_anew(tmp_path: Path) -> None:
    bench = _with_two_doubts(tmp_path, cancelled=False)
    job, doubts = list_doubts(bench.ledger, "job")
    assert fail_doubts(bench.ledger, job, doubts) == 2
    assert bench.job.state is JobState.FINALIZING


def test_only_the_holder_ends_a_job(tmp_path: Path) -> None:
    bench = Bench(tmp_path, count=2)
    bench.run()
    other = enter(bench.ledger, name="other", now=time.time())
    with bench.ledger.write() as connection:
        assert not job_moves.move_job(connection, bench.job_id, "finalize", now=time.time(), holder=other.id)
        assert job_moves.move_job(connection, bench.job_id, "finalize", now=time.time(), holder=bench.worker.id)
