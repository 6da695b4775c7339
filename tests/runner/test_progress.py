"""How far a job is: from within the process that performs it, and from another one by what the ledger says."""

import asyncio
import time
from pathlib import Path

import pytest

from batchrun.cli.standing import standing_text
from batchrun.core.outcome import Break, BreakKind, Reply
from batchrun.core.states import ItemState, JobState
from batchrun.ledger import jobs as job_moves
from batchrun.ledger.leases import Load, lease
from batchrun.ledger.liveness import enter
from batchrun.ledger.reports import count_items, count_trial
from batchrun.runner.onlooker import LONELY_S, Onlooker
from batchrun.runner.outage import ENDPOINT_DOWN
from batchrun.runner.progress import Meter, Progress
from batchrun.runner.session import Session
from batchrun.runner.standing import read_standing
from batchrun.runner.tally import Tally
from tests.runner.bench import Bench, Endpoint, broken, reply, until


def seen(bench: Bench) -> Progress:
    progress = Onlooker(bench.ledger, "job").look()
    assert progress is not None
    return progress


def test_an_onlooker_sees_what_the_ledger_and_the_heartbeat_say(tmp_path: Path) -> None:
    gate = asyncio.Event()

    async def answer(custom_id: str, nth: int) -> Reply | Break:
        if custom_id == "a1":
            return broken(BreakKind.LOST)
        if custom_id not in ("a0", "a2", "a3"):
            await gate.wait()
        return reply()

    bench = Bench(tmp_path, count=20, concurrency=4, endpoint=Endpoint(answer))
    moments: list[Progress] = []

    async def look(session: Session) -> None:
        await until(lambda: bench.counts["completed"] == 3 and session.in_flight == 4)
        # The loop is told of a commit after the ledger shows it.
        await until(lambda: session._performer.tally.rates(time.monotonic())[0] is not None)
        session._next_beat = 0.0  # the next sign of life is due
        await session.beat_when_due()
        moments.append(await asyncio.to_thread(seen, bench))
        gate.set()

    bench.run(look)
    (moment,) = moments
    assert moment.phase == "running"
    assert (moment.scope_done, moment.scope_total) == (4, 20)
    assert moment.counts[ItemState.COMPLETED] == 3
    assert moment.counts[ItemState.IN_DOUBT] == 1
    assert (moment.in_flight, moment.concurrency) == (4, 4)
    assert moment.items_per_s is not None
    assert moment.tokens_per_s is not None
    assert moment.e2el_p50_s == pytest.approx(0.001)
    assert moment.left_s is None  # one look measures nothing
    assert moment.last_failure is not None
    assert (moment.last_failure.custom_id, moment.last_failure.to) == ("a1", ItemState.IN_DOUBT)
    assert moment.failed_ago_s is not None
    assert moment.failed_ago_s < 20


def test_every_phase_has_its_name_from_outside(tmp_path: Path) -> None:
    bench = Bench(tmp_path, count=5)
    assert seen(bench).phase == "running"

    def move(name: str, **more: str) -> None:
        with bench.ledger.write() as connection:
            assert job_moves.move_job(connection, bench.job_id, name, now=1.0, **more)

    def force(state: JobState, phase: str) -> None:
        with bench.ledger.write() as connection:
            connection.exec_driver_sql(f"UPDATE jobs SET state = '{state}', phase = '{phase}', reason = NULL")

    move("pause", reason=ENDPOINT_DOWN, message="connection refused")
    assert (seen(bench).phase, seen(bench).note) == ("waiting", "endpoint down: connection refused")
    move("resume")
    move("pause", reason="paused_by_user", message="paused by you")
    assert seen(bench).phase == "draining"
    force(JobState.IN_PROGRESS, "trial")
    assert seen(bench).phase == "trial"
    force(JobState.VALIDATING, "full")
    moment = seen(bench)
    assert (moment.phase, moment.scope_done, moment.scope_total, moment.counts) == ("validating", 5, 5, {})
    assert moment.percent == 99
    force(JobState.FINALIZING, "full")
    assert (seen(bench).phase, seen(bench).percent) == ("finalizing", None)
    force(JobState.COMPLETED, "full")
    assert seen(bench).phase == "finalizing"  # until its holder lets go: only then it is known how long it took
    with bench.ledger.write() as connection:
        job_moves.drop(connection, bench.job_id, worker_id=bench.worker.id, active_s=0.0)
    assert Onlooker(bench.ledger, "job").look() is None


