"""Writing a job's items, and beginning again after a death half-way."""

import time
from collections.abc import Iterator

import pytest
from sqlalchemy import func, select
from sqlalchemy.exc import IntegrityError

from batchrun.core.states import ItemState, JobState
from batchrun.errors import IllegalMove
from batchrun.ledger import jobs
from batchrun.ledger.ledger import Ledger
from batchrun.ledger.register import CHUNK, Line, forget_items, write_items
from batchrun.ledger.reports import count_trial, trial_ids
from batchrun.ledger.schema import items, ledgers, requests
from tests.ledger.desk import (
    ANSWERED,
    NOW,
    WORST_PUSD,
    Desk,
    hire,
    line,
    snapshot,
)
from tests.ledger.desk import register as register_job

MANY = 100_000


def count(ledger: Ledger, table: object) -> int:
    with ledger.read() as connection:
        number: int = connection.execute(select(func.count()).select_from(table)).scalar_one()  # type: ignore[arg-type]
        return number


def test_items_are_written_as_they_were_read(ledger: Ledger) -> None:
    desk = Desk.open(ledger, [line(0), line(1, is_rejected=True), line(2)], trial=(2,))
    first, faulty, third = (desk.item(number) for number in range(3))
    assert (first["custom_id"], first["position"], first["line_no"], first["revision"]) == ("q-0", 0, 1, 1)
    assert (first["model"], first["worst_pusd"], bytes(first["request_digest"])) == (
        "m",
        WORST_PUSD,
        line(0).request_digest,
    )
    assert [row["is_trial"] for row in (first, faulty, third)] == [False, False, True]
    assert (faulty["state"], faulty["cause"], faulty["message"]) == ("rejected", "rejected", "not an object")
    assert count(ledger, requests) == 2
    with ledger.read() as connection:
        assert trial_ids(connection, desk.job_id) == [third["id"]]
        assert count_trial(connection, desk.job_id)[ItemState.PENDING] == 1


def test_text_that_a_back_end_cannot_keep_does_not_stop_a_registration(ledger: Ledger) -> None:
    odd = Line(0, 1, "q-0", b"d" * 16, "mo\0del", "half \ud83d of it", "/p", b"{\0}", None)
    faulty = Line(1, 2, "q-1", None, None, "bad: \0", None, None, None)
    desk = Desk.open(ledger, [odd, faulty])
    assert (desk.item(0)["model"], desk.item(0)["note"]) == ("mo\ufffddel", "half \ufffd of it")
    assert (desk.item(1)["note"], desk.item(1)["message"]) == ("bad: \ufffd", "bad: \ufffd")
    assert desk.claim_one().body == b"{\0}"


def test_item_ids_are_given_out_once_in_a_ledgers_life(ledger: Ledger) -> None:
    """An attempt's public id is made of its item's: it must never mean another request."""
    first = Desk.open(ledger, 3)
    worker = hire(ledger)
    job = register_job(ledger, 2, holder=worker)
    write_items(ledger, job.id, [line(0), line(1)], trial=(), now=NOW)
    forget_items(ledger, job.id)
    second = Desk.open(ledger, 2)
    assert first.item_ids == list(range(first.item_ids[0], first.item_ids[0] + 3))
    assert second.item_ids == [first.item_ids[-1] + 3, first.item_ids[-1] + 4]
    with ledger.read() as connection:
        assert connection.execute(select(ledgers.c.next_item_id)).scalar() == second.item_ids[-1] + 1


def test_two_items_of_one_name_are_refused(ledger: Ledger) -> None:
    job = register_job(ledger, 2, holder=hire(ledger))
    with pytest.raises(IntegrityError):
        write_items(ledger, job.id, [line(0), line(0)], trial=(), now=NOW)
    assert count(ledger, items) == 0


