"""A job with several endpoints: who gets what, what one of them does alone, and what stops the job."""

import asyncio
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import select

from batchrun.core.outcome import Break, BreakKind, Reply
from batchrun.core.rate import Limits
from batchrun.core.retry import OnUnknown
from batchrun.core.routing import FAILURES
from batchrun.ledger.events import read_events
from batchrun.ledger.schema import attempts
from batchrun.runner.ends import EndKind
from batchrun.runner.means import Way
from batchrun.runner.session import Session
from tests.runner.bench import Answer, Bench, Endpoint, broken, reply, until

NAMES = ("a", "b", "c")


async def answers(custom_id: str, nth: int) -> Reply | Break:
    await asyncio.sleep(0.005)
    return reply()


async def after(wait_s: float) -> Reply:
    """Answer after so long, and say so."""
    await asyncio.sleep(wait_s)
    answer = reply()
    return replace(answer, timing=replace(answer.timing, duration_s=wait_s))


async def no_key(custom_id: str, nth: int) -> Reply | Break:
    return reply(401, {"error": {"message": "Incorrect API key"}})


async def no_model(custom_id: str, nth: int) -> Reply | Break:
    return reply(404, {"error": {"message": "The model `m` does not exist", "code": "model_not_found"}})


async def lost(custom_id: str, nth: int) -> Reply | Break:
    return broken()


async def refused(custom_id: str, nth: int) -> Reply | Break:
    return broken(BreakKind.CONNECT)


def endpoints(*of: Answer) -> list[Endpoint]:
    """Return one endpoint for each way of answering."""
    return [Endpoint(answer, address=f"http://127.0.0.1/{name}/v1") for answer, name in zip(of, NAMES, strict=False)]


def ways(there: list[Endpoint], **own: object) -> list[Way]:
    return [Way(endpoint, limits=Limits(), **own) for endpoint in there]  # type: ignore[arg-type]


def told(bench: Bench) -> list[tuple[str, str]]:
    """Return the events about single endpoints: (event, endpoint's name)."""
    with bench.ledger.read() as connection:
        events = [event for event in read_events(connection, bench.job_id) if event["kind"].startswith("endpoint_")]
    return [(event["kind"], event["detail"]["endpoint"].split("/")[3]) for event in events]


def attempts_by_address(bench: Bench) -> Counter[str]:
    with bench.ledger.read() as connection:
        rows = connection.execute(select(attempts.c.endpoint).where(attempts.c.sent_at.is_not(None)))
        return Counter(rows.scalars())


def test_the_work_is_shared_by_weight_and_every_attempt_names_its_endpoint(tmp_path: Path) -> None:
    there = endpoints(answers, answers)
    several = [Way(there[0], weight=3.0, limits=Limits()), Way(there[1], limits=Limits())]
    bench = Bench(tmp_path, count=200, concurrency=8, ways=several)
    assert bench.run().kind is EndKind.DONE
    assert bench.counts == {"completed": 200}
    assert attempts_by_address(bench) == {one.address: len(one.sent) for one in there}
    assert len(set(there[0].sent) & set(there[1].sent)) == 0
    assert 1.5 < len(there[0].sent) / len(there[1].sent) < 6.0  # by chance they are not equally fast


def test_a_limit_of_its_own_holds_beside_the_jobs(tmp_path: Path) -> None:
    there = endpoints(answers, answers)
    several = [Way(there[0], concurrency=2, limits=Limits()), Way(there[1], limits=Limits())]
    bench = Bench(tmp_path, count=120, concurrency=6, ways=several)
    assert bench.run().kind is EndKind.DONE
    assert there[0].max_in_flight <= 2
    assert there[1].max_in_flight >= 4


@pytest.mark.parametrize(("answer", "reason"), [(no_key, "Incorrect API key"), (no_model, "does not exist")])
def test_an_endpoint_that_refuses_everything_is_left_out_and_costs_no_item(
    tmp_path: Path, answer: Answer, reason: str
) -> None:
    there = endpoints(answer, answers)
    bench = Bench(tmp_path, count=100, retry_times=0, ways=ways(there))
    assert bench.run().kind is EndKind.DONE
    assert bench.counts == {"completed": 100}
    assert len(there[0].sent) <= 3 + bench.concurrency + bench.concurrency // 4  # type: ignore[operator]
    assert told(bench) == [("endpoint_out", "a")]
    assert any("going on without http://127.0.0.1/a/v1" in line and reason in line for line in bench.said)


