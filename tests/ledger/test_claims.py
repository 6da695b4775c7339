"""Who may send what: an intent before every request, and no claim where anything stands against it."""

from collections.abc import Callable

import pytest
from sqlalchemy import update

from batchrun.core.states import AttemptState
from batchrun.ledger import jobs
from batchrun.ledger.backlog import START, Place, claimable, next_ready_at, place_of
from batchrun.ledger.changes import accept, stage
from batchrun.ledger.claims import claim, lost_claims, within_budget
from batchrun.ledger.ledger import Ledger
from batchrun.ledger.schema import FENCE_BITS, attempt_key, items, split_key
from batchrun.ledger.sweeps import bury
from tests.ledger.desk import (
    ANSWERED,
    ANSWERED_BLIND,
    ENDPOINT,
    NOT_SENT,
    NOW,
    REFUSED,
    SERVER_ERROR,
    THROTTLED,
    UNKNOWN,
    WORST_PUSD,
    Desk,
    line,
    snapshot,
)


def test_a_claim_brings_the_request_and_leaves_a_durable_intent(desk: Desk) -> None:
    claimed = desk.claim_one()
    assert (claimed.item_id, claimed.fence, claimed.key) == (desk.item_ids[0], 1, attempt_key(desk.item_ids[0], 1))
    assert (claimed.custom_id, claimed.path) == ("q-0", "/chat/completions")
    assert claimed.body == line(0).body
    (attempt,) = desk.attempts()
    expected = {"state": "intent", "charge": "possible", "claimed_at": NOW, "queued_at": NOW, "endpoint": ENDPOINT}
    assert expected.items() <= attempt.items()
    assert attempt["reserved_pusd"] == WORST_PUSD == desk.money[1]


def test_an_item_is_claimed_once(desk: Desk) -> None:
    desk.claim_one()
    before = snapshot(desk.ledger)
    assert desk.claim() == []
    assert desk.claim(worker=desk.hire()) == []
    assert snapshot(desk.ledger) == before


def test_the_fence_rises_with_every_claim_and_names_the_attempt(desk: Desk) -> None:
    for fence in (1, 2, 3):
        claimed = desk.claim_one()
        assert (claimed.fence, split_key(claimed.key)) == (fence, (claimed.item_id, fence))
        desk.release(claimed)
    assert desk.outcomes() == ["not_sent"] * 3


def test_the_public_id_of_an_attempt_is_its_own_and_the_ledgers(desk: Desk) -> None:
    claimed = desk.claim_one()
    ledger = desk.ledger
    assert ledger.attempt_id(claimed.key) == f"br-{ledger.ledger_id}-{claimed.item_id}-1"


def test_an_item_that_was_claimed_too_often_for_its_key_is_not_claimed(desk: Desk) -> None:
    with desk.ledger.write() as connection:
        connection.execute(update(items).values(fence=(1 << FENCE_BITS) - 1))
    with pytest.raises(OverflowError, match="was claimed 1048576 times"):
        desk.claim()
    with desk.ledger.write() as connection:
        connection.execute(update(items).values(fence=0))
    assert desk.state() == "pending"


def _held_by_another(desk: Desk) -> None:
    another = desk.hire()
    with desk.ledger.write() as connection:
        assert jobs.take(connection, desk.job_id, worker_id=another, instead_of=None, now=NOW)


def _throttled(desk: Desk) -> None:
    with desk.ledger.write() as connection:
        jobs.set_throttle(connection, desk.job_id, wait_s=60.0, now=NOW - 1)


def _waiting(desk: Desk) -> None:
    desk.settle(desk.claim_one(), SERVER_ERROR)


def _superseded(desk: Desk) -> None:
    stage(desk.ledger, desk.job_id, [line(0, text="another")])
    accept(desk.ledger, desk.job_id, input_digest="", params_digest="", spec="{}", trial=(), now=NOW)


def _buried(desk: Desk) -> None:
    with desk.ledger.write() as connection:
        bury(connection, desk.worker, now=NOW)


