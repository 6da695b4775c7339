"""One process at work: hints that lie, endpoints that fail, and every way a session can end."""

import asyncio
import time
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from batchrun.core.outcome import Break, BreakKind, Reply
from batchrun.core.prices import PUSD, Price
from batchrun.core.retry import OnUnknown
from batchrun.errors import LedgerFault
from batchrun.ledger import jobs as job_moves
from batchrun.ledger.backlog import START, Place, claimable
from batchrun.ledger.claims import Claim
from batchrun.ledger.climbs import LIMIT_EVENT
from batchrun.ledger.commit import ClaimOrder, GroupCommit
from batchrun.ledger.events import read_events
from batchrun.ledger.reports import report_attempts
from batchrun.ledger.sweeps import bury
from batchrun.runner.claimer import LEARN_S
from batchrun.runner.ends import EndKind
from batchrun.runner.feed import Feed
from batchrun.runner.perform import Performer
from batchrun.runner.session import Session
from tests.runner.bench import Bench, Endpoint, Queue, broken, reply, until


def test_every_item_is_sent_once_and_never_more_than_the_concurrency(tmp_path: Path) -> None:
    async def slow(custom_id: str, nth: int) -> Reply | Break:
        await until(lambda: bench.endpoint.max_in_flight >= 7)  # so that all slots are seen in use, however slowly
        return reply()

    bench = Bench(tmp_path, count=60, concurrency=7, endpoint=Endpoint(slow))
    assert bench.run().kind is EndKind.DONE
    assert bench.counts == {"completed": 60}
    assert sorted(bench.endpoint.sent) == sorted(f"a{number}" for number in range(60))
    assert bench.endpoint.max_in_flight == 7


@pytest.mark.parametrize("copies", [0, 3])
def test_a_queue_that_loses_or_repeats_every_hint_changes_nothing(tmp_path: Path, copies: int) -> None:
    bench = Bench(tmp_path, count=50, queue=Queue(copies))
    assert bench.run().kind is EndKind.DONE
    assert len(bench.endpoint.sent) == len(set(bench.endpoint.sent)) == 50


@pytest.mark.parametrize(("on_unknown", "sends", "state"), [("hold", 1, "in_doubt"), ("retry", 3, "failed")])
def test_an_unknown_outcome_is_held_or_tried_again_as_the_user_said(
    tmp_path: Path, on_unknown: OnUnknown, sends: int, state: str
) -> None:
    async def answer(custom_id: str, nth: int) -> Reply | Break:
        return broken() if custom_id == "a3" else reply()

    bench = Bench(tmp_path, count=10, on_unknown=on_unknown, retry_times=2, endpoint=Endpoint(answer))
    assert bench.run().kind is EndKind.DONE
    assert bench.endpoint.sent.count("a3") == sends
    assert bench.counts == {"completed": 9, state: 1}
    if on_unknown == "hold":
        assert len(bench.said) == 1
        assert "batchrun resume job --on-unknown retry" in bench.said[0]


def test_a_refusal_is_tried_again_retry_times_and_no_more(tmp_path: Path) -> None:
    async def answer(custom_id: str, nth: int) -> Reply | Break:
        return reply(500, {"error": {"message": "engine"}}) if custom_id == "a3" else reply()

    bench = Bench(tmp_path, count=10, retry_times=3, endpoint=Endpoint(answer))
    assert bench.run().kind is EndKind.DONE
    assert bench.endpoint.sent.count("a3") == 4
    assert bench.counts == {"completed": 9, "failed": 1}


def test_a_wrong_key_stops_after_a_handful_and_every_item_stays_pending(tmp_path: Path) -> None:
    async def answer(custom_id: str, nth: int) -> Reply | Break:
        return reply(401, {"error": {"message": "Incorrect API key"}})

    bench = Bench(tmp_path, count=500, concurrency=4, endpoint=Endpoint(answer))
    end = bench.run()
    assert end.kind is EndKind.TRIPPED
    assert end.trip is not None
    assert (end.trip.reason, end.trip.exit_code) == ("auth", 4)
    assert len(bench.endpoint.sent) <= 4 + 4
    assert bench.counts == {"pending": 500}


