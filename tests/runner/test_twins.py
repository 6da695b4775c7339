"""The same request once: within a job and across jobs, and nobody who waits for one that does not come."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import func, select, update

from batchrun.core.outcome import Break, Reply
from batchrun.core.prices import Price
from batchrun.core.states import ItemState
from batchrun.ledger.consents import consent, stopped_items
from batchrun.ledger.purge import begin_purge, delete_contents
from batchrun.ledger.reports import report_attempts
from batchrun.ledger.schema import answers, attempts, copies, items, jobs, workers
from batchrun.runner.ends import EndKind
from batchrun.runner.finalize import finalize
from batchrun.runner.session import Session
from tests.runner.bench import Bench, Endpoint, broken, reply, saying, until

PRICE = Price.model_validate({"input_per_1m_usd": 1, "output_per_1m_usd": 1})
Answer = Callable[[str, int], Awaitable[Reply | Break]]


async def slowly(custom_id: str, nth: int) -> Reply | Break:
    """Answer late enough that all who ask the same have come."""
    await asyncio.sleep(0.02)
    return saying(json.dumps({"to": custom_id}))


def rows(bench: Bench, query: Any) -> list[Any]:
    with bench.ledger.read() as connection:
        return list(connection.execute(query).all())


def output(bench: Bench, name: str = "out.jsonl") -> list[dict[str, Any]]:
    assert finalize(bench.ledger, bench.job, holder=bench.worker.id) is not None
    return [json.loads(line) for line in (bench.folder / name).read_text().splitlines()]


def test_what_a_job_asks_many_times_is_sent_once_and_the_others_say_whose_answer_they_have(tmp_path: Path) -> None:
    bench = Bench(tmp_path, count=60, different=5, cache=True, price=PRICE, worst_pusd=10**9, endpoint=Endpoint(slowly))
    assert bench.run().kind is EndKind.DONE
    assert bench.counts == {"completed": 60}
    assert sorted(bench.endpoint.sent) == ["a0", "a1", "a2", "a3", "a4"]
    with bench.ledger.read() as connection:
        report = report_attempts(connection, bench.job_id)
    assert (report.certain_requests, report.certain_pusd) == (5, 5 * 15 * 10**6)
    assert (bench.job.spent_pusd, bench.job.reserved_pusd) == (5 * 15 * 10**6, 0)
    lines = output(bench)
    assert [line["custom_id"] for line in lines] == [f"a{number}" for number in range(60)]
    asked = [line for line in lines if line["batchrun"]["cached_from"] is None]
    copied = [line for line in lines if line["batchrun"]["cached_from"] is not None]
    assert (len(asked), len(copied)) == (5, 55)
    by_attempt = {line["batchrun"]["attempt_id"]: line for line in asked}
    for line in copied:
        source, account = by_attempt[line["batchrun"]["cached_from"]], line["batchrun"]
        assert line["response"]["body"] == source["response"]["body"]
        assert (account["attempts"], account["attempt_id"], account["cost_usd"]) == (0, None, "0.00")
        assert line["response"]["status_code"] == 200


def test_without_a_cache_the_same_prompt_is_sent_as_often_as_it_stands_there(tmp_path: Path) -> None:
    bench = Bench(tmp_path, count=12, different=3, endpoint=Endpoint(slowly))
    assert bench.run().kind is EndKind.DONE
    assert len(bench.endpoint.sent) == 12
    assert rows(bench, select(copies)) == []


def test_another_job_of_the_ledger_is_answered_without_a_request_if_account_and_address_are_the_same(
    tmp_path: Path,
) -> None:
    first = Bench(tmp_path, count=6, cache=True, endpoint=Endpoint(slowly))
    assert first.run().kind is EndKind.DONE
    same = Bench(tmp_path, count=8, cache=True, name="same", shared=first.ledger, endpoint=Endpoint(slowly))
    assert same.run().kind is EndKind.DONE
    assert same.counts == {"completed": 8}
    assert sorted(same.endpoint.sent) == ["a6", "a7"]
    other = Bench(tmp_path, count=6, cache=True, name="other", sharer="theirs", shared=first.ledger)
    assert other.run().kind is EndKind.DONE
    assert len(other.endpoint.sent) == 6
    elsewhere = Endpoint(slowly)
    elsewhere.address = "http://127.0.0.1:2/v1"
    moved = Bench(tmp_path, count=6, cache=True, name="moved", shared=first.ledger, endpoint=elsewhere)
    assert moved.run().kind is EndKind.DONE
    assert len(moved.endpoint.sent) == 6


def test_what_was_copied_outlives_the_purge_of_the_job_that_it_came_from(tmp_path: Path) -> None:
    first = Bench(tmp_path, count=4, cache=True, endpoint=Endpoint(slowly))
    assert first.run().kind is EndKind.DONE
    second = Bench(tmp_path, count=4, cache=True, name="second", shared=first.ledger)
    assert second.run().kind is EndKind.DONE
    output(first)
    with first.ledger.write() as connection:
        begin_purge(connection, first.job_id, holder=first.worker.id, now=1.0)
    delete_contents(first.ledger, first.job_id)
    assert rows(first, select(answers)) == []
    lines = output(second)
    assert [line["response"]["body"]["choices"][0]["message"]["content"] for line in lines] == [
        json.dumps({"to": f"a{number}"}) for number in range(4)
    ]
    # What is purged answers nobody any more; and a purge of the other takes the copies.
    third = Bench(tmp_path, count=4, cache=True, name="third", shared=first.ledger, endpoint=Endpoint(slowly))
    assert third.run().kind is EndKind.DONE
    assert len(third.endpoint.sent) == 4
    with first.ledger.write() as connection:
        begin_purge(connection, second.job_id, holder=second.worker.id, now=1.0)
    assert delete_contents(first.ledger, second.job_id).answers == 4
    assert rows(first, select(copies)) == []


REFUSED = reply(400, {"error": {"message": "no"}})


@pytest.mark.parametrize(
    ("first", "rest"),
    [(REFUSED, {"failed": 1}), (broken(), {"in_doubt": 1}), (reply(500, {"error": {"message": "engine"}}), {})],
    ids=["failed", "in doubt", "tried again"],
)
def test_when_the_one_that_asked_brings_nothing_the_next_one_asks(
    tmp_path: Path, first: Reply | Break, rest: dict[str, int]
) -> None:
    async def answer(custom_id: str, nth: int) -> Reply | Break:
        await asyncio.sleep(0.02)
        return first if nth == 1 else saying("yes")

    bench = Bench(tmp_path, count=12, different=1, cache=True, endpoint=Endpoint(answer))
    assert bench.run().kind is EndKind.DONE
    assert bench.counts == {"completed": 12 - sum(rest.values())} | rest
    assert len(bench.endpoint.sent) == 2


def test_failures_are_never_cached_and_a_retry_finds_what_was_answered_since(tmp_path: Path) -> None:
    async def refuse(custom_id: str, nth: int) -> Reply | Break:
        return REFUSED

    bench = Bench(tmp_path, count=6, different=2, cache=True, endpoint=Endpoint(refuse))
    assert bench.run().kind is EndKind.DONE
    assert bench.counts == {"failed": 6}
    assert len(bench.endpoint.sent) == 6
    bench.endpoint.answer = slowly
    with bench.ledger.write() as connection:
        shown = stopped_items(connection, bench.job_id, state=ItemState.FAILED)
        assert consent(connection, bench.job_id, shown, now=0.0) == 6
    assert bench.run().kind is EndKind.DONE
    assert bench.counts == {"completed": 6}
    assert len(bench.endpoint.sent) == 6 + 2


def test_nobody_waits_for_one_whose_worker_has_died(tmp_path: Path) -> None:
    first = Bench(tmp_path, count=1, cache=True)
    with first.ledger.write() as connection:  # it runs in a process that is gone: its lock is no one's
        gone = connection.execute(
            workers.insert().values(
                incarnation="gone", name="gone", host="here", pid=1, folder=str(tmp_path), version="0", started_at=0.0
            )
        ).inserted_primary_key[0]
        connection.execute(update(jobs).where(jobs.c.id == first.job_id).values(holder=gone))
    dead_claim(first, gone)
    second = Bench(tmp_path, count=3, different=1, cache=True, name="second", shared=first.ledger)

    async def bury(session: Session) -> None:
        await until(lambda: rows(first, select(items.c.state).where(items.c.job_id == first.job_id)) != [("running",)])

    second_end = second.run(bury)
    assert second_end.kind is EndKind.DONE
    assert second.counts == {"completed": 3}
    assert len(second.endpoint.sent) == 1
    assert first.counts == {"in_doubt": 1}


def dead_claim(bench: Bench, worker_id: int) -> None:
    """Claim everything for a worker."""
    from batchrun.ledger.cache import Accounts, Asking
    from batchrun.ledger.claims import claim

    with bench.ledger.write() as connection:
        ids = list(
            connection.execute(select(items.c.id).where(items.c.job_id == bench.job_id).order_by(items.c.id)).scalars()
        )
        accounts = Accounts.of([(Endpoint.address, bench.sharer)])
        claims = claim(
            connection,
            job_id=bench.job_id,
            item_ids=ids,
            worker_id=worker_id,
            endpoint=Endpoint.address,
            now=2e9,
            asking=Asking(accounts),
        )
    assert len(claims) == len(ids)


def test_an_answer_that_another_job_took_is_judged_by_this_jobs_schema(tmp_path: Path) -> None:
    async def loosely(custom_id: str, nth: int) -> Reply | Break:
        return saying("no JSON at all" if custom_id == "a0" else "{}")

    first = Bench(tmp_path, count=2, cache=True, endpoint=Endpoint(loosely))
    assert first.run().kind is EndKind.DONE
    second = Bench(
        tmp_path,
        count=6,
        different=2,
        cache=True,
        name="second",
        shared=first.ledger,
        response_schema=True,
        endpoint=Endpoint(slowly),
    )
    assert second.run().kind is EndKind.DONE
    assert second.counts == {"completed": 6}
    assert second.endpoint.sent == ["a0"]  # for a1 the answer will do


def test_twins_beyond_a_budget_stop_the_job_and_do_not_wait_for_ever(tmp_path: Path) -> None:
    bench = Bench(
        tmp_path, count=20, different=4, cache=True, price=PRICE, worst_pusd=20 * 10**6, max_cost_pusd=40 * 10**6
    )
    end = bench.run()
    assert end.trip is not None
    assert end.trip.reason == "budget"
    assert bench.counts[ItemState.PENDING] == 10
    assert len(bench.endpoint.sent) == 2


def test_hundreds_of_twins_are_two_requests(tmp_path: Path) -> None:
    bench = Bench(tmp_path, count=600, different=2, cache=True, concurrency=8, endpoint=Endpoint(slowly))
    assert bench.run().kind is EndKind.DONE
    assert bench.counts == {"completed": 600}
    assert len(bench.endpoint.sent) == 2
    assert rows(bench, select(func.count()).select_from(attempts)) == [(2,)]
    assert rows(bench, select(func.count()).select_from(copies)) == [(598,)]
