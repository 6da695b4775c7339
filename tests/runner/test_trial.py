"""A trial's report from the ledger: what is projected is that of all attempts, and of what is really left."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from batchrun.core.outcome import Charge
from batchrun.core.prices import Price
from batchrun.core.states import AttemptState
from batchrun.core.strata import draw
from batchrun.ledger.ledger import Ledger
from batchrun.ledger.trial import count_lengths, mark_trial, stream_lengths, tried_items
from batchrun.runner.strata import strata_of
from batchrun.runner.trial import report_trial
from tests.ledger.desk import ANSWERED, ANSWERED_BLIND, REFUSED, UNUSABLE_PAID, WORST_PUSD, Desk, came, line
from tests.runner.jobs import a_job

TRIAL = {"size": 10, "sample": "stratified", "seed": 0}
SPEC = a_job().spec | {"trial": TRIAL}
PRICE = Price(input_per_1m_usd=1, output_per_1m_usd=2)  # type: ignore[arg-type]


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    opened = Ledger(f"sqlite:///{tmp_path}/ledger.db", folder=tmp_path)
    yield opened
    opened.close()


def a_desk(ledger: Ledger, *, items: int = 100, tried: int = 10) -> Desk:
    desk = Desk.open(ledger, items, trial=range(tried))
    desk.force_job(spec=json.dumps(SPEC), concurrency=4)
    return desk


def test_the_trial_is_drawn_from_what_was_written_and_giants_are_in_it(ledger: Ledger) -> None:
    lines = [line(number, text="x" * (20_000 if number in (40, 61, 93) else 300)) for number in range(100)]
    lines.append(line(100, is_rejected=True))
    desk = Desk.open(ledger, lines)
    with ledger.write() as connection:
        lengths = count_lengths(connection, desk.job_id)
        strata = strata_of(TRIAL, lengths)
        chosen = draw(stream_lengths(connection, desk.job_id), strata, seed=0)
        mark_trial(connection, desk.job_id, chosen)
        first = [item_id for item_id, _ in stream_lengths(connection, desk.job_id, limit=3)]
    assert sum(lengths.values()) == 100
    assert len(chosen) == 10
    assert {desk.item_ids[number] for number in (40, 61, 93)} <= chosen
    assert first == desk.item_ids[:3]
    assert [desk.item(number)["is_trial"] for number in (40, 100)] == [True, False]


def test_every_paid_attempt_counts_in_the_projected_cost(ledger: Ledger) -> None:
    """Ten items: six answers, two answers without usage (their most), one useless and paid, one refused for nothing."""
    desk = a_desk(ledger)
    for claimed, what in zip(
        desk.claim(*range(10)), [*[ANSWERED] * 6, *[ANSWERED_BLIND] * 2, UNUSABLE_PAID, REFUSED], strict=True
    ):
        desk.settle(claimed, what)
    report = report_trial(ledger, desk.job, price=PRICE)
    assert (report.size, report.done, report.left, report.lost) == (10, 8, 90, 0)
    cost = report.projection.cost_pusd
    assert cost is not None
    assert cost.low is not None
    tenth = 6 * 300 + 2 * WORST_PUSD + 200
    assert cost.expected == pytest.approx(9 * tenth, rel=0.02)
    assert cost.low < 9 * tenth
    assert report.projection.missed_share is not None
    assert report.projection.completion_tokens is not None
    assert report.projection.completion_tokens.expected == pytest.approx(90 * 5)  # of the six that told
    assert report_trial(ledger, desk.job, price=None).projection.cost_pusd is None


def test_an_attempt_whose_cost_nobody_knows_leaves_the_projected_cost_unknown(ledger: Ledger) -> None:
    desk = Desk.open(ledger, [line(number, worst_pusd=None) for number in range(20)], trial=range(2))
    desk.force_job(spec=json.dumps(SPEC))
    for claimed, what in zip(desk.claim(0, 1), [ANSWERED, ANSWERED_BLIND], strict=True):
        desk.settle(claimed, what)
    assert report_trial(ledger, desk.job, price=PRICE).projection.cost_pusd is None
    free = Price(input_per_1m_usd=0, output_per_1m_usd=0)  # type: ignore[arg-type]
    assert report_trial(ledger, desk.job, price=free).projection.cost_pusd is not None


def test_an_item_that_a_process_of_ours_lost_is_not_held_against_the_endpoint(ledger: Ledger) -> None:
    desk = a_desk(ledger, items=12, tried=3)
    lost = came(AttemptState.UNKNOWN, "aborted", Charge.POSSIBLE)
    for claimed, what in zip(desk.claim(0, 1, 2), [ANSWERED, ANSWERED, lost], strict=True):
        desk.settle(claimed, what)
    with ledger.read() as connection:
        assert [one.cause for one in tried_items(connection, desk.job_id)] == [None, None, "aborted"]
    report = report_trial(ledger, desk.job, price=PRICE)
    assert (report.size, report.lost, report.done, report.left) == (3, 1, 2, 9)
    assert report.projection.missed_share is not None
    assert report.projection.missed_share[0] == 0


def test_where_nothing_is_left_nothing_is_projected(ledger: Ledger) -> None:
    desk = a_desk(ledger, items=2, tried=2)
    for claimed in desk.claim():
        desk.settle(claimed, ANSWERED)
    assert report_trial(ledger, desk.job, price=PRICE).projection.items == 0