def test_what_is_refused_for_everyones_sake_is_not_asked_again_while_others_can_show_it(tmp_path: Path) -> None:
    looks: list[float] = []  # at the first item, since it might be claimed again

    async def answer(custom_id: str, nth: int) -> Reply | Break:
        await until(lambda: custom_id == "a0" or len(looks) == 20)
        return reply(429, {"error": {"message": "plan used up", "code": "insufficient_quota"}})

    async def look(session: Session) -> None:
        await until(lambda: bench.endpoint.in_flight == 3 and is_due())
        while len(looks) < 20:
            looks.append(time.monotonic())
            await asyncio.sleep(LEARN_S / 10)

    def is_due() -> bool:
        with bench.ledger.read() as connection:
            return bool(claimable(connection, bench.job_id, after=START, limit=1, trial_only=False, now=time.time()))

    bench = Bench(tmp_path, count=4, concurrency=4, endpoint=Endpoint(answer))
    trip = bench.run(meanwhile=look).trip
    assert trip is not None
    assert (trip.reason, trip.exit_code) == ("quota", 5)
    assert sorted(bench.endpoint.sent) == ["a0", "a1", "a2", "a3"]
    assert bench.counts == {"pending": 4}


def test_one_item_with_an_unknown_model_of_its_own_fails_alone(tmp_path: Path) -> None:
    async def answer(custom_id: str, nth: int) -> Reply | Break:
        body = {"error": {"message": "The model `x` does not exist", "code": "model_not_found"}}
        return reply(404, body) if custom_id == "a3" else reply()

    bench = Bench(tmp_path, count=30, endpoint=Endpoint(answer))
    assert bench.run().kind is EndKind.DONE
    assert bench.counts == {"completed": 29, "failed": 1}
    assert bench.endpoint.sent.count("a3") == 2


def test_throttling_holds_the_whole_job_back_and_costs_no_item(tmp_path: Path) -> None:
    refused_at: list[float] = []
    arrivals: list[float] = []

    async def answer(custom_id: str, nth: int) -> Reply | Break:
        arrivals.append(time.monotonic())
        if len(refused_at) < 4:
            refused_at.append(time.monotonic())
            return reply(429, {"error": {"message": "slow down"}}, retry_after="0.6")
        return reply()

    bench = Bench(tmp_path, count=40, concurrency=4, retry_times=0, endpoint=Endpoint(answer))
    assert bench.run().kind is EndKind.DONE
    assert bench.counts == {"completed": 40}
    later = [at for at in arrivals if at > refused_at[-1]]
    assert min(later) >= refused_at[-1] + 0.6
    with bench.ledger.read() as connection:
        report = report_attempts(connection, bench.job_id)
    assert report.sent == 44


def test_an_endpoint_never_reached_stops_the_job_soon_with_its_reason(tmp_path: Path) -> None:
    async def answer(custom_id: str, nth: int) -> Reply | Break:
        return broken(BreakKind.CONNECT)

    endpoint = Endpoint(answer)
    endpoint.is_up = False
    bench = Bench(tmp_path, count=100, endpoint=endpoint)
    end = bench.run()
    assert end.trip is not None
    assert (end.trip.reason, end.trip.exit_code) == ("unreachable", 5)
    assert "connect on purpose" in end.trip.message
    assert bench.counts == {"pending": 100}
    assert len(endpoint.sent) <= 2 * bench.concurrency


def test_an_endpoint_that_goes_away_pauses_the_job_and_its_return_goes_on(tmp_path: Path) -> None:
    async def answer(custom_id: str, nth: int) -> Reply | Break:
        if len(endpoint.sent) == 10:
            endpoint.is_up = False
        return reply() if endpoint.is_up else broken(BreakKind.CONNECT)

    async def bring_back(session: Session) -> None:
        await until(lambda: endpoint.probes > 3)
        assert (bench.job.state, bench.job.reason) == ("paused", "endpoint_down")
        endpoint.is_up = True

    endpoint = Endpoint(answer)
    bench = Bench(tmp_path, count=40, endpoint=endpoint, down_limit_s=60.0)
    assert bench.run(bring_back).kind is EndKind.DONE
    assert bench.counts == {"completed": 40}
    assert bench.job.state == "in_progress"


def test_an_endpoint_that_stays_away_stops_the_job_past_its_limit(tmp_path: Path) -> None:
    async def answer(custom_id: str, nth: int) -> Reply | Break:
        if len(endpoint.sent) >= 10:
            endpoint.is_up = False
        return reply() if endpoint.is_up else broken(BreakKind.CONNECT)

    endpoint = Endpoint(answer)
    bench = Bench(tmp_path, count=40, endpoint=endpoint)
    end = bench.run()
    assert end.trip is not None
    assert (end.trip.reason, end.trip.exit_code) == ("endpoint_down", 5)
    assert bench.counts["failed"] == 0


