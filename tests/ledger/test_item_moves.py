"""Every move of an item from every state: the legal ones are made, and the others leave the ledger as it was."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

import pytest
from sqlalchemy import update

from batchrun.core.retry import Tries
from batchrun.core.states import ITEM_MOVES, ItemState
from batchrun.ledger.cache import Ask, copy_answers
from batchrun.ledger.claims import Claim
from batchrun.ledger.consents import Stopped
from batchrun.ledger.ledger import Ledger
from batchrun.ledger.replays import Place, replay
from batchrun.ledger.revalidation import Verdict, revalidate
from batchrun.ledger.schema import attempt_key, attempts
from batchrun.ledger.settle import Settled, settle
from tests.ledger.desk import (
    ANSWERED,
    ENDPOINT,
    INVALID,
    NOT_SENT,
    REFUSED,
    SERVER_ERROR,
    UNKNOWN,
    UNUSABLE,
    Came,
    Desk,
    line,
    policy,
    snapshot,
)

I = ItemState  # noqa: E741
Play = Callable[[Ledger], Desk]


def _pending(ledger: Ledger) -> Desk:
    """Bring an item to pending that has a doubt behind it: so there is late evidence to be had in every state."""
    desk = Desk.open(ledger)
    desk.settle(desk.claim_one(), UNKNOWN)
    assert desk.consent(desk.shown(I.IN_DOUBT)) == 1
    return desk


def _then(*steps: Callable[[Desk], object]) -> Play:
    def bring(ledger: Ledger) -> Desk:
        desk = _pending(ledger)
        for step in steps:
            step(desk)
        return desk

    return bring


BRING: dict[ItemState, Play] = {
    I.PENDING: _pending,
    I.RUNNING: _then(lambda desk: desk.claim()),
    I.COMPLETED: _then(lambda desk: desk.settle(desk.claim_one(), ANSWERED)),
    I.FAILED: _then(lambda desk: desk.settle(desk.claim_one(), UNUSABLE)),
    I.IN_DOUBT: _then(lambda desk: desk.settle(desk.claim_one(), UNKNOWN)),
    I.CANCELLED: _then(lambda desk: desk.cancel_pending()),
    I.REJECTED: lambda ledger: Desk.open(ledger, [line(0, is_rejected=True)]),
}


def _attempt(desk: Desk, number: int) -> Claim:
    """Return the claim of an item's attempt as its worker had it; one that was never made where there is none."""
    made, item_id = desk.attempts(), desk.item_ids[0]
    key = made[number]["key"] if made else attempt_key(item_id, 1)
    return Claim(item_id, key - (item_id << 20), key, desk.job_id, "q-0", "/", b"", Tries(0, 0.0), 1_000)


def _shown(desk: Desk) -> list[Stopped]:
    row = desk.item()
    return [Stopped(row["id"], row["fence"], row["custom_id"], I.FAILED, None, None, None, 0, False)]


def _record(desk: Desk, number: int, what: Came) -> None:
    with suppress(LookupError):  # there is no such attempt: nothing to be learnt
        desk.settle(_attempt(desk, number), what)


VERBS: dict[str, Callable[[Desk], object]] = {
    "claim": lambda desk: desk.claim(),
    "settle": lambda desk: _record(desk, -1, NOT_SENT),
    "release": lambda desk: desk.release(_attempt(desk, -1)),
    "rescue": lambda desk: desk.rescue(),
    "adopt": lambda desk: _record(desk, 0, ANSWERED),
    "correct": lambda desk: _record(desk, -1 if desk.state() == I.IN_DOUBT else 0, REFUSED),
    "consent": lambda desk: desk.consent(_shown(desk)),
    "policy_retry": lambda desk: desk.retry_by_policy(),
    "give_up": lambda desk: desk.give_up(_shown(desk)),
    "cancel": lambda desk: desk.cancel_pending(),
    "reopen": lambda desk: desk.reopen_cancelled(),
}
TARGET = {
    "claim": I.RUNNING,
    "settle": I.PENDING,
    "release": I.PENDING,
    "rescue": I.IN_DOUBT,
    "adopt": I.COMPLETED,
    "correct": I.FAILED,
    "consent": I.PENDING,
    "policy_retry": I.PENDING,
    "give_up": I.FAILED,
    "cancel": I.CANCELLED,
    "reopen": I.PENDING,
}
# Where the right to an attempt begins or ends by force, the fence rises; an owner's own word leaves it.
FENCE_RISES = {"claim", "rescue", "adopt", "correct", "consent", "policy_retry", "give_up"}
# These write down an attempt's outcome whether the item moves or not.
RECORDS = {"settle", "adopt", "correct"}


