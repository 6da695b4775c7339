"""The same key again: a new attempt, one bill, only where the key is good, and a doubt that nothing ends stays one."""

import json
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

from batchrun.core.outcome import Break, Reply, Usage
from batchrun.core.prices import Cost, Price
from batchrun.errors import UsageFault
from batchrun.ledger.doubts import note_charge
from batchrun.ledger.reports import report_attempts
from batchrun.ledger.rescue import rescue
from batchrun.runner.reconcile import list_doubts
from batchrun.runner.replay import TRIES, Again, Replayed, replay_doubts
from tests.runner.bench import Bench, Endpoint, broken, reply

PRICE = Price(input_per_1m_usd=1, output_per_1m_usd=2)
WORST, COST = 1_000_000_000, 20_000_000
IN_USE = reply(409, {"error": {"message": "in progress"}}, retry_after="7")


def make(folder: Path, *again: Reply | Break) -> Bench:
    """A job of two items, one in doubt; `again` is what its further requests get, a good answer at last."""

    async def answer(custom_id: str, nth: int) -> Reply | Break:
        if custom_id == "a1":
            return reply()
        return broken() if nth == 1 else (*again, reply())[min(nth - 2, len(again))]

    bench = Bench(folder, count=2, endpoint=Endpoint(answer), price=PRICE, worst_pusd=WORST, account="acc")
    with bench.ledger.write() as connection:
        spec = json.dumps({**bench.job.spec, "idempotency_retention_s": 100.0})
        connection.execute(text("UPDATE jobs SET spec = :spec"), {"spec": spec})
    bench.run()
    assert bench.counts == {"completed": 1, "in_doubt": 1}
    return bench


def ask(bench: Bench, *, is_dry: bool = False) -> Again:
    waits: list[float] = []

    async def sleep(seconds: float) -> None:
        waits.append(seconds)

    job, doubts = list_doubts(bench.ledger, "job")
    (again,) = replay_doubts(
        bench.ledger, job, doubts, gear=bench.gear(), worker=bench.worker, is_dry=is_dry, sleep=sleep
    )
    bench.said += [f"{seconds:g}" for seconds in waits if seconds]
    return again


def bills(bench: Bench) -> tuple[int, int, int, int]:
    """Return certain and possible requests, and what the job has spent and reserved."""
    with bench.ledger.read() as connection:
        report = report_attempts(connection, bench.job_id)
    return report.certain_requests, report.possible_requests, bench.job.spent_pusd, bench.job.reserved_pusd


def test_a_doubt_is_answered_under_its_key_and_counts_as_one_bill(tmp_path: Path) -> None:
    bench = make(tmp_path)
    assert bills(bench) == (1, 1, COST, WORST)
    assert ask(bench, is_dry=True).result is Replayed.IN_DOUBT
    assert ask(bench).result is Replayed.COMPLETED
    assert bench.counts == {"completed": 2}
    assert bills(bench) == (2, 0, 2 * COST, 0)
    with bench.ledger.read() as connection:
        rows = connection.execute(text("SELECT key, idempotency_key, replays FROM attempts WHERE key >> 20 = 1"))
        (first, first_key, _), (_, second_key, replays) = rows.all()
    assert (first_key, second_key, replays) == (bench.ledger.attempt_id(first), first_key, first)
    sent = dict(zip(bench.endpoint.sent, bench.endpoint.keys, strict=True))
    assert sent["a0"] == first_key
    assert len(set(bench.endpoint.keys)) == 2


@pytest.mark.parametrize(
    "between",
    [
        [IN_USE, IN_USE],
        [reply(429, {"error": {"message": "slow down"}})],
        [broken(), broken()],
        [reply(500, {"error": {"message": "no"}})],
    ],
)
def test_what_may_pass_is_waited_for_and_asked_again(tmp_path: Path, between: list[Reply | Break]) -> None:
    bench = make(tmp_path, *between)
    assert ask(bench).result is Replayed.COMPLETED
    assert bills(bench) == (2, 0, 2 * COST, 0)
    assert bench.endpoint.sent.count("a0") == 2 + len(between)
    if between[0] is IN_USE:
        assert bench.said[-2:] == ["7", "7"]


@pytest.mark.parametrize(
    ("answer", "sent"),
    [
        (IN_USE, TRIES),
        (broken(), TRIES),
        (reply(422, {"error": {"message": "other body"}}), 1),
        (reply(401, {"error": {"message": "no key"}}), 1),
    ],
)
def test_a_doubt_that_nothing_ends_stays_the_doubt_it_was(tmp_path: Path, answer: Any, sent: int) -> None:
    bench = make(tmp_path, *[answer] * 20)
    (before,) = list_doubts(bench.ledger, "job")[1]
    assert ask(bench).result is Replayed.IN_DOUBT
    (after,) = list_doubts(bench.ledger, "job")[1]
    assert (after.attempt_id, after.item.cause, after.possible_pusd) == (before.attempt_id, before.item.cause, WORST)
    assert bills(bench) == (1, 1, COST, WORST)
    assert bench.endpoint.sent.count("a0") == 1 + sent