def test_a_pause_from_elsewhere_ends_the_session_and_keeps_the_rest_pending(tmp_path: Path) -> None:
    async def answer(custom_id: str, nth: int) -> Reply | Break:
        await asyncio.sleep(0.02)
        return reply()

    async def pause(session: Session) -> None:
        await until(lambda: len(endpoint.sent) > 8)
        with bench.ledger.write() as connection:
            job_moves.move_job(connection, bench.job_id, "pause", now=time.time(), reason="paused_by_user")

    endpoint = Endpoint(answer)
    bench = Bench(tmp_path, count=400, endpoint=endpoint)
    assert bench.run(pause).kind is EndKind.PAUSED
    assert bench.counts["running"] == bench.counts["in_doubt"] == 0
    assert bench.counts["pending"] > 100


def test_a_cancel_from_elsewhere_finishes_what_is_in_flight_and_sends_nothing_more(tmp_path: Path) -> None:
    async def answer(custom_id: str, nth: int) -> Reply | Break:
        await asyncio.sleep(0.02)
        return reply() if nth % 2 else broken()

    async def cancel(session: Session) -> None:
        await until(lambda: len(endpoint.sent) > 8)
        with bench.ledger.write() as connection:
            job_moves.cancel_job(connection, bench.job_id, now=time.time())

    endpoint = Endpoint(answer)
    bench = Bench(tmp_path, count=400, endpoint=endpoint)
    assert bench.run(cancel).kind in (EndKind.CANCELLED, EndKind.DONE)
    assert bench.counts["running"] == bench.counts["pending"] == 0
    assert bench.counts["cancelled"] > 100
    assert sum(bench.counts.values()) == 400


def test_a_process_that_is_no_longer_the_holder_claims_nothing_more(tmp_path: Path) -> None:
    async def answer(custom_id: str, nth: int) -> Reply | Break:
        await asyncio.sleep(0.02)
        return reply()

    async def usurp(session: Session) -> None:
        await until(lambda: len(endpoint.sent) > 8)
        with bench.ledger.write() as connection:
            job_moves.drop(connection, bench.job_id, worker_id=bench.worker.id, active_s=0)
            other = bench.worker.id + 1
            connection.exec_driver_sql(
                "INSERT INTO workers (id, incarnation, name, host, pid, folder, version, started_at)"
                f" VALUES ({other}, 'x', 'other', 'h', 1, '/', '0', 0)"
            )
            assert job_moves.take(connection, bench.job_id, worker_id=other, instead_of=None, now=time.time())

    endpoint = Endpoint(answer)
    bench = Bench(tmp_path, count=400, endpoint=endpoint)
    assert bench.run(usurp).kind is EndKind.LOST
    sent = len(endpoint.sent)
    assert sent < 200
    assert bench.counts["completed"] == sent  # what was in flight has been settled


def test_a_process_that_was_taken_for_dead_ends_and_says_how_to_go_on(tmp_path: Path) -> None:
    async def slow(custom_id: str, nth: int) -> Reply | Break:
        await asyncio.sleep(0.02)
        return reply()

    async def bury_it(session: Session) -> None:
        await until(lambda: len(endpoint.sent) > 8)
        with bench.ledger.write() as connection:
            bury(connection, bench.worker.id, now=time.time())

    endpoint = Endpoint(slow)
    bench = Bench(tmp_path, count=400, endpoint=endpoint)
    assert bench.run(bury_it).kind is EndKind.LOST
    assert "batchrun resume job goes on" in bench.said[-1]
    assert bench.counts["completed"] == len(endpoint.sent) < 200


def test_the_first_signal_drains_and_the_second_makes_doubts_of_what_is_in_flight(tmp_path: Path) -> None:
    async def answer(custom_id: str, nth: int) -> Reply | Break:
        if len(endpoint.sent) <= 8:
            return reply()
        await asyncio.Event().wait()
        raise AssertionError

    async def twice(session: Session) -> None:
        await until(lambda: endpoint.in_flight == 4)
        session.signal(2)
        await asyncio.sleep(0)
        session.signal(2)

    endpoint = Endpoint(answer)
    bench = Bench(tmp_path, count=100, concurrency=4, endpoint=endpoint)
    end = bench.run(twice)
    assert (end.kind, end.signal) == (EndKind.ABORTED, 2)
    assert bench.counts == {"completed": 8, "in_doubt": 4, "pending": 88}


