"""What a person or a standing consent decides: exactly for what was shown, and within its budget."""

from dataclasses import replace

import pytest
from sqlalchemy import update

from batchrun.core.states import ItemState
from batchrun.ledger.changes import accept, stage
from batchrun.ledger.consents import stopped_items
from batchrun.ledger.doubts import doubtful_attempts
from batchrun.ledger.ledger import Ledger
from batchrun.ledger.schema import items
from tests.ledger.desk import (
    ANSWERED,
    NOT_SENT,
    NOW,
    REFUSED,
    SERVER_ERROR,
    THROTTLED,
    UNKNOWN,
    UNUSABLE,
    WORST_PUSD,
    Desk,
    line,
    snapshot,
)

I = ItemState  # noqa: E741


def _three_doubts(ledger: Ledger) -> Desk:
    desk = Desk.open(ledger, 3)
    for claimed in desk.claim():
        desk.settle(claimed, UNKNOWN)
    return desk


def test_a_consent_is_for_exactly_what_was_shown(ledger: Ledger) -> None:
    desk = _three_doubts(ledger)
    shown = desk.shown(I.IN_DOUBT, 0, 2)
    assert [(one.custom_id, one.fence, one.worst_pusd) for one in shown] == [("q-0", 1, 1000), ("q-2", 1, 1000)]
    assert desk.consent(shown) == 2
    assert desk.states() == ["pending", "in_doubt", "pending"]
    assert [desk.item(number)["consents"] for number in range(3)] == [1, 0, 1]
    assert [event["detail"] for event in desk.events("consent")] == [{"shown": 2, "moved": 2, "in_doubt": 2}]


def test_a_consent_is_good_for_one_move(ledger: Ledger) -> None:
    """A second terminal shows the same list; meanwhile the item was sent and stands in doubt once more."""
    desk = _three_doubts(ledger)
    shown = desk.shown(I.IN_DOUBT)
    assert desk.consent(shown[:1]) == 1
    desk.settle(desk.claim_one(), UNKNOWN)
    before = snapshot(ledger)
    assert desk.consent(shown[:1]) == 0
    assert desk.give_up(shown[:1]) == 0
    assert snapshot(ledger) == before
    assert desk.consent([*shown, *shown]) == 2


def test_what_moved_between_the_question_and_the_answer_is_left_alone(ledger: Ledger) -> None:
    desk = _three_doubts(ledger)
    shown = desk.shown(I.IN_DOUBT)
    desk.adopt(desk.attempts(0)[0]["key"], ANSWERED)
    desk.adopt(desk.attempts(1)[0]["key"], REFUSED)
    assert desk.consent(shown) == 1
    assert desk.states() == ["completed", "failed", "pending"]


def test_a_consent_to_a_superseded_item_moves_nothing(ledger: Ledger) -> None:
    desk = Desk.open(ledger)
    desk.settle(desk.claim_one(), REFUSED)
    shown = desk.shown(I.FAILED)
    stage(ledger, desk.job_id, [line(0, text="another")])
    accept(ledger, desk.job_id, input_digest="", params_digest="", spec="{}", trial=(), now=NOW)
    superseded = [replace(one, fence=one.fence + 1) for one in shown]
    assert desk.consent(shown) == desk.consent(superseded) == 0
    assert desk.shown(I.FAILED) == []


def test_a_consent_begins_the_account_anew(desk: Desk) -> None:
    for what in (THROTTLED, SERVER_ERROR, UNKNOWN):
        desk.settle(desk.claim(now=NOW + 3600)[0], what)
    before = desk.item()
    assert (before["tries"], before["throttled_s"], before["consents"]) == (2, 7.0, 0)
    desk.now = NOW + 50
    desk.consent(desk.shown(I.IN_DOUBT))
    after = desk.item()
    assert (after["tries"], after["throttled_s"], after["consents"]) == (0, 0.0, 1)
    assert (after["not_before_at"], after["wait_s"]) == (NOW + 50, 0.0)


