"""Answers judged by a job's schema while it runs: what becomes of the items, the money and the breakers."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from sqlalchemy import select

from batchrun.core.outcome import Break, Reply
from batchrun.core.prices import Price
from batchrun.ledger.reports import report_attempts
from batchrun.ledger.schema import answers, attempts, items
from batchrun.runner.ends import EndKind
from tests.runner.bench import Bench, Endpoint, saying

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
