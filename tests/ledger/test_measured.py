"""Times of measured requests: kept with the outcome, in one transaction, and read as the formulas want them."""

from dataclasses import replace

import pytest
from sqlalchemy import func, select

from batchrun.core.measuring.timings import Measured
from batchrun.core.measuring.trace import Trace
from batchrun.core.outcome import Timing
from batchrun.core.states import AttemptState
from batchrun.ledger.ledger import Ledger
from batchrun.ledger.measured import requests_of
from batchrun.ledger.schema import traces
from tests.ledger.desk import ANSWERED, NOW, REFUSED, UNKNOWN, Came, Desk

CLOCK_S = 5_000.0  # of the sending host when the wall clock said NOW


def timed(came: Came, *, sent_s: float, duration_s: float, trace: Trace | None = None) -> Came:
    """Give an outcome its times: sent so many seconds after NOW."""
    timing = Timing(NOW + sent_s, None, NOW + sent_s + duration_s, duration_s, trace)
    return replace(came, evidence=replace(came.evidence, timing=timing))


def traced(sent_s: float, *, clock_slip_s: float = 0.0) -> Came:
    trace = Trace(CLOCK_S + sent_s, 0.1, 0.2, (0.05, 0.05))
    return timed(ANSWERED, sent_s=sent_s + clock_slip_s, duration_s=0.35, trace=trace)


def read(desk: Desk) -> tuple[Measured, ...]:
    with desk.ledger.read() as connection:
        return requests_of(connection, desk.job_id, max_tokens=5).requests


@pytest.mark.parametrize("is_grouped", [True, False])
def test_a_trace_is_kept_with_its_answer_and_read_in_seconds_of_the_run(ledger: Ledger, is_grouped: bool) -> None:
    desk = Desk.open(ledger, 2)
    for number in (0, 1):
        settle = desk.settle_in_a_group if is_grouped else desk.settle
        settle(desk.claim_one(number), traced(10.0 + 2 * number))
    first, second = read(desk)
    assert (first.name, first.outcome, first.sent_s, second.sent_s) == ("q-0", AttemptState.ANSWERED, 0.0, 2.0)
    assert (second.first_chunk_s, second.first_token_s) == (pytest.approx(2.1), pytest.approx(2.2))
    assert (second.last_token_s, second.ended_s) == (pytest.approx(2.3), pytest.approx(2.35))
    assert second.gaps_s == pytest.approx((0.05, 0.05))
    assert (first.prompt_tokens, first.output_tokens, first.max_tokens) == (3, 5, 5)
    assert second.tpot_s == pytest.approx(0.1 / 4)


def test_a_wall_clock_that_is_set_moves_no_request_of_one_process(ledger: Ledger) -> None:
    desk = Desk.open(ledger, 3)
    for number, slip_s in enumerate((0.0, 0.0, -3_600.0)):
        desk.settle(desk.claim_one(number), traced(float(number), clock_slip_s=slip_s))
    assert [one.sent_s for one in read(desk)] == [2.0, 0.0, 1.0]  # in the order of their wall times


def test_requests_without_a_trace_lie_beside_the_others(ledger: Ledger) -> None:
    desk = Desk.open(ledger, 3)
    desk.settle(desk.claim_one(0), traced(1.0))
    desk.settle(desk.claim_one(1), timed(REFUSED, sent_s=2.0, duration_s=0.01))
    desk.settle(desk.claim_one(2), timed(UNKNOWN, sent_s=3.0, duration_s=9.0))
    answered, refused, unknown = read(desk)
    assert (refused.sent_s, refused.ended_s, refused.cause) == (1.0, pytest.approx(1.01), "bad_request")
    assert (unknown.sent_s, unknown.outcome, unknown.first_token_s) == (2.0, AttemptState.UNKNOWN, None)
    assert answered.is_answered


def test_the_requests_of_several_processes_are_laid_beside_each_other_by_wall_time(ledger: Ledger) -> None:
    desk = Desk.open(ledger, 2)
    other = desk.hire()
    desk.settle(desk.claim_one(0), traced(1.0))
    elsewhere = replace(traced(4.0).evidence, timing=Timing(NOW + 4, None, NOW + 5, 1.0, Trace(77.0, 0.5, 0.5)))
    desk.settle(desk.claim_one(1, worker=other), replace(ANSWERED, evidence=elsewhere), worker=other)
    assert [one.sent_s for one in read(desk)] == [0.0, pytest.approx(3.0)]


def test_what_is_out_or_was_given_back_is_no_request(ledger: Ledger) -> None:
    desk = Desk.open(ledger, 2)
    desk.release(desk.claim_one(0))
    desk.claim_one(1)
    assert read(desk) == ()


def test_a_late_answer_brings_its_trace(ledger: Ledger) -> None:
    desk = Desk.open(ledger, 1)
    claimed = desk.claim_one()
    desk.settle(claimed, timed(UNKNOWN, sent_s=0.0, duration_s=1.0, trace=Trace(CLOCK_S, 0.5, None)))
    desk.settle(claimed, traced(0.0))
    assert [one.first_token_s for one in read(desk)] == [pytest.approx(0.2)]


def test_a_job_that_is_not_measured_keeps_no_traces(ledger: Ledger) -> None:
    desk = Desk.open(ledger, 1)
    desk.settle(desk.claim_one(), ANSWERED)
    with ledger.read() as connection:
        assert connection.execute(select(func.count()).select_from(traces)).scalar_one() == 0
    assert [one.name for one in read(desk)] == ["q-0"]


def test_a_purged_job_keeps_its_times(ledger: Ledger) -> None:
    desk = Desk.open(ledger, 1)
    desk.settle(desk.claim_one(), traced(0.0))
    desk.end()
    desk.purge()
    assert [one.first_token_s for one in read(desk)] == [pytest.approx(0.2)]


def test_of_a_large_job_every_so_many_th_item_is_read_and_each_was_due_at_its_claim(ledger: Ledger) -> None:
    desk = Desk.open(ledger, 6)
    for number in range(6):
        desk.settle(desk.claim_one(number), timed(ANSWERED, sent_s=1.0, duration_s=0.5))
    with ledger.read() as connection:
        whole = requests_of(connection, desk.job_id).requests
        third = requests_of(connection, desk.job_id, every=3).requests
    assert (len(whole), len(third)) == (6, 2)
    assert {one.name for one in third} < {one.name for one in whole}
    assert [one.queue_s for one in whole] == [pytest.approx(1.0)] * 6