def test_nothing_is_consented_to_while_a_job_is_cancelling(ledger: Ledger) -> None:
    """What went to pending there would end as cancelled, as if it had never been sent."""
    desk = _three_doubts(ledger)
    desk.cancel()
    shown = desk.shown(I.IN_DOUBT)
    assert desk.consent(shown) == 0
    assert desk.states() == ["in_doubt"] * 3
    assert desk.move("finalize")
    assert desk.move("close")
    assert desk.consent(shown) == 3, "after the end it is the way to open the job again"


def test_a_doubt_that_was_given_up_stays_possibly_billed(desk: Desk) -> None:
    desk.settle(desk.claim_one(), UNKNOWN)
    assert desk.give_up(desk.shown(I.IN_DOUBT)) == 1
    item = desk.item()
    assert (item["state"], item["cause"], item["fence"], item["consents"]) == ("failed", "given_up", 2, 0)
    assert desk.outcomes() == ["unknown"]
    assert desk.money == (0, WORST_PUSD)
    assert desk.shown(I.FAILED)[0].is_permanent, "retry-failed leaves it out unless it is told otherwise"


def test_only_a_doubt_can_be_given_up(desk: Desk) -> None:
    desk.settle(desk.claim_one(), REFUSED)
    before = snapshot(desk.ledger)
    assert desk.give_up(desk.shown(I.FAILED)) == 0
    assert snapshot(desk.ledger) == before


def test_stopped_items_are_listed_in_input_order_and_can_be_chosen(ledger: Ledger) -> None:
    desk = Desk.open(ledger, 4)
    for claimed, what in zip(desk.claim(), (REFUSED, UNUSABLE, REFUSED, UNKNOWN), strict=True):
        desk.settle(claimed, what)
    with ledger.write() as connection:
        connection.execute(update(items).values(position=9 - items.c.position))

    def chosen(**choice: object) -> list[str]:
        with ledger.read() as connection:
            return [one.custom_id for one in stopped_items(connection, desk.job_id, state=I.FAILED, **choice)]

    assert chosen() == ["q-2", "q-1", "q-0"]
    assert chosen(causes=["html"]) == ["q-1"]
    assert chosen(causes=["html", "bad_request"], custom_ids=["q-0", "q-1", "q-3"]) == ["q-1", "q-0"]


# -- the standing consent ----------------------------------------------------------------------------------------------


def test_the_policy_sends_a_doubt_again_while_tries_are_left_and_then_gives_it_up(ledger: Ledger) -> None:
    desk = Desk.open(ledger, on_unknown="retry", retry_times=2)
    for tried in (1, 2):
        desk.claim_one()
        desk.rescue()
        assert desk.item()["tries"] == tried
        assert desk.retry_by_policy() == (1, 0)
        assert (desk.state(), desk.item()["fence"]) == ("pending", 3 * tried)
    desk.claim_one()
    desk.rescue()
    assert desk.retry_by_policy() == (0, 1)
    item = desk.item()
    assert (item["state"], item["cause"], item["fence"]) == ("failed", "given_up", 9)
    assert desk.outcomes() == ["unknown"] * 3
    assert desk.money == (0, 3 * WORST_PUSD)
    assert [event["detail"] for event in desk.events("policy_retry")] == [
        {"retried": 1, "given_up": 0},
        {"retried": 1, "given_up": 0},
        {"retried": 0, "given_up": 1},
    ]
    assert desk.retry_by_policy() == (0, 0), "what was given up is not taken up again"


def test_the_budget_counts_from_the_last_consent(ledger: Ledger) -> None:
    desk = Desk.open(ledger, on_unknown="retry", retry_times=0)
    desk.settle(desk.claim_one(), UNKNOWN)
    assert desk.state() == "failed"
    assert desk.consent(desk.shown(I.FAILED)) == 1
    desk.claim_one()
    desk.rescue()
    assert desk.retry_by_policy(retry_times=0) == (0, 1)
    assert desk.consent(desk.shown(I.FAILED)) == 1
    desk.claim_one()
    desk.rescue()
    assert desk.retry_by_policy(retry_times=1) == (1, 0)