def test_an_answer_that_is_none_fails_the_item_and_keeps_the_one_bill_possible(tmp_path: Path) -> None:
    bench = make(tmp_path, reply(200, {"choices": []}))
    assert ask(bench).result is Replayed.FAILED
    assert bench.counts == {"completed": 1, "failed": 1}
    assert bills(bench) == (1, 1, COST, WORST)


def test_an_answer_without_usage_keeps_the_worst_case_once(tmp_path: Path) -> None:
    message = {"message": {"role": "assistant", "content": "yes"}, "finish_reason": "stop"}
    bench = make(tmp_path, reply(200, {"id": "c", "choices": [message]}))
    assert ask(bench).result is Replayed.COMPLETED
    assert bills(bench) == (2, 0, COST, WORST)


def test_a_bill_that_was_known_is_not_counted_again(tmp_path: Path) -> None:
    bench = make(tmp_path)
    with bench.ledger.write() as connection:
        key = connection.execute(text("SELECT key FROM attempts WHERE state = 'unknown'")).scalar_one()
        usage = Usage(10, 5)
        assert note_charge(connection, key, usage=usage, cost=Cost(COST), reported_pusd=None, now=0.0)
        assert not note_charge(connection, key, usage=usage, cost=Cost(COST), reported_pusd=None, now=0.0)
    assert bills(bench) == (2, 0, 2 * COST, 0)
    assert ask(bench).result is Replayed.COMPLETED
    assert bills(bench) == (2, 0, 2 * COST, 0)


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE attempts SET account = 'another'",
        "UPDATE attempts SET endpoint = 'http://127.0.0.1:2/v1'",
        "UPDATE attempts SET idempotency_key = NULL",
        "UPDATE attempts SET claimed_at = claimed_at - 101",
        "UPDATE attempts SET claimed_at = claimed_at + 101",
    ],
)
def test_a_key_is_used_only_where_and_as_long_as_it_is_good(tmp_path: Path, change: str) -> None:
    bench = make(tmp_path)
    with bench.ledger.write() as connection:
        connection.execute(text(change))
    assert ask(bench, is_dry=True).result is Replayed.NO_KEY
    assert ask(bench).result is Replayed.NO_KEY
    assert (len(bench.endpoint.sent), bench.counts) == (2, {"completed": 1, "in_doubt": 1})


def test_a_doubt_is_asked_for_as_it_was_shown_and_by_the_holder_alone(tmp_path: Path) -> None:
    bench = make(tmp_path)
    for change in ("UPDATE items SET fence = fence + 1", "UPDATE items SET is_current = 0"):
        job, doubts = list_doubts(bench.ledger, "job")
        with bench.ledger.write() as connection:
            connection.execute(text(f"{change} WHERE state = 'in_doubt'"))
        (again,) = replay_doubts(bench.ledger, job, doubts, gear=bench.gear(), worker=bench.worker)
        assert (again.result, len(bench.endpoint.sent)) == (Replayed.NO_KEY, 2)


@pytest.mark.parametrize("begun", [None, ()], ids=["it may have left", "it never began"])
def test_a_replay_whose_process_died_is_the_same_doubt_again(tmp_path: Path, begun: tuple[int, ...] | None) -> None:
    bench = make(tmp_path)
    from batchrun.ledger.replays import Place, replay

    (doubt,) = list_doubts(bench.ledger, "job")[1]
    place, now = Place(bench.endpoint.address, "acc", 100.0), doubt.sent_at or 0.0
    with bench.ledger.write() as connection:
        order = {"job_id": bench.job_id, "item_id": doubt.item.item_id, "worker_id": bench.worker.id}
        claim = replay(connection, **order, fence=doubt.item.fence, place=place, now=now)
        assert claim is not None
        assert replay(connection, **order, fence=doubt.item.fence + 1, place=place, now=now) is None
        assert bench.counts == {"completed": 1, "in_doubt": 1}  # not committed yet
    assert bench.counts == {"completed": 1, "running": 1}
    assert bills(bench) == (1, 1, COST, WORST)
    with bench.ledger.write() as connection:
        rescue(connection, job_id=bench.job_id, worker_id=bench.worker.id, now=now, begun=begun)
    assert bills(bench) == (1, 1, COST, WORST)
    assert list_doubts(bench.ledger, "job")[1][0].attempt_id == doubt.attempt_id
    assert ask(bench).result is Replayed.COMPLETED
    assert bills(bench) == (2, 0, 2 * COST, 0)


def test_where_no_key_is_honoured_none_is_sent_and_the_command_says_how(tmp_path: Path) -> None:
    bench = Bench(tmp_path, count=1)
    bench.run()
    assert bench.endpoint.keys == [None]
    job, doubts = list_doubts(bench.ledger, "job")
    with pytest.raises(UsageFault) as fault:
        replay_doubts(bench.ledger, job, doubts, gear=bench.gear(), worker=bench.worker)
    assert "idempotency_header" in str(fault.value.hint)
