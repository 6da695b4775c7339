"""What is learnt of an attempt after its item went on: adopted, corrected or only recorded, and never lost."""

from collections.abc import Callable

import pytest
from sqlalchemy import select

from batchrun.core.outcome import Charge
from batchrun.core.states import AttemptState
from batchrun.ledger.changes import accept, stage
from batchrun.ledger.claims import Claim
from batchrun.ledger.ledger import Ledger
from batchrun.ledger.schema import answers
from batchrun.ledger.settle import Settled
from batchrun.ledger.sweeps import open_attempt
from tests.ledger.desk import (
    ANSWERED,
    ANSWERED_BLIND,
    NOT_SENT,
    NOW,
    REFUSED,
    SERVER_ERROR,
    THROTTLED,
    UNKNOWN,
    UNKNOWN_BARE,
    UNUSABLE,
    UNUSABLE_PAID,
    WORST_PUSD,
    Came,
    Desk,
    came,
    line,
    snapshot,
)


def raw_of(desk: Desk, claimed: Claim) -> bytes | None:
    with desk.ledger.read() as connection:
        raw = connection.execute(select(answers.c.raw).where(answers.c.key == claimed.key)).scalar()
    return None if raw is None else bytes(raw)


# -- where the item stands when the evidence comes ---------------------------------------------------------------------


def _rescued(desk: Desk) -> None:
    desk.rescue()


def _settled_unknown(desk: Desk) -> None:
    desk.adopt(desk.attempts()[0]["key"], UNKNOWN)


def _consented(desk: Desk) -> None:
    desk.rescue()
    assert desk.consent(desk.shown("in_doubt")) == 1


def _running_again(desk: Desk) -> None:
    _consented(desk)
    desk.claim_one()


def _in_doubt_again(desk: Desk) -> None:
    desk.settle(_claim_again(desk), UNKNOWN)


def _in_doubt_once_more_without_a_consent(desk: Desk) -> None:
    """The policy had sent it again: no fence lies between the two attempts."""
    desk.set(on_unknown="retry")
    desk.adopt(desk.attempts()[0]["key"], UNKNOWN)
    claimed = desk.claim(now=NOW + 3600)[0]
    desk.set(on_unknown="hold")
    desk.settle(claimed, UNKNOWN)
    assert [desk.state(), desk.item()["fence"]] == ["in_doubt", 2]


def _refused_since(desk: Desk) -> None:
    desk.settle(_claim_again(desk), REFUSED)


def _claim_again(desk: Desk) -> Claim:
    _consented(desk)
    return desk.claim_one()


def _given_up(desk: Desk) -> None:
    desk.rescue()
    assert desk.give_up(desk.shown("in_doubt")) == 1


def _cancelled_since(desk: Desk) -> None:
    _consented(desk)
    assert desk.cancel() == 1


def _answered_since(desk: Desk) -> None:
    desk.settle(_claim_again(desk), ANSWERED_BLIND)


SINCE: dict[str, Callable[[Desk], object]] = {
    "in doubt after a rescue": _rescued,
    "in doubt by its owner's word": _settled_unknown,
    "pending after a consent": _consented,
    "running once more": _running_again,
    "in doubt once more": _in_doubt_again,
    "in doubt once more, by the policy": _in_doubt_once_more_without_a_consent,
    "failed since": _refused_since,
    "given up": _given_up,
    "cancelled since": _cancelled_since,
    "answered since": _answered_since,
}
ABOUT_THIS_ATTEMPT = {"in doubt after a rescue", "in doubt by its owner's word"}


@pytest.mark.parametrize("since", list(SINCE))
@pytest.mark.parametrize("what", [ANSWERED, ANSWERED_BLIND], ids=["priced", "without usage"])
def test_a_late_answer_is_adopted_unless_there_is_one(desk: Desk, since: str, what: Came) -> None:
    claimed = desk.claim_one()
    SINCE[since](desk)
    before = desk.item()
    settled = desk.adopt(claimed.key, what)
    after = desk.item()
    assert desk.outcomes()[0] == "answered", "a paid answer is never dropped"
    assert raw_of(desk, claimed) == what.evidence.raw
    if since == "answered since":
        assert (settled, after) == (Settled.RECORDED, before)
    else:
        assert settled is Settled.ADOPTED
        assert (after["state"], after["answer_key"], after["fence"]) == ("completed", claimed.key, before["fence"] + 1)
        assert (after["worker_id"], after["cause"], after["message"]) == (None, None, None)


