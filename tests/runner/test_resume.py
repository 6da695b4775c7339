"""What a resume says that it would do, and that saying it changes nothing."""

import time
from pathlib import Path

import pytest

from batchrun.core.outcome import Break, Reply
from batchrun.core.states import JobState
from batchrun.errors import IllegalMove
from batchrun.ledger import jobs as job_moves
from batchrun.runner.resume import ResumePlan, plan_resume
from batchrun.runner.standing import read_standing
from tests.runner.bench import Bench, Endpoint, broken, reply


@pytest.fixture
def half(tmp_path: Path) -> Bench:
    """A job of ten items with one in doubt, stopped by a wrong key with some still pending."""

    async def answer(custom_id: str, nth: int) -> Reply | Break:
        if custom_id == "a0":
            return broken()
        number = int(custom_id[1:])
        return reply() if number < 4 else reply(401, {"error": {"message": "no such key"}})

    bench = Bench(tmp_path, count=10, concurrency=1, endpoint=Endpoint(answer))
    bench.run()
    assert bench.counts == {"in_doubt": 1, "completed": 3, "pending": 6}
    return bench


def plan(bench: Bench, *, on_unknown: str | None = None, cancelled: bool = False) -> ResumePlan:
    return plan_resume(bench.ledger, read_standing(bench.ledger, "job"), on_unknown=on_unknown, cancelled=cancelled)


def test_a_plan_tells_what_is_sent_what_stays_in_doubt_and_what_is_kept(half: Bench) -> None:
    before = half.job
    assert plan(half) == ResumePlan(to_send=6, to_send_again=0, in_doubt=1, unsettled=0, kept=3)
    assert plan(half, on_unknown="retry") == ResumePlan(to_send=6, to_send_again=1, in_doubt=0, unsettled=0, kept=3)
    assert half.job == before
    assert half.counts == {"in_doubt": 1, "completed": 3, "pending": 6}


def test_what_was_cancelled_is_sent_only_when_asked_for(half: Bench) -> None:
    with half.ledger.write() as connection:
        job_moves.cancel_job(connection, half.job_id, now=time.time())
    assert half.counts == {"in_doubt": 1, "completed": 3, "cancelled": 6}
    assert plan(half, on_unknown="retry") == ResumePlan(to_send=0, to_send_again=0, in_doubt=1, unsettled=0, kept=3)
    assert plan(half, cancelled=True).to_send == 6


def test_a_job_that_was_never_completely_registered_has_no_plan(half: Bench) -> None:
    with half.ledger.write() as connection:
        connection.exec_driver_sql(f"UPDATE jobs SET state = '{JobState.VALIDATING}'")
    with pytest.raises(IllegalMove, match="never completely registered"):
        plan(half)