def test_the_policy_takes_up_what_hold_had_stopped(ledger: Ledger) -> None:
    desk = Desk.open(ledger, 5)
    unknown, useless, refused, answered, given_up = desk.claim()
    for claimed, what in ((unknown, UNKNOWN), (useless, UNUSABLE), (refused, REFUSED), (answered, ANSWERED)):
        desk.settle(claimed, what)
    desk.settle(given_up, UNKNOWN)
    desk.give_up(desk.shown(I.IN_DOUBT, 4))
    desk.set(on_unknown="retry")
    assert desk.retry_by_policy() == (2, 0)
    assert desk.states() == ["pending", "pending", "failed", "completed", "failed"]


def test_a_useless_answer_without_tries_left_stays_failed(ledger: Ledger) -> None:
    desk = Desk.open(ledger)
    desk.settle(desk.claim_one(), UNUSABLE)
    desk.set(on_unknown="retry")
    before = snapshot(ledger)
    assert desk.retry_by_policy(retry_times=0) == (0, 0)
    assert snapshot(ledger) == before


def test_an_item_is_driven_to_an_end_within_its_retries(ledger: Ledger) -> None:
    for what, possibly_billed in ((UNKNOWN, 3), (UNUSABLE, 3), (SERVER_ERROR, 0)):
        desk = Desk.open(ledger, on_unknown="retry", retry_times=2)
        while desk.state() == "pending":
            desk.settle(desk.claim(now=NOW + 3600)[0], what)
        assert desk.state() == "failed"
        assert desk.outcomes() == [what.outcome] * 3
        assert desk.money == (0, possibly_billed * WORST_PUSD)


def test_waits_for_free_retries_do_not_use_the_retries_up(ledger: Ledger) -> None:
    desk = Desk.open(ledger, retry_times=0)
    for what in (NOT_SENT, THROTTLED, NOT_SENT, THROTTLED):
        desk.settle(desk.claim(now=NOW + 3600)[0], what)
    assert (desk.state(), desk.item()["tries"], desk.item()["throttled_s"]) == ("pending", 0, 14.0)


# -- cancel and reopen -------------------------------------------------------------------------------------------------


def test_what_was_cancelled_is_open_again_and_ready_at_once(ledger: Ledger) -> None:
    desk = Desk.open(ledger, 2)
    desk.settle(desk.claim_one(), SERVER_ERROR)
    desk.cancel()
    assert desk.counts() == {"cancelled": 2}
    assert desk.move("finalize")
    assert desk.move("close")
    desk.now = NOW + 1
    assert desk.move("reopen")
    assert desk.reopen_cancelled() == 2
    assert desk.item()["not_before_at"] == NOW + 1
    assert len(desk.claim(now=NOW + 1)) == 2


def test_a_superseded_item_is_neither_cancelled_nor_reopened(ledger: Ledger) -> None:
    desk = Desk.open(ledger)
    desk.force_item(is_current=False)
    desk.force_job(total=0)
    assert desk.cancel_pending() == 0
    desk.force_item(state="cancelled")
    assert desk.reopen_cancelled() == 0


# -- what is shown of a doubt ------------------------------------------------------------------------------------------


def test_each_doubt_is_shown_with_its_latest_unknown_attempt(ledger: Ledger) -> None:
    desk = _three_doubts(ledger)
    desk.consent(desk.shown(I.IN_DOUBT, 1))
    second = desk.claim_one(1)
    desk.rescue()
    with ledger.read() as connection:
        found = doubtful_attempts(connection, desk.item_ids)
    assert [found[item_id]["key"] for item_id in desk.item_ids] == [
        desk.attempts(0)[0]["key"],
        second.key,
        desk.attempts(2)[0]["key"],
    ]
    assert {(row["host"], row["folder"]) for row in found.values()} == {("here", "/nowhere")}


@pytest.mark.parametrize("state", [I.IN_DOUBT, I.FAILED])
def test_an_empty_list_asks_for_nothing(desk: Desk, state: ItemState) -> None:
    before = snapshot(desk.ledger)
    assert desk.shown(state) == []
    assert desk.consent([]) == desk.give_up([]) == 0
    assert snapshot(desk.ledger) == before