def test_a_job_stops_when_every_endpoint_refuses_and_its_reason_names_each(tmp_path: Path) -> None:
    bench = Bench(tmp_path, count=100, ways=ways(endpoints(no_key, no_model)))
    end = bench.run()
    assert end.trip is not None
    assert end.trip.reason in ("auth", "model_not_found")
    assert end.trip.exit_code == 5, "one of them refuses the key, the other one does not"
    assert "http://127.0.0.1/a/v1: " in end.trip.message
    assert "http://127.0.0.1/b/v1: " in end.trip.message
    assert bench.counts == {"pending": 100}


def test_an_endpoint_that_is_away_is_looked_for_while_the_others_go_on(tmp_path: Path) -> None:
    there = endpoints(answers, answers)

    async def goes(custom_id: str, nth: int) -> Reply | Break:
        there[0].is_up = there[0].is_up and len(there[0].sent) < 10
        return await (answers if there[0].is_up else refused)(custom_id, nth)

    async def bring_back(session: Session) -> None:
        await until(lambda: there[0].probes > 0)
        before, meanwhile = len(there[0].sent), len(there[1].sent)
        await until(lambda: there[0].probes > 3 and len(there[1].sent) > meanwhile)
        assert (bench.job.state, bench.job.reason) == ("in_progress", None)
        there[0].answer, there[0].is_up = answers, True
        await until(lambda: len(there[0].sent) > before)

    there[0].answer = goes
    bench = Bench(tmp_path, count=200, ways=ways(there))
    assert bench.run(bring_back).kind is EndKind.DONE
    assert bench.counts == {"completed": 200}
    assert told(bench) == [("endpoint_away", "a"), ("endpoint_back", "a")]


def test_a_job_whose_endpoints_are_all_away_or_out_waits_and_goes_on_with_the_first_that_is_back(
    tmp_path: Path,
) -> None:
    there = endpoints(answers, answers, no_key)

    async def goes(custom_id: str, nth: int) -> Reply | Break:
        if len(there[0].sent) + len(there[1].sent) < 30:
            return await answers(custom_id, nth)
        there[0].is_up = there[1].is_up = False
        return broken(BreakKind.CONNECT)

    async def bring_back(session: Session) -> None:
        await until(lambda: min(there[0].probes, there[1].probes) > 2 and bench.job.state == "paused")
        assert bench.job.reason == "endpoint_down"
        there[1].answer, there[1].is_up = answers, True

    there[0].answer = there[1].answer = goes
    bench = Bench(tmp_path, count=60, ways=ways(there), down_limit_s=60.0)
    assert bench.run(bring_back).kind is EndKind.DONE
    assert bench.counts == {"completed": 60}
    assert bench.job.state == "in_progress"
    assert ("endpoint_out", "c") in told(bench)


def test_a_job_none_of_whose_endpoints_is_reached_stops_soon_and_names_each(tmp_path: Path) -> None:
    there = endpoints(refused, refused)
    for one in there:
        one.is_up = False
    bench = Bench(tmp_path, count=50, ways=ways(there))
    end = bench.run()
    assert end.trip is not None
    assert (end.trip.reason, end.trip.exit_code) == ("unreachable", 5)
    assert "http://127.0.0.1/a/v1: " in end.trip.message
    assert "http://127.0.0.1/b/v1: " in end.trip.message
    assert bench.counts == {"pending": 50}


def test_throttling_holds_that_endpoint_alone(tmp_path: Path) -> None:
    arrivals: list[float] = []

    async def throttles(custom_id: str, nth: int) -> Reply | Break:
        arrivals.append(time.monotonic())
        if len(arrivals) == 1:
            return reply(429, {"error": {"message": "slow down"}}, retry_after="0.6")
        return await answers(custom_id, nth)

    there = endpoints(throttles, answers)
    bench = Bench(tmp_path, count=300, concurrency=4, ways=ways(there))
    assert bench.run().kind is EndKind.DONE
    assert bench.counts == {"completed": 300}
    # Those that had their slots already came, and nobody else: the others would be more than a hundred.
    early = sum(arrival < arrivals[0] + 0.6 for arrival in arrivals[1:])
    assert early < 4
    assert bench.job.throttle_until_at is None, "the job itself is not held back"
    assert len(there[1].sent) > 50