@pytest.mark.parametrize("since", list(SINCE))
@pytest.mark.parametrize(
    ("what", "state"),
    [(REFUSED, "failed"), (SERVER_ERROR, "pending"), (THROTTLED, "pending"), (UNUSABLE, "failed")],
    ids=lambda value: value if isinstance(value, str) else value.evidence.cause,
)
def test_a_late_refusal_or_useless_answer_corrects_the_doubt_about_that_very_attempt(
    desk: Desk, since: str, what: Came, state: str
) -> None:
    claimed = desk.claim_one()
    SINCE[since](desk)
    before = desk.item()
    settled = desk.adopt(claimed.key, what)
    after = desk.item()
    assert desk.outcomes()[0] == what.outcome
    if since in ABOUT_THIS_ATTEMPT:
        assert (settled, after["state"], after["fence"]) == (Settled.CORRECTED, state, before["fence"] + 1)
        assert after["cause"] == what.evidence.cause
    else:
        assert (settled, after) == (Settled.RECORDED, before)


@pytest.mark.parametrize("since", list(SINCE))
@pytest.mark.parametrize("what", [UNKNOWN, NOT_SENT], ids=["unknown", "not_sent"])
def test_a_doubt_is_never_talked_away(desk: Desk, since: str, what: Came) -> None:
    claimed = desk.claim_one()
    SINCE[since](desk)
    before = snapshot(desk.ledger)
    assert desk.settle(claimed, what) in (Settled.REPEATED, Settled.RECORDED)
    assert snapshot(desk.ledger) == before
    stands = [event["detail"]["evidence"] for event in desk.events("doubt_stands")]
    assert stands == (["not_sent"] if what is NOT_SENT else []), "what was said is written down"


# -- a newer attempt that is under way ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("newer", "spent", "reserved"),
    [
        (ANSWERED, 600, 0),
        (ANSWERED_BLIND, 300, WORST_PUSD),
        (REFUSED, 300, 0),
        (UNUSABLE, 300, WORST_PUSD),
        (UNUSABLE_PAID, 500, 0),
        (UNKNOWN, 300, WORST_PUSD),
        (NOT_SENT, 300, 0),
    ],
    ids=lambda value: value.evidence.cause or "answered" if isinstance(value, Came) else str(value),
)
def test_the_outcome_of_a_newer_attempt_is_recorded_and_priced_after_an_older_one_was_adopted(
    desk: Desk, newer: Came, spent: int, reserved: int
) -> None:
    first = desk.claim_one()
    _consented(desk)
    other = desk.hire()
    second = desk.claim_one(worker=other)
    assert desk.adopt(first.key, ANSWERED) is Settled.ADOPTED
    assert desk.money == (300, WORST_PUSD), "the newer attempt keeps its reservation until its own outcome"
    done = desk.item()

    assert desk.settle(second, newer, worker=other) is Settled.RECORDED

    assert desk.outcomes() == ["answered", newer.outcome]
    assert desk.item() == done
    assert desk.money == (spent, reserved)
    assert raw_of(desk, second) == newer.evidence.raw


def test_the_death_of_a_newer_attempts_worker_leaves_it_unknown_and_not_open(desk: Desk) -> None:
    """Its item is completed, so no running item leads to it: it must be found all the same."""
    first = desk.claim_one()
    _consented(desk)
    other = desk.hire()
    desk.claim_one(worker=other)
    desk.adopt(first.key, ANSWERED)
    done = desk.item()
    assert desk.rescue(other) == [], "no item is in doubt for it"
    assert desk.outcomes() == ["answered", "unknown"]
    assert desk.item() == done
    assert desk.money == (300, WORST_PUSD)


def test_the_owner_of_an_adopted_item_cannot_move_it(desk: Desk) -> None:
    first = desk.claim_one()
    desk.adopt(first.key, ANSWERED)  # its own spool, read by a sweeper before the rescue: the owner's own move
    done = desk.item()
    assert (done["state"], done["fence"]) == ("completed", first.fence)
    assert desk.settle(first, ANSWERED) is Settled.REPEATED
    assert desk.settle(first, UNKNOWN) is Settled.RECORDED
    assert desk.item() == done
    assert desk.money == (300, 0)
    assert not desk.events("invariant_alarm"), "who does not know contradicts nobody"


# -- fences ------------------------------------------------------------------------------------------------------------


