"""Adaptive concurrency in the ledger: what all workers see makes one decision a round, and each change is an event."""

import threading
from dataclasses import replace

import pytest

from batchrun.core.climb import Climb
from batchrun.core.concurrency import Concurrency
from batchrun.core.gauge import Seen
from batchrun.ledger.climbs import LIMIT_EVENT, Report, report_round
from batchrun.ledger.events import read_events
from batchrun.ledger.ledger import Ledger
from batchrun.ledger.sweeps import bury
from tests.ledger.desk import NOW, Desk

CLEAN = Seen(8, 800.0, 8.0, used_s=40.0, open_s=5.0)  # a whole round at the first limit


@pytest.fixture
def desk(ledger: Ledger) -> Desk:
    """A job whose concurrency is to be found, begun at 8."""
    desk = Desk.open(ledger, 12)
    desk.set(concurrency=Concurrency.of(8))
    desk.set(concurrency=Concurrency.of("4-64"))
    return desk


def report(desk: Desk, worker: int, seen: Seen, *, round_no: int | None = None) -> Climb | None:
    standing = desk.job.climb
    number = round_no if round_no is not None else standing.round_no if standing else 1
    with desk.ledger.write() as connection:
        return report_round(connection, desk.job_id, worker_id=worker, report=Report(number, seen), now=NOW)


def limits(desk: Desk) -> list[tuple[int, int, str]]:
    with desk.ledger.read() as connection:
        told = [event["detail"] for event in read_events(connection, desk.job_id, kind=LIMIT_EVENT)]
    return [(one["before"], one["after"], one["reason"]) for one in told]


def test_the_reports_of_two_workers_make_one_round_and_one_decision(desk: Desk) -> None:
    other = desk.hire()
    half = replace(CLEAN, answers=4, work=400.0, busy_s=4.0, used_s=20.0)
    assert report(desk, desk.worker, half) == desk.job.climb
    assert (desk.job.concurrency, limits(desk)) == (8, [])
    report(desk, other, half)
    assert (desk.job.concurrency, limits(desk)) == (16, [(8, 16, "start")])


def test_a_report_of_a_round_that_is_over_or_of_a_dead_worker_says_nothing(desk: Desk) -> None:
    other = desk.hire()
    report(desk, desk.worker, CLEAN, round_no=1)
    assert report(desk, other, replace(CLEAN, throttled=3), round_no=1) == desk.job.climb
    with desk.ledger.write() as connection:
        bury(connection, other, now=NOW)
    report(desk, other, Seen(throttled=3))
    assert (desk.job.concurrency, limits(desk)) == (16, [(8, 16, "start")])


def test_a_refusal_cuts_for_all_and_is_told(desk: Desk) -> None:
    report(desk, desk.worker, CLEAN)
    report(desk, desk.worker, Seen(throttled=2))
    assert desk.job.concurrency == 8
    with desk.ledger.read() as connection:
        (last,) = read_events(connection, desk.job_id, kind=LIMIT_EVENT, latest=1)
    assert last["detail"]["message"] == "the endpoint refused 2 at 16 at once"


def test_many_who_report_at_once_lose_nothing(desk: Desk) -> None:
    workers = [desk.hire() for _ in range(4)]
    one = Seen(1, 100.0, 1.0, used_s=5.0, open_s=5.0)

    def work(worker: int) -> None:
        report(desk, worker, one, round_no=1)
        report(desk, worker, one, round_no=1)

    threads = [threading.Thread(target=work, args=(worker,)) for worker in workers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert limits(desk) == [(8, 16, "start")], "eight answers are a round, and it was decided once"


def test_a_fixed_number_stays_whatever_is_seen(desk: Desk) -> None:
    desk.set(concurrency=Concurrency.of(8))
    assert report(desk, desk.worker, Seen(throttled=9)) is None
    assert (desk.job.concurrency, desk.job.allowed) == (8, Concurrency.of(8))


def test_what_was_found_stays_when_the_same_is_asked_again_and_is_fitted_into_another_range(desk: Desk) -> None:
    report(desk, desk.worker, CLEAN)
    desk.set(concurrency=Concurrency.of("4-64"))
    assert desk.job.concurrency == 16
    desk.set(concurrency=Concurrency.of("2-12"))
    assert (desk.job.concurrency, desk.job.allowed) == (12, Concurrency.of("2-12"))
    desk.set(concurrency=Concurrency.of("auto"))
    assert desk.job.concurrency == 12, "the last limit known"
    with desk.ledger.read() as connection:
        told = [event["detail"] for event in read_events(connection, desk.job_id, kind="settings")]
    assert [one["concurrency"] for one in told] == [8, "4-64", "2-12", "auto"]
