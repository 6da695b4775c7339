"""What a dead worker had in hand: in doubt, unless its marks prove that a request never began."""

import pytest

from batchrun.ledger.ledger import Ledger
from tests.ledger.desk import ANSWERED, UNKNOWN, WORST_PUSD, Desk, snapshot


@pytest.fixture
def desk(ledger: Ledger) -> Desk:
    return Desk.open(ledger, 3)


def test_what_was_not_marked_goes_back_for_nothing_and_the_rest_is_in_doubt(desk: Desk) -> None:
    first, second, third = desk.claim()
    assert desk.rescue(begun={second.key, 99}) == [second.key]
    assert desk.states() == ["pending", "in_doubt", "pending"]
    assert [desk.outcomes(number) for number in range(3)] == [["not_sent"], ["unknown"], ["not_sent"]]
    causes = [desk.attempts(number)[0]["cause"] for number in range(3)]
    assert causes == ["released", "worker_lost", "released"]
    assert desk.money == (0, WORST_PUSD)
    assert [desk.item(number)["tries"] for number in range(3)] == [0, 1, 0]
    (event,) = desk.events("rescued")
    assert event["detail"] == {"worker": desk.worker, "in_doubt": 1, "unsent": 2}
    assert {one.key for one in desk.claim()}.isdisjoint({first.key, second.key, third.key}), "an attempt of its own"


def test_without_marks_that_can_be_trusted_everything_is_in_doubt(desk: Desk) -> None:
    keys = [one.key for one in desk.claim()]
    assert desk.rescue(begun=None) == keys
    assert desk.states() == ["in_doubt"] * 3
    assert desk.money == (0, 3 * WORST_PUSD)


def test_what_has_an_outcome_stays_as_it_is_marked_or_not(desk: Desk) -> None:
    answered, doubtful, _ = desk.claim()
    desk.settle(answered, ANSWERED)
    desk.settle(doubtful, UNKNOWN)
    desk.rescue(begun=())
    assert desk.states() == ["completed", "in_doubt", "pending"]
    before = snapshot(desk.ledger)
    assert desk.rescue(begun=()) == []
    assert snapshot(desk.ledger) == before, "once is enough"


def test_what_others_have_in_hand_is_theirs(desk: Desk) -> None:
    other = desk.hire()
    (mine,), (theirs,) = desk.claim(0), desk.claim(1, worker=other)
    desk.rescue(begun=())
    assert desk.states() == ["pending", "running", "pending"]
    assert [desk.outcomes(number) for number in range(2)] == [["not_sent"], ["intent"]]
    assert mine.key != theirs.key


def test_an_unmarked_attempt_whose_item_has_gone_on_is_free_and_moves_nothing(desk: Desk) -> None:
    (first,) = desk.claim(0)
    desk.rescue()
    desk.consent(desk.shown("in_doubt"))
    second = desk.hire()
    desk.claim(0, worker=second)
    desk.adopt(first.key, ANSWERED)
    desk.rescue(second, begun=())
    assert desk.state() == "completed"
    assert desk.outcomes() == ["answered", "not_sent"]
    assert desk.money == (300, 0)


def test_evidence_of_an_attempt_that_was_called_unsent_is_kept_and_raises_the_alarm(desk: Desk) -> None:
    (claimed,) = desk.claim(0)
    desk.rescue(begun=())
    assert desk.adopt(claimed.key, ANSWERED) is not None
    assert desk.state() == "completed"
    (event,) = desk.events("invariant_alarm")
    assert (event["detail"]["recorded"], event["detail"]["evidence"]) == ("not_sent", "answered")
    assert desk.money == (300, 0), "and it is paid for"