def test_a_worker_that_is_not_the_owner_moves_nothing_and_its_evidence_is_kept(desk: Desk) -> None:
    claimed = desk.claim_one()
    before = desk.item()
    assert desk.settle(claimed, REFUSED, worker=desk.hire()) is Settled.RECORDED
    assert desk.item() == before
    assert desk.outcomes() == ["refused"]
    assert desk.rescue() == [claimed.key], "it stays the owner's, and does not outlive it as running"
    desk.give_up(desk.shown("in_doubt"))


def test_a_stale_fence_moves_nothing(desk: Desk) -> None:
    stale = desk.claim_one()
    desk.release(stale)
    fresh = desk.claim_one()
    before = desk.item()
    assert desk.settle(stale, REFUSED) is Settled.RECORDED
    assert desk.item() == before
    desk.settle(fresh, ANSWERED)


def test_late_evidence_about_a_superseded_item_is_kept_with_its_money(ledger: Ledger) -> None:
    desk = Desk.open(ledger)
    claimed = desk.claim_one()
    desk.rescue()
    desk.give_up(desk.shown("in_doubt"))
    stage(ledger, desk.job_id, [line(0, text="another")])
    accept(ledger, desk.job_id, input_digest="", params_digest="", spec="{}", trial=(), now=NOW)
    assert desk.adopt(claimed.key, ANSWERED) is Settled.ADOPTED
    assert (desk.item()["state"], desk.item()["is_current"]) == ("completed", False)
    assert desk.counts() == {"pending": 1}
    assert desk.money == (300, 0)


# -- evidence against what is certain ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("what", "state", "charge", "money"),
    [
        (ANSWERED, "completed", Charge.CERTAIN, (300, 0)),
        (REFUSED, "pending", Charge.NONE, (0, 0)),
        (UNUSABLE, "pending", Charge.POSSIBLE, (0, WORST_PUSD)),
        (UNUSABLE_PAID, "pending", Charge.CERTAIN, (200, 0)),
        (UNKNOWN_BARE, "pending", Charge.POSSIBLE, (0, WORST_PUSD)),
    ],
    ids=lambda value: value.evidence.cause or "answered" if isinstance(value, Came) else "",
)
def test_evidence_against_an_attempt_that_was_not_sent_is_recorded_with_its_money_and_raises_an_alarm(
    desk: Desk, what: Came, state: str, charge: Charge, money: tuple[int, int]
) -> None:
    claimed = desk.claim_one()
    desk.release(claimed)
    desk.settle(claimed, what)
    (attempt,) = desk.attempts()
    assert (attempt["state"], attempt["charge"]) == (what.outcome, charge)
    assert desk.state() == state
    assert desk.money == money
    (alarm,) = desk.events("invariant_alarm")
    assert alarm["item_id"] == claimed.item_id
    assert alarm["detail"] == {
        "attempt": claimed.key,
        "recorded": "not_sent",
        "evidence": what.outcome.value,
        "cause": what.evidence.cause,
    }


@pytest.mark.parametrize("known", [REFUSED, UNUSABLE, UNUSABLE_PAID], ids=lambda what: what.evidence.cause)
def test_a_paid_answer_is_kept_even_against_another_outcome(desk: Desk, known: Came) -> None:
    claimed = desk.claim_one()
    desk.settle(claimed, known)
    assert desk.settle(claimed, ANSWERED) is Settled.ADOPTED
    assert (desk.state(), desk.outcomes(), desk.money) == ("completed", ["answered"], (300, 0))
    assert raw_of(desk, claimed) == ANSWERED.evidence.raw
    assert len(desk.events("invariant_alarm")) == 1


@pytest.mark.parametrize(
    ("known", "what"),
    [
        (ANSWERED, REFUSED),
        (ANSWERED, UNUSABLE),
        (ANSWERED, NOT_SENT),
        (REFUSED, UNUSABLE),
        (REFUSED, NOT_SENT),
        (UNUSABLE, REFUSED),
        (UNUSABLE, NOT_SENT),
    ],
    ids=lambda what: what.outcome.value,
)
def test_any_other_contradiction_raises_an_alarm_and_changes_nothing(desk: Desk, known: Came, what: Came) -> None:
    claimed = desk.claim_one()
    desk.settle(claimed, known)
    before = snapshot(desk.ledger)
    assert desk.settle(claimed, what) is Settled.RECORDED
    assert snapshot(desk.ledger) == before
    assert [event["detail"]["evidence"] for event in desk.events("invariant_alarm")] == [what.outcome]


