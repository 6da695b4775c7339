"""Answers judged by a job's schema while it runs: what becomes of the items, the money and the breakers."""

import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select

from batchrun.core.outcome import Break, Reply
from batchrun.core.prices import Price
from batchrun.core.states import ItemState
from batchrun.ledger.consents import consent, stopped_items
from batchrun.ledger.reports import report_attempts
from batchrun.ledger.revalidation import Verdict, revalidate
from batchrun.ledger.schema import answers, attempts, items
from batchrun.runner.ends import EndKind
from batchrun.runner.finalize import finalize
from batchrun.runner.revalidate import Revalidated, judge_anew, with_schema
from tests.runner.bench import Bench, Endpoint, reply, saying

SCHEMA = {"type": "object", "required": ["n"]}
PRICE = Price.model_validate({"input_per_1m_usd": 1, "output_per_1m_usd": 1})
Answer = Callable[[str, int], Awaitable[Reply | Break]]


def invalid_for(*custom_ids: str) -> Answer:
    async def answer(custom_id: str, nth: int) -> Reply | Break:
        return saying("no" if custom_id in custom_ids else '{"n": 1}')

    return answer


def rows(bench: Bench, query: Any) -> list[Any]:
    with bench.ledger.read() as connection:
        return list(connection.execute(query).all())


def test_an_invalid_answer_fails_its_item_is_paid_for_and_kept(tmp_path: Path) -> None:
    endpoint = Endpoint(invalid_for("a3", "a7"))
    bench = Bench(tmp_path, count=10, endpoint=endpoint, response_schema=SCHEMA, price=PRICE, worst_pusd=10**9)
    assert bench.run().kind is EndKind.DONE
    assert bench.counts == {"completed": 8, "failed": 2}
    assert len(endpoint.sent) == 10  # nothing is asked again by itself, whatever retry_times is
    with bench.ledger.read() as connection:
        report = report_attempts(connection, bench.job_id)
    assert (report.certain_requests, report.possible_requests) == (10, 0)
    assert report.certain_pusd == bench.job.spent_pusd == 10 * 15 * 10**6
    assert bench.job.reserved_pusd == 0
    failed = rows(bench, select(items).where(items.c.state == "failed"))
    assert {(one.custom_id, one.cause) for one in failed} == {("a3", "invalid_answer"), ("a7", "invalid_answer")}
    kept = {row.key for row in rows(bench, select(answers.c.key))}
    assert {one.answer_key for one in failed} <= kept
    causes = rows(bench, select(attempts.c.state, attempts.c.cause).where(attempts.c.cause.is_not(None)))
    assert [tuple(one) for one in causes] == [("answered", "invalid_answer")] * 2


def test_answers_that_are_all_invalid_stop_the_job_before_all_is_paid(tmp_path: Path) -> None:
    endpoint = Endpoint(invalid_for(*(f"a{number}" for number in range(200))))
    bench = Bench(tmp_path, count=200, endpoint=endpoint, response_schema=SCHEMA)
    end = bench.run()
    assert end.trip is not None
    assert (end.trip.reason, end.trip.exit_code) == ("failures_in_a_row", 5)
    assert "invalid answer" in end.trip.message
    assert len(endpoint.sent) < 30


def test_a_job_without_a_schema_takes_every_answer(tmp_path: Path) -> None:
    bench = Bench(tmp_path, count=5, endpoint=Endpoint(invalid_for("a3")))
    assert bench.run().kind is EndKind.DONE
    assert bench.counts == {"completed": 5}


# -- asked again, as the job's spec allows ----------------------------------------------------------------------------


def right_from(nth_right: int, *custom_ids: str) -> Answer:
    """Answer these items wrongly until the request of this number, and all others rightly."""

    async def answer(custom_id: str, nth: int) -> Reply | Break:
        return saying("no" if custom_id in custom_ids and nth < nth_right else '{"n": 1}')

    return answer


def test_an_invalid_answer_is_asked_again_at_most_reask_times_and_each_is_paid(tmp_path: Path) -> None:
    endpoint = Endpoint(right_from(3, "a3", "a7"))
    bench = Bench(
        tmp_path,
        count=10,
        endpoint=endpoint,
        response_schema=SCHEMA,
        price=PRICE,
        worst_pusd=10**9,
        reask=2,
        retry_times=0,
    )
    assert bench.run().kind is EndKind.DONE
    assert bench.counts == {"completed": 10}
    assert [endpoint.sent.count(one) for one in ("a3", "a7", "a4")] == [3, 3, 1]
    with bench.ledger.read() as connection:
        report = report_attempts(connection, bench.job_id)
    assert (report.certain_requests, report.possible_requests) == (14, 0)
    assert report.certain_pusd == bench.job.spent_pusd == 14 * 15 * 10**6


def test_one_that_stays_invalid_fails_when_its_re_asks_are_spent(tmp_path: Path) -> None:
    endpoint = Endpoint(right_from(99, "a3"))
    bench = Bench(tmp_path, count=10, endpoint=endpoint, response_schema=SCHEMA, reask=2)
    assert bench.run().kind is EndKind.DONE
    assert bench.counts == {"completed": 9, "failed": 1}
    assert endpoint.sent.count("a3") == 3
    (item,) = rows(bench, select(items).where(items.c.state == "failed"))
    assert (item.reasks, item.cause) == (2, "invalid_answer")
    # A consent is for one request, and not for a new round of re-asks.
    with bench.ledger.write() as connection:
        shown = stopped_items(connection, bench.job_id, state=ItemState.FAILED)
        assert consent(connection, bench.job_id, shown, now=time.time()) == 1
    assert bench.run().kind is EndKind.DONE
    assert endpoint.sent.count("a3") == 4
    assert bench.counts == {"completed": 9, "failed": 1}