def test_every_move_of_the_table_has_its_verb_here() -> None:
    assert set(VERBS) == set(TARGET)
    assert set(VERBS) | set(WITH_MORE) == set(ITEM_MOVES)
    assert set(BRING) == set(ItemState)


@pytest.mark.parametrize("state", list(ItemState))
@pytest.mark.parametrize("verb", list(VERBS))
def test_an_item_moves_from_the_states_of_the_table_and_from_no_other(ledger: Ledger, state: I, verb: str) -> None:
    desk = BRING[state](ledger)
    if verb == "policy_retry":
        desk.set(on_unknown="retry")
    before, rows_before = desk.item(), snapshot(ledger)
    assert before["state"] == state

    VERBS[verb](desk)

    after = desk.item()
    if state in ITEM_MOVES[verb].sources:
        assert after["state"] == TARGET[verb]
        assert after["fence"] - before["fence"] == (verb in FENCE_RISES)
    else:
        assert after == before
        rows = snapshot(ledger)
        if verb in RECORDS:
            rows["attempts"] = rows_before["attempts"]
            rows["answers"] = rows_before["answers"]
            rows["jobs"] = rows_before["jobs"]
        assert rows == rows_before


# -- moves that ask for more than a state ------------------------------------------------------------------------------


def _copied(desk: Desk) -> None:
    """Give the item the answer of another one that asked the same."""
    other = Desk.open(desk.ledger)
    claimed = other.claim_one()
    other.settle(claimed, ANSWERED)
    row = desk.item()
    hit = Ask(row["id"], row["fence"], 1, claimed.key, is_out=False)
    with desk.ledger.write() as connection:
        copy_answers(connection, desk.job_id, [hit], worker_id=desk.worker, now=desk.now)


def _replayed(desk: Desk) -> None:
    """Ask again under the key of its doubt, which its endpoint honours."""
    desk.force_job(holder=desk.worker)
    row = desk.item()
    with desk.ledger.write() as connection:
        keys = {"idempotency_key": "a key", "account": "mine"}
        connection.execute(update(attempts).where(attempts.c.job_id == desk.job_id).values(keys))
        place = Place(ENDPOINT, "mine", 3_600.0)
        order = {"job_id": desk.job_id, "item_id": row["id"], "fence": row["fence"], "worker_id": desk.worker}
        replay(connection, **order, place=place, now=desk.now)


def _judged_anew(desk: Desk) -> None:
    """Judge its answer by another schema: what was valid is not, and what was invalid is valid."""
    row = desk.item()
    state = I(row["state"])
    fault = "too short" if state is I.COMPLETED else None
    with desk.ledger.write() as connection:
        verdict = Verdict(row["id"], row["fence"], row["answer_key"] or attempt_key(row["id"], 1), state, fault)
        revalidate(connection, desk.job_id, [verdict])


WITH_MORE: dict[str, Callable[[Desk], object]] = {
    "copy": _copied,
    "replay": _replayed,
    "revalidate": _judged_anew,
}
BRING_MORE = {"an invalid answer": _then(lambda desk: desk.settle(desk.claim_one(), INVALID)), **BRING}