@pytest.mark.parametrize("what", [ANSWERED, REFUSED, UNUSABLE, UNKNOWN, NOT_SENT], ids=lambda what: what.outcome.value)
def test_an_outcome_is_written_once_however_often_it_is_told(desk: Desk, what: Came) -> None:
    claimed = desk.claim_one()
    assert desk.settle(claimed, what) is Settled.MOVED
    before = snapshot(desk.ledger, without=())
    assert desk.settle(claimed, what) is Settled.REPEATED
    assert snapshot(desk.ledger, without=()) == before


# -- the account of an item --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("what", "tries"), [(SERVER_ERROR, 1), (THROTTLED, 0), (REFUSED, 1)], ids=["counted", "not counted", "final"]
)
@pytest.mark.parametrize("doubt", [_rescued, _settled_unknown], ids=["rescued", "unknown"])
def test_a_corrected_attempt_counts_once(desk: Desk, doubt: Callable[[Desk], None], what: Came, tries: int) -> None:
    """The doubt was counted as a try when it arose."""
    claimed = desk.claim_one()
    doubt(desk)
    assert desk.item()["tries"] == 1
    desk.adopt(claimed.key, what)
    assert desk.item()["tries"] == tries


def test_a_sweeper_decides_by_the_account_that_the_item_had_before_the_attempt(desk: Desk) -> None:
    desk.settle(desk.claim_one(), SERVER_ERROR)
    claimed = desk.claim(now=NOW + 60)[0]

    def counted() -> int:
        with desk.ledger.read() as connection:
            found = open_attempt(connection, claimed.key)
        assert found is not None
        return found.tries.counted

    assert counted() == claimed.tries.counted == 1
    desk.rescue()
    assert counted() == 1
    desk.adopt(claimed.key, ANSWERED)
    with desk.ledger.read() as connection:
        assert open_attempt(connection, claimed.key) is None, "there is nothing more to learn"


@pytest.mark.parametrize("is_cancelled", [False, True])
def test_a_correction_in_a_job_that_was_cancelled_sends_nothing_again(desk: Desk, is_cancelled: bool) -> None:
    claimed = desk.claim_one()
    desk.rescue()
    desk.cancel()
    if is_cancelled:
        assert desk.move("finalize")
        assert desk.move("close")
    assert desk.adopt(claimed.key, SERVER_ERROR) is Settled.CORRECTED
    assert (desk.state(), desk.item()["tries"]) == ("cancelled", 1)


def test_what_had_come_of_a_body_gives_way_to_the_whole_of_it(desk: Desk) -> None:
    claimed = desk.claim_one()
    desk.settle(claimed, UNKNOWN)
    assert raw_of(desk, claimed) == UNKNOWN.evidence.raw
    desk.adopt(claimed.key, ANSWERED)
    assert raw_of(desk, claimed) == ANSWERED.evidence.raw


def test_the_cost_of_a_doubt_gives_way_to_the_cost_of_its_answer(desk: Desk) -> None:
    """A broken stream may have told its usage before it broke."""
    told = came(AttemptState.UNKNOWN, "cut_body", Charge.POSSIBLE, cost_pusd=120)
    claimed = desk.claim_one()
    desk.settle(claimed, told)
    assert desk.money == (120, 0)
    desk.adopt(claimed.key, ANSWERED)
    assert desk.money == (300, 0)


def test_rescue_takes_what_the_dead_worker_runs_and_nothing_else(ledger: Ledger) -> None:
    desk, elsewhere = Desk.open(ledger, 4), Desk.open(ledger)
    other = desk.hire()
    mine, _, done = desk.claim(0), desk.claim(1, worker=other), desk.claim(2)
    desk.settle(done[0], ANSWERED)
    elsewhere.claim(worker=desk.worker)
    assert desk.rescue() == [mine[0].key]
    assert desk.states() == ["in_doubt", "running", "completed", "pending"]
    assert elsewhere.states() == ["running"]
    item, (attempt,) = desk.item(), desk.attempts()
    assert (item["fence"], item["tries"], item["cause"]) == (2, 1, "worker_lost")
    assert (attempt["state"], attempt["charge"], attempt["ended_at"]) == ("unknown", "possible", NOW)
    assert [event["detail"] for event in desk.events("rescued")] == [
        {"worker": desk.worker, "in_doubt": 1, "unsent": 0}
    ]
    assert desk.rescue() == [], "once is enough"
    assert len(desk.events("rescued")) == 1
