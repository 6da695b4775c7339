"""Reserved and spent: at every step the sums of what the attempts say, and never less than what may be billed."""

from dataclasses import replace

import pytest

from batchrun.core.states import AttemptState
from batchrun.ledger.changes import accept, stage
from batchrun.ledger.ledger import Ledger
from batchrun.ledger.reports import report_attempts
from batchrun.ledger.settle import Settled, settle, settle_answers
from tests.ledger.desk import (
    ANSWERED,
    ANSWERED_BLIND,
    NOT_SENT,
    NOW,
    REFUSED,
    UNKNOWN,
    UNUSABLE,
    UNUSABLE_PAID,
    WORST_PUSD,
    Came,
    Desk,
    check_money,
    line,
    snapshot,
)


@pytest.mark.parametrize(
    ("what", "spent", "reserved"),
    [
        (ANSWERED, 300, 0),
        (ANSWERED_BLIND, 0, WORST_PUSD),
        (REFUSED, 0, 0),
        (NOT_SENT, 0, 0),
        (UNUSABLE, 0, WORST_PUSD),
        (UNUSABLE_PAID, 200, 0),
        (UNKNOWN, 0, WORST_PUSD),
    ],
    ids=["answered", "answered blind", "refused", "not sent", "unusable", "unusable paid", "unknown"],
)
def test_an_outcome_settles_its_reservation(desk: Desk, what: Came, spent: int, reserved: int) -> None:
    claimed = desk.claim_one()
    assert desk.money == (0, WORST_PUSD)
    desk.settle(claimed, what)
    assert desk.money == (spent, reserved)


def test_an_answer_may_cost_more_than_the_worst_that_was_thought(desk: Desk) -> None:
    """A tokenizer of its own: the truth is written down, and the job's limit feels it."""
    dear = Came(ANSWERED.evidence, 5_000)
    desk.settle(desk.claim_one(), dear)
    assert desk.money == (5_000, 0)
    desk.set(max_cost_pusd=5_000)
    assert desk.claim() == []


def test_amounts_beyond_any_budget_are_kept_exactly(ledger: Ledger) -> None:
    """A million dollars are 10**18 picodollars, and both back ends count them in 64 bits."""
    desk = Desk.open(ledger, [line(0, worst_pusd=10**18)])
    claimed = desk.claim_one()
    assert desk.money == (0, 10**18)
    desk.settle(claimed, Came(ANSWERED.evidence, 10**18 - 1))
    assert desk.money == (10**18 - 1, 0)


def test_a_group_of_answers_moves_the_money_of_each_job(ledger: Ledger) -> None:
    desks = [Desk.open(ledger, 3) for _ in range(2)]
    group = [
        desk.settlement(claimed, what)
        for desk in desks
        for claimed, what in zip(desk.claim(), (ANSWERED, ANSWERED_BLIND, ANSWERED), strict=True)
    ]
    with ledger.write() as connection:
        assert settle_answers(connection, group)
    assert [desk.money for desk in desks] == [(600, WORST_PUSD)] * 2
    assert [desk.states() for desk in desks] == [["completed"] * 3] * 2
    assert [desk.item()["tries"] for desk in desks] == [1, 1]


def _spoil_state(desk: Desk) -> None:
    desk.rescue()


def _spoil_fence(desk: Desk) -> None:
    desk.force_item(1, fence=5)


def _spoil_owner(desk: Desk) -> None:
    desk.force_item(1, worker_id=desk.hire())


@pytest.mark.parametrize("spoil", [_spoil_state, _spoil_fence, _spoil_owner], ids=["rescued", "fenced", "another's"])
def test_one_answer_whose_guard_fails_sends_the_whole_group_back(ledger: Ledger, spoil: object) -> None:
    desk = Desk.open(ledger, 3)
    group = [desk.settlement(claimed, ANSWERED) for claimed in desk.claim()]
    spoil(desk)  # type: ignore[operator]
    before = snapshot(ledger)

    class RolledBack(Exception):
        pass

    def write() -> None:
        with ledger.write() as connection:
            if not settle_answers(connection, group):
                raise RolledBack

    with pytest.raises(RolledBack):
        write()
    assert snapshot(ledger) == before
    desk.force_item(1, fence=1, worker_id=desk.item(1)["worker_id"] and desk.worker)


def test_an_answer_with_a_wrong_reservation_does_not_pass_with_the_group(ledger: Ledger) -> None:
    desk = Desk.open(ledger)
    claimed = desk.claim_one()
    one = replace(desk.settlement(claimed, ANSWERED), reserved_pusd=WORST_PUSD + 1)
    with ledger.write() as connection:
        assert not settle_answers(connection, [one])
        connection.rollback()
    with ledger.write() as connection:
        assert settle(connection, one) is Settled.MOVED
    assert desk.money == (300, 0)


def test_superseded_items_keep_their_attempts_in_the_jobs_money_and_reports(ledger: Ledger) -> None:
    desk = Desk.open(ledger, 2)
    for claimed, what in zip(desk.claim(), (ANSWERED, UNUSABLE), strict=True):
        desk.settle(claimed, what)
    stage(ledger, desk.job_id, [line(5)])
    accept(ledger, desk.job_id, input_digest="", params_digest="", spec="{}", trial=(), now=NOW)
    assert desk.money == (300, WORST_PUSD)
    with ledger.read() as connection:
        report = report_attempts(connection, desk.job_id)
        check_money(connection, desk.job_id)
    assert dict(report.by_state) == {AttemptState.ANSWERED: 1, AttemptState.UNUSABLE: 1}
    assert (report.certain_pusd, report.possible_pusd) == (300, WORST_PUSD)


def test_the_report_adds_up_every_kind_of_attempt(ledger: Ledger) -> None:
    desk = Desk.open(ledger, 9, trial=(0, 1))
    kinds = (ANSWERED, ANSWERED_BLIND, REFUSED, UNUSABLE, UNUSABLE_PAID, UNKNOWN, NOT_SENT)
    for claimed, what in zip(desk.claim(*range(8)), kinds, strict=False):
        desk.settle(claimed, what)
    with ledger.read() as connection:
        report = report_attempts(connection, desk.job_id)
        of_trial = report_attempts(connection, desk.job_id, trial_only=True)
    assert (report.total, report.open, report.sent) == (8, 1, 6)
    assert (report.prompt_tokens, report.completion_tokens, report.without_usage) == (6, 10, 1)
    assert (report.certain_requests, report.possible_requests) == (3, 3)
    assert (report.certain_pusd, report.unpriced_certain) == (500, 1)
    # The worst of what is unknown, useless and open, and of the answer that is paid for without saying how much.
    assert report.possible_pusd == 4 * WORST_PUSD
    assert report.certain_pusd + report.possible_pusd == sum(desk.money)
    assert (of_trial.total, of_trial.certain_pusd, of_trial.possible_pusd) == (2, 300, WORST_PUSD)
