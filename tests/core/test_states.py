"""The tables of moves: complete, and without ways out of what is final."""

import pytest

from batchrun.core.states import ITEM_MOVES, JOB_MOVES, AttemptState, ItemState, JobState, is_final


def test_a_completed_item_moves_only_when_its_stored_answer_is_judged_anew() -> None:
    assert [move.name for move in ITEM_MOVES.values() if ItemState.COMPLETED in move.sources] == ["revalidate"]
    assert ITEM_MOVES["revalidate"].targets == {ItemState.COMPLETED, ItemState.FAILED}


def test_a_rejected_item_never_moves() -> None:
    assert not [move.name for move in ITEM_MOVES.values() if ItemState.REJECTED in move.sources]


def test_a_rescue_never_ends_an_item() -> None:
    """It gives doubt; what never began, its send marks prove it, goes back to where it came from."""
    assert ITEM_MOVES["rescue"].targets == {ItemState.IN_DOUBT, ItemState.PENDING, ItemState.CANCELLED}


def test_only_a_person_or_a_standing_consent_leads_out_of_doubt_to_pending() -> None:
    ways = {
        move.name
        for move in ITEM_MOVES.values()
        if ItemState.IN_DOUBT in move.sources and ItemState.PENDING in move.targets
    }
    # `correct` is late proof that the server refused: nothing was billed.
    assert ways == {"consent", "policy_retry", "correct"}


def test_every_job_state_can_be_reached_and_left() -> None:
    assert {move.target for move in JOB_MOVES.values()} == set(JobState)
    assert {state for move in JOB_MOVES.values() for state in move.sources} == set(JobState)


def test_pending_and_running_are_the_states_that_need_more_work() -> None:
    assert {state for state in ItemState if not is_final(state)} == {ItemState.PENDING, ItemState.RUNNING}


@pytest.mark.parametrize(
    ("state", "marks"),
    [
        (AttemptState.INTENT, ""),
        (AttemptState.NOT_SENT, "outcome setback"),
        (AttemptState.REFUSED, "outcome sent setback"),
        (AttemptState.ANSWERED, "outcome sent"),
        (AttemptState.UNUSABLE, "outcome sent setback consent"),
        (AttemptState.UNKNOWN, "outcome sent setback consent"),
    ],
)
def test_what_is_said_of_an_attempt_is_said_of_its_state(state: AttemptState, marks: str) -> None:
    known = {"outcome": state.is_outcome, "sent": state.was_sent, "setback": state.is_setback}
    known["consent"] = state.needs_consent
    assert " ".join(name for name, holds in known.items() if holds) == marks