OBSTACLES: dict[str, Callable[[Desk], object]] = {
    "the job is held by another worker": _held_by_another,
    "the job is paused": lambda desk: desk.move("pause", reason="auth"),
    "the job is being cancelled": lambda desk: desk.move("cancel"),
    "the job is not yet open": lambda desk: desk.force_job(state="validating"),
    "the job has ended": lambda desk: desk.force_job(state="completed"),
    "the job is throttled": _throttled,
    "only trial items are to be sent": lambda desk: desk.force_job(phase="trial"),
    "the item waits": _waiting,
    "the item was superseded": _superseded,
    "the worker was declared dead": _buried,
    "the money is spent": lambda desk: desk.set(max_cost_pusd=WORST_PUSD - 1),
    "the item is of another job": lambda desk: desk.item_ids.__setitem__(0, Desk.open(desk.ledger).item_ids[0]),
}


@pytest.mark.parametrize("obstacle", list(OBSTACLES))
def test_nothing_is_claimed_while(desk: Desk, obstacle: str) -> None:
    OBSTACLES[obstacle](desk)
    before = snapshot(desk.ledger)
    assert desk.claim(0) == []
    assert snapshot(desk.ledger) == before


def test_the_holder_claims_and_a_job_without_a_holder_is_everybodys(ledger: Ledger) -> None:
    desk = Desk.open(ledger, 3)
    assert desk.claim(0, worker=desk.hire())
    with ledger.write() as connection:
        assert jobs.take(connection, desk.job_id, worker_id=desk.worker, instead_of=None, now=NOW)
    assert not desk.claim(1, worker=desk.hire())
    assert desk.claim(1)


def test_trial_items_alone_are_claimed_in_the_trial(ledger: Ledger) -> None:
    desk = Desk.open(ledger, 4, trial=(1, 3), phase="trial")
    assert [one.custom_id for one in desk.claim()] == ["q-1", "q-3"]
    with ledger.write() as connection:
        jobs.set_phase(connection, desk.job_id, phase="full", verdict="passed", now=NOW)
    assert [one.custom_id for one in desk.claim()] == ["q-0", "q-2"]


def test_a_rejected_line_is_never_claimed(ledger: Ledger) -> None:
    desk = Desk.open(ledger, [line(0), line(1, is_rejected=True)])
    assert [one.custom_id for one in desk.claim()] == ["q-0"]


# -- waits -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("later_s", "may"), [(0.0, False), (9.9, False), (10.0, True), (-0.9, False), (-1.1, True), (-86_400.0, True)]
)
def test_a_wait_ends_in_time_and_counts_as_passed_when_the_clock_was_set_back(
    desk: Desk, later_s: float, may: bool
) -> None:
    desk.settle(desk.claim_one(), SERVER_ERROR)  # ten seconds
    with desk.ledger.read() as connection:
        now = desk.now + later_s
        seen = claimable(connection, desk.job_id, after=START, limit=9, trial_only=False, now=now)
    assert [place.item_id for place in seen] == (desk.item_ids if may else [])
    assert bool(desk.claim(now=desk.now + later_s)) is may


@pytest.mark.parametrize(("later_s", "may"), [(0.0, False), (7.0, True), (-0.9, False), (-1.1, True)])
def test_a_throttle_ends_in_time_and_counts_as_passed_when_the_clock_was_set_back(
    desk: Desk, later_s: float, may: bool
) -> None:
    with desk.ledger.write() as connection:
        jobs.set_throttle(connection, desk.job_id, wait_s=7.0, now=desk.now)
    assert bool(desk.claim(now=desk.now + later_s)) is may


def test_the_time_in_the_queue_begins_when_the_item_could_be_claimed(desk: Desk) -> None:
    desk.settle(desk.claim_one(), SERVER_ERROR)
    assert desk.claim(now=desk.now + 25.0)
    assert [attempt["queued_at"] - NOW for attempt in desk.attempts()] == [0.0, 10.0]


def test_the_next_ready_time_is_the_earliest_of_what_is_pending(ledger: Ledger) -> None:
    desk = Desk.open(ledger, 3, trial=(2,))

    def ready_at(*, trial_only: bool = False) -> float | None:
        with ledger.read() as connection:
            return next_ready_at(connection, desk.job_id, trial_only=trial_only)

    first, second, third = desk.claim()
    assert ready_at() is None
    desk.settle(first, THROTTLED)
    assert ready_at() == NOW + 7.0
    desk.settle(second, SERVER_ERROR)
    assert ready_at() == NOW + 7.0
    desk.settle(third, SERVER_ERROR)
    assert ready_at(trial_only=True) == NOW + 10.0