@pytest.mark.parametrize("state", list(BRING_MORE))
@pytest.mark.parametrize("verb", list(WITH_MORE))
def test_a_move_that_asks_for_more_is_made_from_the_states_of_the_table_alone(
    ledger: Ledger, state: str, verb: str
) -> None:
    desk = BRING_MORE[state](ledger)
    before = desk.item()
    WITH_MORE[verb](desk)
    after = desk.item()
    move = ITEM_MOVES[verb]
    # A failed item has something to be judged anew only where it failed for its answer.
    if before["state"] in move.sources and not (verb == "revalidate" and state == I.FAILED):
        assert after["state"] in move.targets - {before["state"]}
        assert after["fence"] == before["fence"] + 1
    else:
        assert after == before


def test_a_refused_item_move_that_is_no_evidence_leaves_the_money_as_it_was(ledger: Ledger) -> None:
    for state, bring in BRING.items():
        desk = bring(ledger)
        money = desk.money
        for verb, do in VERBS.items():
            if state not in ITEM_MOVES[verb].sources and verb not in RECORDS:
                do(desk)
                assert desk.money == money, (state, verb)


# -- every target of every move ------------------------------------------------------------------------------------


def _settled(what: Came, *, on_unknown: str = "hold", is_cancelling: bool = False) -> Play:
    def play(ledger: Ledger) -> Desk:
        desk = Desk.open(ledger, on_unknown=on_unknown)
        claimed = desk.claim_one()
        if is_cancelling:
            desk.cancel()
        assert desk.settle(claimed, what) is Settled.MOVED
        return desk

    return play


def _released_while_cancelling(ledger: Ledger) -> Desk:
    desk = Desk.open(ledger)
    claimed = desk.claim_one()
    desk.cancel()
    desk.release(claimed)
    return desk


def _rescued_unsent(*, is_cancelling: bool = False) -> Play:
    def play(ledger: Ledger) -> Desk:
        desk = Desk.open(ledger)
        desk.claim_one()
        if is_cancelling:
            desk.cancel()
        desk.rescue(begun=())
        return desk

    return play


def _corrected(what: Came, *, is_cancelled: bool = False) -> Play:
    def play(ledger: Ledger) -> Desk:
        desk = Desk.open(ledger)
        claimed = desk.claim_one()
        desk.rescue()
        if is_cancelled:
            desk.cancel()
        assert desk.adopt(claimed.key, what) is Settled.CORRECTED
        return desk

    return play


def _plainly(state: ItemState, verb: str) -> Play:
    def play(ledger: Ledger) -> Desk:
        desk = BRING[state](ledger)
        if verb == "policy_retry":
            desk.set(on_unknown="retry")
        VERBS[verb](desk)
        return desk

    return play


SCENARIOS: dict[tuple[str, ItemState], Play] = {
    ("settle", I.COMPLETED): _settled(ANSWERED),
    ("settle", I.FAILED): _settled(REFUSED),
    ("settle", I.IN_DOUBT): _settled(UNKNOWN),
    ("settle", I.PENDING): _settled(SERVER_ERROR),
    ("settle", I.CANCELLED): _settled(SERVER_ERROR, is_cancelling=True),
    ("release", I.PENDING): _plainly(I.RUNNING, "release"),
    ("release", I.CANCELLED): _released_while_cancelling,
    ("rescue", I.IN_DOUBT): _plainly(I.RUNNING, "rescue"),
    ("rescue", I.PENDING): _rescued_unsent(),
    ("rescue", I.CANCELLED): _rescued_unsent(is_cancelling=True),
    ("correct", I.FAILED): _corrected(REFUSED),
    ("correct", I.PENDING): _corrected(SERVER_ERROR),
    ("correct", I.CANCELLED): _corrected(SERVER_ERROR, is_cancelled=True),
}
for _verb in sorted(set(VERBS) - {"settle", "release", "rescue", "correct"}):
    for _state in sorted(ITEM_MOVES[_verb].sources):
        SCENARIOS[(_verb, TARGET[_verb])] = _plainly(_state, _verb)