@pytest.mark.parametrize(("slots", "measure", "claimed"), [(8, False, 8), (8, True, 16), (1, True, 1)])
def test_a_measurement_has_the_next_round_in_hand_when_slots_are_free(
    tmp_path: Path, slots: int, measure: bool, claimed: int
) -> None:
    async def hold(custom_id: str, nth: int) -> Reply | Break:
        await seen.wait()
        return reply()

    async def look(session: Session) -> None:
        await until(lambda: bench.counts["running"] == claimed and len(bench.endpoint.sent) == slots)
        seen.set()

    endpoint, seen = Endpoint(hold), asyncio.Event()
    bench = Bench(tmp_path, count=20, concurrency=slots, measure=measure, endpoint=endpoint)
    assert bench.run(look).kind is EndKind.DONE
    assert endpoint.max_in_flight == slots


def test_a_burst_of_answers_finds_a_quarter_of_the_next_round_in_hand(tmp_path: Path) -> None:
    async def hold_later_ones(custom_id: str, nth: int) -> Reply | Break:
        if int(custom_id[1:]) >= quick:
            await seen.wait()
        return reply()

    async def look(session: Session) -> None:
        await until(lambda: bench.counts["running"] == slots + slots // 4 and len(endpoint.sent) == quick + slots)
        assert session._performer._claimer._ahead() == slots // 4
        seen.set()

    quick, slots = 40, 8
    endpoint, seen = Endpoint(hold_later_ones), asyncio.Event()
    bench = Bench(tmp_path, count=quick + 4 * slots, concurrency=slots, endpoint=endpoint)
    assert bench.run(look).kind is EndKind.DONE
    assert endpoint.max_in_flight == slots


@pytest.mark.parametrize("moment", ["while it is claimed", "before it waits", "while it waits"])
def test_a_claim_goes_back_when_the_last_slot_goes_to_somebody_else(
    tmp_path: Path, moment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = Bench(tmp_path, count=1, concurrency=1)
    claim, perform = GroupCommit.claim, Performer._perform

    async def lose_the_slot() -> None:
        async def claimed_too_late(commit: GroupCommit, order: ClaimOrder) -> list[Claim]:
            claims = await claim(commit, order)
            performer.resize(0)
            return claims

        async def begun_too_late(self: Performer, *arguments: Any) -> None:
            self.resize(0)
            await perform(self, *arguments)

        async def waiting_too_long(self: Performer, *arguments: Any) -> None:
            self.lanes.slots.in_use = 1  # by a request that ends when nobody has a slot any more
            asyncio.get_running_loop().call_later(0.01, self.resize, 0)
            asyncio.get_running_loop().call_later(0.02, self.lanes.slots.leave)
            await perform(self, *arguments)

        if moment == "while it is claimed":
            monkeypatch.setattr(GroupCommit, "claim", claimed_too_late)
        else:
            too_late = begun_too_late if moment == "before it waits" else waiting_too_long
            monkeypatch.setattr(Performer, "_perform", too_late)
        session = bench.session()
        performer = session._performer
        session.start()
        performer.intake.put(1)
        await until(lambda: performer.concurrency == 0 and not performer._tasks and not bench.counts["running"])
        await session.finish()

    asyncio.run(lose_the_slot())
    assert (bench.counts, bench.endpoint.sent) == ({"pending": 1}, [])


def test_a_cost_limit_is_never_passed_and_stops_the_job(tmp_path: Path) -> None:
    price = Price(input_per_1m_usd=Decimal(1), output_per_1m_usd=Decimal(1))
    # An answer costs 15 tokens = 15e6 pUSD; the worst case is 40e6, so room for five is used by more than five.
    bench = Bench(tmp_path, count=100, concurrency=4, price=price, worst_pusd=40_000_000, max_cost_pusd=200_000_000)
    end = bench.run()
    assert end.trip is not None
    assert (end.trip.reason, end.trip.exit_code) == ("budget", 5)
    job = bench.job
    assert job.spent_pusd == 15_000_000 * bench.counts["completed"]
    assert job.reserved_pusd == 0
    assert job.spent_pusd <= 200_000_000 < job.spent_pusd + 40_000_000
    assert PUSD > 200_000_000


def test_a_ledger_that_cannot_be_read_for_a_while_does_not_stop_the_feed(tmp_path: Path) -> None:
    bench = Bench(tmp_path, count=60)
    failures = iter([LedgerFault("ledger cannot be used: database is locked")] * 2)
    read = Feed.read

    def fails_twice(self: Feed, *, after: Place, limit: int) -> list[Place]:
        if error := next(failures, None):
            raise error
        return read(self, after=after, limit=limit)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Feed, "read", fails_twice)
        assert bench.run().kind is EndKind.DONE
    assert bench.counts == {"completed": 60}


def test_a_fault_of_our_own_in_one_item_stops_the_job_and_settles_what_is_in_flight(tmp_path: Path) -> None:
    async def answer(custom_id: str, nth: int) -> Reply | Break:
        await asyncio.sleep(0.01)
        if custom_id == "a5":
            raise RuntimeError("a bug in the sender")
        return reply()

    bench = Bench(tmp_path, count=200, endpoint=Endpoint(answer))
    end = bench.run()
    assert end.trip is not None
    assert (end.trip.reason, end.trip.exit_code) == ("unexpected", 1)
    assert "a bug in the sender" in end.trip.message
    # The item whose request may have left stays claimed, and is a doubt for the next run to find.
    assert bench.counts["running"] == 1
    assert bench.counts["completed"] == len(bench.endpoint.sent) - 1


def test_an_endpoint_that_asks_for_more_than_the_budget_stops_the_job_at_once(tmp_path: Path) -> None:
    async def answer(custom_id: str, nth: int) -> Reply | Break:
        if custom_id == "a3":
            return reply(429, {"error": {"message": "come back tomorrow"}}, retry_after="80000")
        await asyncio.sleep(0.01)
        return reply()

    bench = Bench(tmp_path, count=40, endpoint=Endpoint(answer))
    end = bench.run()
    assert end.trip is not None
    assert (end.trip.reason, end.trip.exit_code) == ("throttled", 5)
    assert bench.counts["failed"] == 0
    assert bench.counts["pending"] > 0


def test_a_job_with_nothing_left_to_do_does_not_sit_out_a_hold(tmp_path: Path) -> None:
    async def answer(custom_id: str, nth: int) -> Reply | Break:
        if custom_id == "a3":
            return reply(429, {"error": {"message": "slow"}}, retry_after="1000")
        await asyncio.sleep(0.02)
        return reply()

    bench = Bench(
        tmp_path, count=4, concurrency=4, endpoint=Endpoint(answer), throttle_budget_s=2_000, throttled_s=1_500
    )
    assert bench.run(timeout_s=60.0).kind is EndKind.DONE  # the hold takes 1,000 s
    assert bench.counts == {"completed": 3, "failed": 1}


def test_absurd_counts_of_tokens_stop_neither_the_ledger_nor_the_report(tmp_path: Path) -> None:
    async def answer(custom_id: str, nth: int) -> Reply | Break:
        message = {"role": "assistant", "content": "yes"}
        usage = {"prompt_tokens": 10**8, "completion_tokens": 10**8}
        return reply(200, {"choices": [{"index": 0, "message": message, "finish_reason": "stop"}], "usage": usage})

    price = Price(input_per_1m_usd=Decimal(10_000), output_per_1m_usd=Decimal(10_000))
    bench = Bench(tmp_path, count=30, price=price, endpoint=Endpoint(answer))
    assert bench.run().kind is EndKind.DONE
    assert bench.counts == {"completed": 30}
    with bench.ledger.read() as connection:
        assert report_attempts(connection, bench.job_id).certain_pusd == 30 * 2 * 10**18
    assert isinstance(bench.job.spent_pusd, int)


def test_a_range_is_climbed_while_the_job_runs_and_a_resume_goes_on_from_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("batchrun.runner.session.CONTROL_S", 0.02)

    async def answer(custom_id: str, nth: int) -> Reply | Break:
        await asyncio.sleep(0.1)  # longer than a busy machine needs to send the next one: else the limit is not used
        return reply()

    bench = Bench(tmp_path, count=2_000, concurrency="2-64", endpoint=Endpoint(answer))

    begins: list[int] = []

    async def look(session: Session) -> None:
        begins.append(session._performer.concurrency)
        await until(lambda: session._performer.concurrency > 8)
        session.signal(2)

    assert bench.run(look).kind is EndKind.DRAINED
    found = bench.job.concurrency
    with bench.ledger.read() as connection:
        changes = [event["detail"] for event in read_events(connection, bench.job_id, kind=LIMIT_EVENT)]
    assert (changes[0]["before"], changes[0]["after"], changes[0]["reason"]) == (8, 16, "start")
    assert bench.run(look).kind is EndKind.DRAINED
    assert begins == [8, found]
