"""A worker on shared jobs, from inside: hints, leases, chores, signals, and faults that must be heard."""

import asyncio
import dataclasses
import json
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from batchrun.core.concurrency import Concurrency
from batchrun.core.states import ItemState, JobState
from batchrun.ledger import jobs as job_moves
from batchrun.ledger.leases import total_load
from batchrun.ledger.register import write_items
from batchrun.runner.crew import Crew
from batchrun.runner.means import Take
from tests.runner.bench import QUICK, Bench, Endpoint, reply, silent_voice

PATIENT = dataclasses.replace(QUICK, idle_claim_s=60.0)  # a worker that waits for hints


class Broker:
    """Hands hints over at once, and counts them."""

    trouble: str | None = None

    def __init__(self) -> None:
        self.hints = 0
        self._take: Take = lambda job_id, item_ids: []

    def start(self, take: Take) -> None:
        self._take = take

    def send(self, job_id: int, item_ids: list[int]) -> None:
        self.hints += len(item_ids)
        self._take(job_id, item_ids)

    def backlog(self) -> int | None:
        return 0

    def stop(self) -> None:
        return None


class Shift:
    """A crew of one worker on the bench's job, shared and held by nobody."""

    def __init__(self, bench: Bench, *, slots: int = 8) -> None:
        self.bench, self.broker, self.said = bench, Broker(), list[str]()
        self.slots = slots
        with bench.ledger.write() as connection:
            job_moves.share(connection, bench.job_id, is_shared=True)
            job_moves.drop(connection, bench.job_id, worker_id=bench.worker.id, active_s=0.0)

    def run(self, act: Callable[[Crew], Awaitable[None]], **gear: Any) -> int:
        """Run the worker; when `act` returns it is told to leave. Return its exit code."""
        voice = silent_voice(self.said)

        async def whole() -> int:
            made = dataclasses.replace(self.bench.gear(), **gear)
            crew = Crew(self.bench.ledger, self.bench.worker, made, self.broker, voice, slots=self.slots)
            working = asyncio.create_task(crew.run())
            await act(crew)
            if not working.done():
                crew.signal(15)
            return await working

        return asyncio.run(asyncio.wait_for(whole(), 100))

    async def to_the_end(self, crew: Crew) -> None:
        await until_true(lambda: self.bench.job.state is JobState.COMPLETED)


async def until_true(look: Callable[[], bool], timeout_s: float = 60.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not look():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.02)


async def slow(custom_id: str, nth: int) -> Any:
    await asyncio.sleep(0.1)
    return reply()


def test_the_work_comes_by_hints(tmp_path: Path) -> None:
    bench = Bench(tmp_path, count=60, waits=PATIENT)
    shift = Shift(bench)

    async def act(crew: Crew) -> None:
        await until_true(lambda: bench.counts["completed"] == 60)

    assert shift.run(act) == 0
    assert shift.broker.hints >= 60


def test_a_shared_job_is_worked_to_its_end_and_its_outputs(tmp_path: Path) -> None:
    bench = Bench(tmp_path, count=60)
    shift = Shift(bench)
    assert shift.run(shift.to_the_end) == 0
    assert sorted(bench.endpoint.sent) == sorted(f"a{number}" for number in range(60))
    assert (tmp_path / "out.jsonl").read_text().count("\n") == 60
    with bench.ledger.read() as connection:
        assert total_load(connection, bench.job_id).wants == 0, "the lease is given back"
    assert bench.job.written_at is not None


def test_files_of_an_earlier_run_are_no_outputs_of_this_one(tmp_path: Path) -> None:
    for name in ("out.jsonl", "out.errors.jsonl"):
        (tmp_path / name).write_text("old\n")
    shift = Shift(Bench(tmp_path, count=3))
    assert shift.run(shift.to_the_end) == 0
    assert "old" not in (tmp_path / "out.jsonl").read_text()


def test_a_fault_of_ours_in_a_job_is_said_and_not_tried_again_at_once(tmp_path: Path) -> None:
    tried: list[int] = []

    def boom(job: Any, way: Any) -> Any:
        tried.append(job.id)
        raise ValueError("a fault of ours")

    async def act(crew: Crew) -> None:
        await until_true(lambda: bool(tried))
        await asyncio.sleep(1.0)

    shift = Shift(Bench(tmp_path, count=3))
    assert shift.run(act, windows_of=boom) == 0
    assert len(tried) == 1
    assert "job: unexpected ValueError: a fault of ours" in shift.said


def test_a_fault_of_ours_in_the_worker_ends_it_so_that_another_one_is_started(tmp_path: Path) -> None:
    shift = Shift(Bench(tmp_path, count=200, endpoint=Endpoint(slow)))

    async def act(crew: Crew) -> None:
        await until_true(lambda: crew.in_flight > 0)
        crew._next_sweep = 0.0

        def broken() -> None:
            raise OSError("no such disk")

        crew._sweep = broken  # type: ignore[method-assign]
        await until_true(lambda: crew.is_closing.is_set() and not crew._posts)

    assert shift.run(act) == 1
    assert "unexpected OSError: no such disk" in shift.said
    assert shift.bench.counts["running"] == 0, "what was in flight has finished"