# -- money -------------------------------------------------------------------------------------------------------------


def test_no_more_is_claimed_than_the_money_allows_at_worst(ledger: Ledger) -> None:
    desk = Desk.open(ledger, 5, max_cost_pusd=2 * WORST_PUSD + 500)
    first, second = desk.claim()
    assert desk.money == (0, 2 * WORST_PUSD)
    desk.settle(first, ANSWERED)  # 300, and 700 come back
    (third,) = desk.claim()
    desk.settle(second, UNKNOWN)  # keeps its thousand
    assert desk.money == (300, 2 * WORST_PUSD)
    assert desk.claim() == []
    desk.settle(third, REFUSED)
    (fourth,) = desk.claim()
    desk.settle(fourth, ANSWERED_BLIND)  # paid, and nobody says how much: the worst stays reserved
    assert desk.money == (300, 2 * WORST_PUSD)
    assert desk.claim() == []


def test_items_that_cannot_be_claimed_take_no_money_from_those_that_can(ledger: Ledger) -> None:
    """A hint may name an item that was done long ago."""
    desk = Desk.open(ledger, 3, max_cost_pusd=2 * WORST_PUSD)
    first, second = desk.claim(0, 1)
    desk.settle(first, REFUSED)
    desk.settle(second, REFUSED)
    assert [one.custom_id for one in desk.claim(0, 1, 2)] == ["q-2"]


def test_the_first_item_that_does_not_fit_stops_those_behind_it(ledger: Ledger) -> None:
    desk = Desk.open(
        ledger, [line(0, worst_pusd=50), line(1, worst_pusd=80), line(2, worst_pusd=10)], max_cost_pusd=100
    )
    assert [one.custom_id for one in desk.claim()] == ["q-0"]
    with ledger.read() as connection:
        assert within_budget(connection, desk.job_id, desk.item_ids) == desk.item_ids[:1]


def test_a_job_without_a_limit_reserves_all_the_same(ledger: Ledger) -> None:
    desk = Desk.open(ledger, [line(0, worst_pusd=50), line(1, worst_pusd=None)])
    assert [one.reserved_pusd for one in desk.claim()] == [50, 0]
    assert desk.money == (0, 50)


# -- release ----------------------------------------------------------------------------------------------------------


def test_a_release_gives_the_item_and_the_money_back(desk: Desk) -> None:
    desk.release(desk.claim_one())
    assert (desk.state(), desk.outcomes(), desk.money) == ("pending", ["not_sent"], (0, 0))
    assert desk.item()["tries"] == 0
    assert desk.claim()


def test_a_release_is_made_once_however_often_it_is_written(desk: Desk) -> None:
    claimed = desk.claim_one()
    desk.release(claimed)
    newer = desk.claim_one()
    desk.release(claimed)
    assert desk.state() == "running"
    assert desk.money == (0, WORST_PUSD)
    desk.release(newer)
    desk.release(newer, claimed)
    assert desk.money == (0, 0)


def test_a_release_by_somebody_else_leaves_the_item_where_it_is(desk: Desk) -> None:
    claimed = desk.claim_one()
    desk.rescue()
    before = snapshot(desk.ledger)
    desk.release(claimed)
    assert snapshot(desk.ledger) == before, "a doubt is never talked away"


def test_a_released_attempt_whose_item_was_answered_meanwhile_is_free_and_moves_nothing(desk: Desk) -> None:
    first = desk.claim_one()
    desk.rescue()
    desk.consent(desk.shown("in_doubt"))
    second = desk.claim_one()
    desk.adopt(first.key, ANSWERED)
    desk.release(second)
    assert (desk.state(), desk.outcomes(), desk.money) == ("completed", ["answered", "not_sent"], (300, 0))