@pytest.mark.parametrize(("on_unknown", "states"), [("hold", {"completed", "in_doubt"}), ("retry", {"completed"})])
def test_a_doubt_goes_to_another_endpoint_only_where_that_was_agreed_to(
    tmp_path: Path, on_unknown: OnUnknown, states: set[str]
) -> None:
    there = endpoints(lost, answers)
    bench = Bench(tmp_path, count=60, retry_times=3, on_unknown=on_unknown, ways=ways(there))
    assert bench.run().kind is EndKind.DONE
    assert set(bench.counts) == states
    twice = set(there[0].sent) & set(there[1].sent)
    assert bool(twice) is (on_unknown == "retry")
    assert max(Counter(there[0].sent + there[1].sent).values()) == (1 if on_unknown == "hold" else 2)


def test_an_endpoint_that_is_not_well_is_left_alone_before_it_makes_a_row_of_doubts(tmp_path: Path) -> None:
    there = endpoints(lost, answers)
    bench = Bench(tmp_path, count=100, concurrency=4, ways=ways(there))
    assert bench.run().kind is EndKind.DONE
    assert bench.counts["in_doubt"] == len(there[0].sent) <= FAILURES + 4 + 1
    assert set(told(bench)) == {("endpoint_cooling", "a")}, "it may be well again: it is not out"


def test_near_the_end_a_slow_endpoint_gets_nothing_that_the_others_will_have_done_before_it(tmp_path: Path) -> None:
    async def slowly(custom_id: str, nth: int) -> Reply | Break:
        started.append((time.monotonic(), len(there[0].sent) + len(there[1].sent)))
        return await after(1.0)

    async def quickly(custom_id: str, nth: int) -> Reply | Break:
        return await after(0.05)

    started: list[tuple[float, int]] = []
    there = endpoints(quickly, slowly)
    bench = Bench(tmp_path, count=160, concurrency=8, ways=ways(there, concurrency=4))
    assert bench.run().kind is EndKind.DONE
    # 80 + 4 a second: 1.9 s. Had the slow one taken items to the very end, one second more.
    assert started[-1][1] <= 160 - 40, "its last item came when the other one had as much to do as that one takes"


def test_a_cache_shares_answers_among_the_same_endpoints(tmp_path: Path) -> None:
    there = endpoints(answers, answers)
    first = Bench(tmp_path, count=40, different=5, cache=True, ways=ways(there))
    assert first.run().kind is EndKind.DONE
    sent = len(there[0].sent) + len(there[1].sent)
    assert sent == 5
    second = Bench(tmp_path, count=5, cache=True, name="second", shared=first.ledger, ways=ways(there[::-1]))
    assert second.run().kind is EndKind.DONE
    assert len(there[0].sent) + len(there[1].sent) == sent, "which one is named first makes no difference"
    alone = endpoints(answers)
    third = Bench(tmp_path, count=5, cache=True, name="third", shared=first.ledger, ways=ways(alone))
    assert third.run().kind is EndKind.DONE
    assert len(alone[0].sent) == 5, "it names other endpoints"


def test_what_begins_alike_goes_to_one_endpoint_and_both_have_work(tmp_path: Path) -> None:
    there = endpoints(answers, answers)
    bench = Bench(tmp_path, count=240, concurrency=16, ways=ways(there), order="prefix", beginnings=60)
    assert bench.run().kind is EndKind.DONE
    assert bench.counts == {"completed": 240}
    kinds = [Counter(int(custom_id[1:]) % 60 for custom_id in one.sent) for one in there]
    at_home = sum(max(kinds[0][kind], kinds[1][kind]) for kind in range(60))
    assert at_home / 240 > 0.74, ("by chance it would be about 0.69, rarely above 0.73", at_home)
    assert min(len(one.sent) for one in there) > 60