def test_every_target_of_every_move_has_its_scenario_here() -> None:
    legal = {(name, target) for name, move in ITEM_MOVES.items() for target in move.targets if name in VERBS}
    assert set(SCENARIOS) == legal


@pytest.mark.parametrize("case", list(SCENARIOS), ids=lambda case: f"{case[0]} to {case[1]}")
def test_each_target_of_a_move_is_reached(ledger: Ledger, case: tuple[str, I]) -> None:
    assert SCENARIOS[case](ledger).state() == case[1]


@pytest.mark.parametrize(
    ("what", "hold", "retry"),
    [
        (ANSWERED, "completed", "completed"),
        (REFUSED, "failed", "failed"),
        (UNUSABLE, "failed", "pending"),
        (UNKNOWN, "in_doubt", "pending"),
        (NOT_SENT, "pending", "pending"),
        (SERVER_ERROR, "pending", "pending"),
    ],
    ids=lambda value: value if isinstance(value, str) else value.evidence.cause or "answered",
)
def test_settling_moves_as_the_policy_says_and_while_cancelling_nothing_goes_back(
    ledger: Ledger, what: Came, hold: str, retry: str
) -> None:
    cancelling = {"pending": "cancelled", "completed": "completed", "failed": "failed", "in_doubt": "in_doubt"}
    assert _settled(what)(ledger).state() == hold
    assert _settled(what, on_unknown="retry")(ledger).state() == retry
    # Under any policy: an unknown gives in_doubt and an unusable failed, as they do under hold.
    for on_unknown in ("hold", "retry"):
        desk = _settled(what, on_unknown=on_unknown, is_cancelling=True)(ledger)
        assert desk.state() == cancelling[hold]


def test_a_decision_to_send_again_what_may_have_been_paid_does_not_stand_in_a_job_under_hold(ledger: Ledger) -> None:
    """The worker took its policy when it started; the job was put under hold since."""
    for what, state in ((UNKNOWN, "in_doubt"), (UNUSABLE, "failed")):
        desk = Desk.open(ledger, on_unknown="retry")
        claimed = desk.claim_one()
        desk.set(on_unknown="hold")
        desk.policy = policy("retry")
        desk.settle(claimed, what)
        assert desk.state() == state


def test_policy_retry_does_nothing_under_hold_nor_in_a_job_that_is_or_was_cancelled(ledger: Ledger) -> None:
    for state in (I.IN_DOUBT, I.FAILED):
        held, cancelling, cancelled = BRING[state](ledger), BRING[state](ledger), BRING[state](ledger)
        for desk in (cancelling, cancelled):
            desk.set(on_unknown="retry")
            desk.cancel()
        assert cancelled.move("finalize")
        assert cancelled.move("close")
        for desk in (held, cancelling, cancelled):
            before = desk.item()
            assert desk.retry_by_policy() == (0, 0)
            assert desk.item() == before


def test_a_wait_is_recorded_with_its_length(desk: Desk) -> None:
    desk.settle(desk.claim_one(), SERVER_ERROR)
    item = desk.item()
    assert (item["not_before_at"], item["wait_s"]) == (desk.now + 10.0, 10.0)
    assert (item["cause"], item["tries"]) == ("server_error", 1)


def test_evidence_of_an_attempt_the_ledger_never_made_is_refused(desk: Desk) -> None:
    claimed = desk.claim_one()
    stranger = replace(desk.settlement(claimed, ANSWERED), key=attempt_key(claimed.item_id, claimed.fence + 5))
    before = snapshot(desk.ledger)
    with pytest.raises(LookupError, match="has no intent"), desk.ledger.write() as connection:
        settle(connection, stranger)
    assert snapshot(desk.ledger) == before