def test_no_re_ask_is_sent_that_could_take_the_job_above_its_limit(tmp_path: Path) -> None:
    endpoint = Endpoint(right_from(99, "a0"))
    worst = 20 * 10**6  # one request costs 15 of them
    bench = Bench(
        tmp_path,
        count=1,
        endpoint=endpoint,
        response_schema=SCHEMA,
        price=PRICE,
        worst_pusd=worst,
        max_cost_pusd=2 * worst,
        reask=9,
    )
    end = bench.run()
    assert end.trip is not None
    assert end.trip.reason == "budget"
    assert len(endpoint.sent) == 2
    assert bench.job.spent_pusd == 30 * 10**6 <= 2 * worst


# -- judged anew, once they are stored --------------------------------------------------------------------------------


def judge(bench: Bench, schema: Any, **more: Any) -> Revalidated:
    spec = with_schema(bench.job.spec, schema=schema, accept_fenced=None)
    return judge_anew(bench.ledger, bench.job, spec, worker=bench.worker, **more)


def ended(bench: Bench) -> Bench:
    """Run a job to its end, outputs and all."""
    assert bench.run().kind is EndKind.DONE
    assert finalize(bench.ledger, bench.job, holder=bench.worker.id) is not None
    return bench


def lines(bench: Bench, name: str) -> int:
    return (bench.folder / name).read_bytes().count(b"\n")


def test_stored_answers_are_judged_by_another_schema_for_nothing_and_back_again(tmp_path: Path) -> None:
    endpoint = Endpoint(invalid_for("a3", "a7"))
    bench = ended(Bench(tmp_path, count=10, endpoint=endpoint, response_schema=SCHEMA, price=PRICE, worst_pusd=10**9))
    before = rows(bench, select(answers).order_by(answers.c.key))
    spent = bench.job.spent_pusd
    nothing = judge(bench, SCHEMA)
    assert (nothing.judged, nothing.completed, nothing.failed, nothing.invalid) == (10, 0, 0, 2)
    loose = judge(bench, {})  # "no" is no JSON under any schema
    assert (loose.completed, loose.failed) == (0, 0)
    strict = judge(bench, {"required": ["m"]})
    assert (strict.completed, strict.failed, strict.invalid) == (0, 8, 10)
    assert bench.counts == {"failed": 10}
    assert (lines(bench, "out.jsonl"), lines(bench, "out.errors.jsonl")) == (0, 10)
    back = judge(bench, SCHEMA)
    assert (back.completed, back.failed, back.invalid) == (8, 0, 2)
    assert bench.counts == {"completed": 8, "failed": 2}
    assert (lines(bench, "out.jsonl"), lines(bench, "out.errors.jsonl")) == (8, 2)
    assert bench.job.state == "completed"
    assert bench.job.spec["response_schema"] == SCHEMA
    assert len(endpoint.sent) == 10
    assert (bench.job.spent_pusd, bench.job.reserved_pusd) == (spent, 0)
    assert rows(bench, select(answers).order_by(answers.c.key)) == before


def test_a_judgement_that_dies_between_two_batches_is_taken_up_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("batchrun.runner.revalidate.MOVED_AT_ONCE", 4)
    bench = ended(Bench(tmp_path, count=10, endpoint=Endpoint(invalid_for()), response_schema=SCHEMA))

    def die(count: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        judge(bench, {"required": ["m"]}, judged=die)
    assert bench.counts == {"completed": 6, "failed": 4}
    assert bench.job.state == "finalizing"  # any command that performs the job writes its outputs
    again = judge(bench, None)
    assert (again.completed, again.failed, again.invalid) == (0, 6, 10)
    assert (bench.counts, bench.job.state) == ({"failed": 10}, "completed")
    assert (lines(bench, "out.jsonl"), lines(bench, "out.errors.jsonl")) == (0, 10)


def test_of_two_judgements_at_once_each_item_follows_one_and_the_other_finds_it_gone(tmp_path: Path) -> None:
    bench = ended(Bench(tmp_path, count=3, endpoint=Endpoint(invalid_for()), response_schema=SCHEMA))
    query = select(items.c.id, items.c.fence, items.c.answer_key).order_by(items.c.id)
    found = rows(bench, query)
    verdicts = [Verdict(*row, ItemState.COMPLETED, "invalid answer: so they say") for row in found]
    for expected in ((0, 3), (0, 0)):
        with bench.ledger.write() as connection:
            assert revalidate(connection, bench.job_id, verdicts) == expected
    stale = [Verdict(*row, ItemState.FAILED, None) for row in found]  # read before the others moved them
    with bench.ledger.write() as connection:
        assert revalidate(connection, bench.job_id, stale) == (0, 0)
    assert bench.counts == {"failed": 3}


def test_an_item_that_failed_for_another_reason_is_left_alone(tmp_path: Path) -> None:
    async def answer(custom_id: str, nth: int) -> Reply | Break:
        return reply(400, {"error": {"message": "no"}}) if custom_id == "a1" else saying("{}")

    bench = ended(Bench(tmp_path, count=3, endpoint=Endpoint(answer), response_schema=SCHEMA))
    assert bench.counts == {"failed": 3}
    assert judge(bench, True).completed == 2
    assert bench.counts == {"completed": 2, "failed": 1}