def test_releases_of_several_jobs_are_written_together(ledger: Ledger) -> None:
    desks = [Desk.open(ledger, 2) for _ in range(2)]
    worker = desks[0].worker
    claims = [one for desk in desks for one in desk.claim(worker=worker)]
    desks[0].release(*claims)
    assert [desk.states() for desk in desks] == [["pending"] * 2] * 2


# -- a commit whose outcome never arrived -----------------------------------------------------------------------------


def test_claims_are_read_back_by_their_worker_and_by_nobody_else(ledger: Ledger) -> None:
    desk = Desk.open(ledger, 3)
    claims = desk.claim(0, 1)
    other = desk.hire()
    with ledger.read() as connection:
        assert lost_claims(connection, item_ids=desk.item_ids, worker_id=desk.worker) == claims
        assert lost_claims(connection, item_ids=desk.item_ids, worker_id=other) == []
    desk.settle(claims[0], NOT_SENT)
    with ledger.read() as connection:
        assert lost_claims(connection, item_ids=desk.item_ids, worker_id=desk.worker) == claims[1:]


def test_a_claim_that_fails_half_way_leaves_neither_state_nor_intent(desk: Desk) -> None:
    before = snapshot(desk.ledger)

    def die_after_claiming() -> None:
        with desk.ledger.write() as connection:
            order = {"job_id": desk.job_id, "item_ids": desk.item_ids, "worker_id": desk.worker, "endpoint": ENDPOINT}
            assert claim(connection, **order, now=NOW)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        die_after_claiming()
    assert snapshot(desk.ledger) == before


def test_claimable_items_are_read_in_order_from_any_place(ledger: Ledger) -> None:
    desk = Desk.open(ledger, 6, trial=(1, 2, 5))
    ids = desk.item_ids
    desk.claim(1)

    def read(after: Place, limit: int, *, trial_only: bool = False) -> list[int]:
        with ledger.read() as connection:
            found = claimable(connection, desk.job_id, after=after, limit=limit, trial_only=trial_only, now=NOW)
        return [place.item_id for place in found]

    assert read(START, 3) == [ids[0], ids[2], ids[3]]
    assert read(Place(0, ids[3]), 3) == [ids[4], ids[5]]
    assert read(START, 9, trial_only=True) == [ids[2], ids[5]]
    assert desk.attempts(1)[0]["state"] == AttemptState.INTENT


def test_items_are_claimed_by_rank_and_among_equals_in_input_order(ledger: Ledger) -> None:
    most = (1 << 63) - 1
    desk = Desk.open(ledger, [line(number)._replace(rank=rank) for number, rank in enumerate([5, 5, 0, most, 1])])
    ids = desk.item_ids
    with ledger.read() as connection:
        order = {"limit": 9, "trial_only": False, "now": NOW}
        found = claimable(connection, desk.job_id, after=START, **order)
        rest = claimable(connection, desk.job_id, after=found[2], **order)
        assert place_of(connection, ids[0]) == (5, ids[0])
    assert [place.item_id for place in found] == [ids[2], ids[4], ids[0], ids[1], ids[3]]
    assert rest == found[3:]
    claims = desk.claim(3, 1, 2)
    assert [claim.item_id for claim in claims] == [ids[3], ids[1], ids[2]], "as they were asked for"


def test_an_endpoint_never_has_more_requests_of_a_job_than_it_may_whoever_claims_them(ledger: Ledger) -> None:
    desk = Desk.open(ledger, 6)

    def claimed(numbers: list[int], *, endpoint: str = ENDPOINT, most_open: int | None = 2) -> list[int]:
        with desk.ledger.write() as connection:
            found = claim(
                connection,
                job_id=desk.job_id,
                item_ids=[desk.item_ids[number] for number in numbers],
                worker_id=desk.worker,
                endpoint=endpoint,
                now=NOW,
                most_open=most_open,
            )
        return [desk.item_ids.index(one.item_id) for one in found]

    assert claimed([0]) == [0]
    assert claimed([1, 2, 3]) == [1], "two are open there"
    assert claimed([2, 3]) == []
    assert claimed([2], endpoint="http://127.0.0.1:9/v1") == [2], "another endpoint has its own"
    assert claimed([3], most_open=None) == [3]