def test_a_job_without_items_opens_and_ends(ledger: Ledger) -> None:
    desk = Desk.open(ledger, 0)
    assert desk.counts() == {}
    assert desk.move("finalize")


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_a_hundred_thousand_items_are_written_in_seconds(
    own_ledger: Ledger, record_property: pytest.FixtureRequest
) -> None:
    lines = [line(number) for number in range(MANY)]
    job = register_job(own_ledger, MANY, holder=hire(own_ledger))
    began, began_cpu_s = time.perf_counter(), time.process_time()
    assert write_items(own_ledger, job.id, lines, trial=range(10), now=NOW) == MANY
    with own_ledger.write() as connection:
        assert jobs.move_job(connection, job.id, "open", now=NOW)
    took_s = time.perf_counter() - began
    record_property("items_per_s", round(MANY / took_s))  # type: ignore[operator]
    print(f"\n{MANY:,} items in {took_s:.2f} s on {own_ledger.where.split(':')[0]}")
    assert time.process_time() - began_cpu_s < 30, "seconds, however busy the machine is with other things"


# -- a registration that died -----------------------------------------------------------------------------------------


def dying(count: int) -> Iterator[Line]:
    yield from (line(number) for number in range(count))
    raise ZeroDivisionError


def test_a_registration_that_died_half_way_is_done_again(ledger: Ledger) -> None:
    dead, heir = hire(ledger), hire(ledger)
    total = CHUNK + 5
    job = register_job(ledger, total, holder=dead)
    with pytest.raises(ZeroDivisionError):
        write_items(ledger, job.id, dying(CHUNK + 1), trial=(), now=NOW)
    assert count(ledger, items) == CHUNK, "whole chunks, and nothing of the last"
    with ledger.write() as connection:
        assert not jobs.move_job(connection, job.id, "open", now=NOW)
        assert jobs.take(connection, job.id, worker_id=heir, instead_of=dead, now=NOW)
        jobs.restart_registration(connection, job.id, total=total - 5, input_digest="x", params_digest="y")
    forget_items(ledger, job.id)
    assert (count(ledger, items), count(ledger, requests)) == (0, 0)
    write_items(ledger, job.id, [line(number, text="new") for number in range(total - 5)], trial=(1,), now=NOW)
    with ledger.write() as connection:
        assert jobs.move_job(connection, job.id, "open", now=NOW)
    assert count(ledger, requests) == total - 5


def test_whoever_lost_a_registration_writes_nothing_more(ledger: Ledger) -> None:
    """It had been stopped for a while, and another process had taken it for dead."""
    slow, heir = hire(ledger), hire(ledger)
    job = register_job(ledger, CHUNK + 2, holder=slow)

    def lines() -> Iterator[Line]:
        yield from (line(number) for number in range(CHUNK + 1))
        with ledger.write() as connection:
            assert jobs.take(connection, job.id, worker_id=heir, instead_of=slow, now=NOW + 1)
        forget_items(ledger, job.id)
        write_items(ledger, job.id, [line(number, text="heir") for number in range(3)], trial=(), now=NOW)
        yield line(CHUNK + 1)

    with pytest.raises(IllegalMove, match="no longer, being registered by this process"):
        write_items(ledger, job.id, lines(), trial=(), now=NOW)
    assert count(ledger, items) == 3


@pytest.mark.parametrize("state", [state for state in JobState if state is not JobState.VALIDATING])
def test_items_of_a_job_that_is_registered_are_neither_written_nor_forgotten(ledger: Ledger, state: JobState) -> None:
    desk = Desk.open(ledger, 2)
    desk.settle(desk.claim_one(), ANSWERED)
    desk.force_job(state=state)
    before = snapshot(ledger)
    with pytest.raises(IllegalMove, match="are not forgotten"):
        forget_items(ledger, desk.job_id)
    with pytest.raises(IllegalMove, match="being registered"):
        write_items(ledger, desk.job_id, [line(9)], trial=(), now=NOW)
    assert snapshot(ledger) == before