@pytest.mark.parametrize(("state", "is_told"), [(JobState.IN_PROGRESS, True), (JobState.COMPLETED, False)])
def test_nobody_performs_a_job_that_has_ended_although_it_is_held_a_moment_longer(
    state: JobState, is_told: bool, tmp_path: Path
) -> None:
    bench = Bench(tmp_path, count=5)
    with bench.ledger.write() as connection:
        connection.exec_driver_sql(f"UPDATE jobs SET state = '{state}'")
    standing = read_standing(bench.ledger, "job")
    assert standing.holder is not None
    assert any("performed by bench" in line for line in standing_text(standing)) is is_told


def test_a_throttled_job_waits_until_its_time_has_come(tmp_path: Path) -> None:
    bench = Bench(tmp_path, count=5)
    with bench.ledger.write() as connection:
        connection.exec_driver_sql("UPDATE jobs SET throttle_until_at = 4e9, throttle_wait_s = 4e9")
    assert seen(bench).phase == "waiting"
    with bench.ledger.write() as connection:
        connection.exec_driver_sql("UPDATE jobs SET throttle_until_at = 1.0")
    assert seen(bench).phase == "running"


def test_a_shared_job_is_watched_by_what_all_its_workers_do_and_while_it_waits_for_one(tmp_path: Path) -> None:
    bench = Bench(tmp_path, count=5)
    with bench.ledger.write() as connection:
        job_moves.share(connection, bench.job_id, is_shared=True)
        job_moves.drop(connection, bench.job_id, worker_id=bench.worker.id, active_s=0.0)
    clock = [0.0]
    onlooker = Onlooker(bench.ledger, "job", monotonic=lambda: clock[0])
    moment = onlooker.look()
    assert moment is not None
    assert (moment.phase, moment.note, moment.in_flight) == ("running", None, 0)  # a worker may be about to take it
    clock[0] = LONELY_S + 1
    moment = onlooker.look()
    assert moment is not None
    assert (moment.phase, moment.in_flight) == ("waiting", 0)
    assert "no worker" in str(moment.note)
    other = enter(bench.ledger, name="other", now=1.0)
    with bench.ledger.write() as connection:
        for worker, in_flight in ((bench.worker, 1), (other, 2)):
            lease(connection, bench.job_id, worker_id=worker.id, load=Load(2, in_flight, 1.5, 20.0))
    moment = seen(bench)
    assert (moment.phase, moment.in_flight, moment.items_per_s, moment.tokens_per_s) == ("running", 3, 3.0, 40.0)
    with bench.ledger.write() as connection:
        assert job_moves.move_job(connection, bench.job_id, "pause", now=1.0, reason="paused_by_user")
    assert Onlooker(bench.ledger, "job").look() is None


def test_nobody_is_watched_who_has_left_or_died(tmp_path: Path) -> None:
    bench = Bench(tmp_path, count=5)
    with bench.ledger.write() as connection:
        job_moves.drop(connection, bench.job_id, worker_id=bench.worker.id, active_s=0.0)
    assert Onlooker(bench.ledger, "job").look() is None


def test_a_trial_is_measured_by_its_own_items_and_not_by_what_was_done_before(tmp_path: Path) -> None:
    bench = Bench(tmp_path, count=20)
    with bench.ledger.write() as connection:
        connection.exec_driver_sql("UPDATE items SET state = 'rejected' WHERE position < 8")
        connection.exec_driver_sql("UPDATE items SET is_trial = true WHERE position BETWEEN 10 AND 14")
    with bench.ledger.read() as connection:
        meter = Meter(count_items(connection, bench.job_id), count_trial(connection, bench.job_id))
    moment = meter.moment(bench.job, Tally(0.0), phase="trial", trial_only=True, note=None, is_away=False, now=1.0)
    assert (moment.scope_done, moment.scope_total) == (0, 5)
    whole = meter.moment(bench.job, Tally(0.0), phase="running", trial_only=False, note=None, is_away=False, now=1.0)
    assert (whole.scope_done, whole.scope_total) == (8, 20)
