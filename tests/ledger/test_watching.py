"""The last failure, as those who watch a job see it: the latest one, with what became of its item."""

from dataclasses import replace

import pytest

from batchrun.core.outcome import Timing
from batchrun.core.states import ItemState
from batchrun.ledger.ledger import Ledger
from batchrun.ledger.trial import trial_setbacks
from batchrun.ledger.watching import last_failure
from tests.ledger.desk import ANSWERED, NOT_SENT, NOW, REFUSED, SERVER_ERROR, UNKNOWN, UNUSABLE, Came, Desk


def at(came: Came, second: float) -> Came:
    """The same, so many seconds later."""
    timing = Timing(NOW, NOW, NOW + second, second)
    return replace(came, evidence=replace(came.evidence, timing=timing))


def seen(desk: Desk) -> tuple[str, str, ItemState] | None:
    with desk.ledger.read() as connection:
        found = last_failure(connection, desk.job_id)
    return None if found is None else (found["custom_id"], found["cause"], found["to"])


def test_a_job_without_failures_has_no_last_one(ledger: Ledger) -> None:
    desk = Desk.open(ledger, 2)
    assert seen(desk) is None
    desk.settle(desk.claim_one(0), ANSWERED)
    desk.claim_one(1)
    assert seen(desk) is None


@pytest.mark.parametrize(
    ("came", "to"),
    [
        (REFUSED, ItemState.FAILED),
        (SERVER_ERROR, ItemState.PENDING),
        (UNKNOWN, ItemState.IN_DOUBT),
        (UNUSABLE, ItemState.FAILED),
    ],
)
def test_the_last_failure_says_what_became_of_its_item(ledger: Ledger, came: Came, to: ItemState) -> None:
    desk = Desk.open(ledger, 3)
    desk.settle(desk.claim_one(1), came)
    assert seen(desk) == ("q-1", came.evidence.cause, to)


def test_the_latest_one_counts_and_not_the_one_furthest_on(ledger: Ledger) -> None:
    desk = Desk.open(ledger, 100)
    desk.settle(desk.claim_one(90), at(REFUSED, 1.0))
    desk.settle(desk.claim_one(10), at(UNKNOWN, 9.0))
    desk.settle(desk.claim_one(50), at(SERVER_ERROR, 5.0))
    assert seen(desk) == ("q-10", "timeout", ItemState.IN_DOUBT)


def test_a_request_that_was_never_sent_is_a_failure_too(ledger: Ledger) -> None:
    desk = Desk.open(ledger, 1)
    desk.settle(desk.claim_one(0), NOT_SENT)
    found = seen(desk)
    assert found is None or found[1] == "connect"  # it has no time of its own where nothing was begun


def test_requests_that_were_given_back_hide_no_failure_and_are_none(ledger: Ledger) -> None:
    desk = Desk.open(ledger, 70)
    for number, what in enumerate((at(NOT_SENT, 99.0), REFUSED, SERVER_ERROR, UNKNOWN, UNUSABLE, ANSWERED)):
        desk.force_item(number, is_trial=True)
        desk.settle(desk.claim_one(number), what)
    for number in range(6, 70):
        desk.force_item(number, is_trial=True)
        desk.release(desk.claim_one(number))
    assert seen(desk) == ("q-0", "connect", ItemState.PENDING)
    with ledger.read() as connection:
        setbacks = trial_setbacks(connection, desk.job_id)
    assert setbacks == dict.fromkeys(("connect", "bad_request", "server_error", "timeout", "html"), 1)


def test_another_jobs_failures_are_not_told(ledger: Ledger) -> None:
    other, desk = Desk.open(ledger, 1), Desk.open(ledger, 1)
    other.settle(other.claim_one(0), REFUSED)
    assert seen(desk) is None