def test_a_signal_before_the_work_has_begun_is_heard(tmp_path: Path) -> None:
    shift = Shift(Bench(tmp_path, count=500, endpoint=Endpoint(slow)))
    session_of = shift.bench.gear().ways_of
    crews: list[Crew] = []

    def late(job: Any) -> Any:
        crews[0].signal(15)  # just before there is a session to hear it
        return session_of(job)

    async def act(crew: Crew) -> None:
        crews.append(crew)
        await until_true(lambda: crew.is_closing.is_set() and not crew._posts)

    assert shift.run(act, ways_of=late) == 0
    assert len(shift.bench.endpoint.sent) <= 8


def test_a_workers_slots_are_divided_among_its_jobs(tmp_path: Path) -> None:
    bench = Bench(tmp_path, count=60, concurrency=8, endpoint=Endpoint(slow))
    second = another_job(bench, count=60)
    shift = Shift(bench, slots=8)
    with bench.ledger.write() as connection:
        job_moves.share(connection, second, is_shared=True)
        job_moves.drop(connection, second, worker_id=bench.worker.id, active_s=0.0)

    async def act(crew: Crew) -> None:
        await until_true(lambda: [one._performer.concurrency for one in crew._sessions.values()] == [4, 4])
        await until_true(lambda: bench.endpoint.in_flight <= 8)
        bench.endpoint.max_in_flight = 0
        seen = len(bench.endpoint.sent)
        await until_true(lambda: len(bench.endpoint.sent) > seen + 2 * 8)

    shift.run(act)
    assert 0 < bench.endpoint.max_in_flight <= 8


def another_job(bench: Bench, *, count: int) -> int:
    now = time.time()
    spec = {
        **bench.job.spec,
        "output_file": str(bench.folder / "2.jsonl"),
        "error_file": str(bench.folder / "2.e.jsonl"),
    }
    with bench.ledger.write() as connection:
        job = job_moves.register_job(
            connection,
            task_id="second",
            spec=spec,
            input_digest="i",
            params_digest="p",
            total=count,
            phase="full",
            on_unknown="hold",
            concurrency=Concurrency.of(8),
            retry_times=1,
            max_cost_pusd=None,
            holder=bench.worker.id,
            now=now,
        )
    assert job is not None
    write_items(bench.ledger, job.id, [bench._line(number) for number in range(count)], trial=(), now=now)
    with bench.ledger.write() as connection:
        job_moves.move_job(connection, job.id, "open", now=now)
    return job.id


def test_a_pause_that_another_worker_was_asked_for_is_this_ones_too(tmp_path: Path) -> None:
    bench = Bench(tmp_path, count=500, endpoint=Endpoint(slow))
    shift = Shift(bench)

    async def act(crew: Crew) -> None:
        await until_true(lambda: len(bench.endpoint.sent) > 8)
        with bench.ledger.write() as connection:
            job_moves.set_throttle(connection, bench.job_id, wait_s=600.0, now=time.time())
        performer = crew._sessions[bench.job_id]._performer
        await until_true(lambda: performer.lanes.is_held(time.monotonic()) and bench.endpoint.in_flight == 0)
        before = len(bench.endpoint.sent)
        await asyncio.sleep(0.5)  # in which it would send forty
        assert len(bench.endpoint.sent) == before < 500

    shift.run(act)


def test_the_failures_of_all_workers_count_against_fail_on_error(tmp_path: Path) -> None:
    bench = Bench(tmp_path, count=200, fail_on_error=5, endpoint=Endpoint(slow))
    shift = Shift(bench)

    async def act(crew: Crew) -> None:
        await until_true(lambda: len(bench.endpoint.sent) > 4)
        with bench.ledger.write() as connection:  # as other workers would
            connection.exec_driver_sql("UPDATE items SET state = 'failed' WHERE position >= 190")
        await until_true(lambda: crew._sessions[bench.job_id]._performer.failures.failed >= 10)

    shift.run(act)
    assert bench.counts[ItemState.FAILED] == 10


# -- rate limits in a session ------------------------------------------------------------------------------------------


def limited(tmp_path: Path, *, count: int = 24, body: dict[str, Any] | None = None, **limits: int) -> Bench:
    bench = Bench(tmp_path, count=count)
    with bench.ledger.write() as connection:
        job_moves.change_settings(connection, bench.job_id, now=time.time(), **limits)
        if body is not None:
            whole = json.dumps({"messages": [{"role": "user", "content": "a"}], **body})
            connection.exec_driver_sql("UPDATE requests SET body = ?", (whole.encode(),))
    return bench


def test_requests_a_minute_hold_in_a_session(tmp_path: Path) -> None:
    bench = limited(tmp_path, rpm=600)
    began = time.monotonic()
    bench.run()
    assert bench.counts["completed"] == 24
    assert time.monotonic() - began > 0.3, "twenty at once, and then ten a second"


def test_what_a_request_really_used_makes_room_for_the_next(tmp_path: Path) -> None:
    bench = limited(tmp_path, count=14, body={"max_tokens": 500}, tpm=6_000)  # 12 times 500 are a minute's worth
    bench.run(timeout_s=60.0)
    assert bench.counts["completed"] == 14


def test_an_item_that_no_minute_can_hold_fails_unsent_with_its_reason(tmp_path: Path) -> None:
    bench = limited(tmp_path, body={"max_tokens": 5_000}, tpm=1_000)
    bench.run()
    assert bench.counts["failed"] == 24
    assert bench.endpoint.sent == []
    with bench.ledger.read() as connection:
        rows = connection.exec_driver_sql("SELECT DISTINCT cause, state, charge FROM attempts").all()
    assert [tuple(row) for row in rows] == [("too_large_for_tpm", "not_sent", "none")]
