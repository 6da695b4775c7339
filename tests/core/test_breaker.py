"""What stops a job, and what must not."""

import pytest

from batchrun.core.breaker import Breaker, FailureLimit, Trip
from batchrun.core.outcome import Charge, Evidence, Scope
from batchrun.core.states import AttemptState as A
from batchrun.core.states import ItemState as I

CHAT, EMBEDDINGS = "/v1/chat/completions", "/v1/embeddings"
ANSWER = Evidence(A.ANSWERED, None, None, Charge.CERTAIN, None)


def _refused(cause: str, scope: Scope = Scope.ITEM) -> Evidence:
    return Evidence(A.REFUSED, cause, f"the server said {cause}", Charge.NONE, None, scope=scope)


def _saw(breaker: Breaker, *events: tuple[int, Evidence, I]) -> list[Trip]:
    return [trip for item, evidence, to in events if (trip := breaker.saw(item, evidence, to, path=CHAT)) is not None]


@pytest.mark.parametrize(
    ("cause", "exit_code"),
    [("auth", 4), ("forbidden", 4), ("quota", 5), ("model_not_found", 5), ("route_not_found", 5), ("redirect", 5)],
)
def test_what_hits_every_item_stops_the_job_after_a_handful(cause: str, exit_code: int) -> None:
    breaker = Breaker(concurrency=8)
    evidence = _refused(cause, Scope.EVERYONE)
    trips = _saw(breaker, *[(item, evidence, I.PENDING) for item in range(3)])
    assert [(trip.reason, trip.exit_code) for trip in trips] == [(cause, exit_code)]
    assert "the server said" in trips[0].message


def test_a_job_of_one_item_with_a_wrong_key_stops_too() -> None:
    breaker = Breaker(concurrency=8)
    assert _saw(breaker, *[(1, _refused("auth", Scope.EVERYONE), I.PENDING)] * 3)


def test_one_item_whose_own_model_is_unknown_fails_alone() -> None:
    breaker = Breaker(concurrency=8)
    evidence = _refused("model_not_found", Scope.EVERYONE)
    assert not _saw(breaker, (1, ANSWER, I.COMPLETED), (7, evidence, I.PENDING))
    assert breaker.is_own_fault(7, evidence, path=CHAT)
    assert not breaker.is_own_fault(8, evidence, path=CHAT)
    assert not _saw(breaker, (7, evidence, I.FAILED), (7, evidence, I.FAILED), (7, evidence, I.FAILED))


@pytest.mark.parametrize("cause", ["forbidden", "model_not_found"])
def test_lines_that_name_a_model_they_may_not_use_fail_alone_also_one_after_another(cause: str) -> None:
    breaker = Breaker(concurrency=8, model="m")
    evidence = _refused(cause, Scope.EVERYONE)
    assert not breaker.is_own_fault(7, evidence, path=CHAT, model="other"), "nothing was answered yet"
    assert not _saw(breaker, (1, ANSWER, I.COMPLETED))
    assert not breaker.is_own_fault(7, evidence, path=CHAT, model="m")
    assert not breaker.is_own_fault(7, evidence, path=CHAT, model=None)
    for item in range(11):
        assert breaker.is_own_fault(item, evidence, path=CHAT, model="other")
        assert not _saw(breaker, (item, evidence, I.FAILED))
    (trip,) = _saw(breaker, (11, evidence, I.FAILED))  # and no answer in between: the endpoint may refuse everything
    assert trip.reason == "failures_in_a_row"


def test_a_route_that_the_endpoint_lacks_is_the_fault_of_its_own_lines_once_others_are_answered() -> None:
    unknown = _refused("route_not_found", Scope.EVERYONE)
    now, before = Breaker(concurrency=8), Breaker(concurrency=8)
    assert not now.is_own_fault(7, unknown, path=EMBEDDINGS)
    assert not _saw(now, (1, ANSWER, I.COMPLETED))
    before.look_back([CHAT])
    for breaker in (now, before):
        assert breaker.is_own_fault(7, unknown, path=EMBEDDINGS)
        assert not breaker.is_own_fault(8, unknown, path=CHAT)  # it was there before: that hits everyone
        assert [breaker.saw(item, unknown, I.FAILED, path=EMBEDDINGS) for item in range(50)] == [None] * 50
        (trip,) = _saw(breaker, *[(item, unknown, I.PENDING) for item in range(3)])
        assert trip.reason == "route_not_found"


def test_a_wrong_key_is_never_one_items_own_fault() -> None:
    breaker = Breaker(concurrency=8)
    evidence = _refused("auth", Scope.EVERYONE)
    _saw(breaker, (1, ANSWER, I.COMPLETED), (7, evidence, I.PENDING))
    assert not breaker.is_own_fault(7, evidence, path=CHAT)


def test_failures_in_a_row_over_different_items_stop_the_job() -> None:
    breaker = Breaker(concurrency=4)
    evidence = _refused("server_error")
    events = [(item, evidence, I.PENDING) for item in range(12)]
    assert not _saw(breaker, *events[:11])
    (trip,) = _saw(breaker, events[11])
    assert trip.reason == "failures_in_a_row"
    assert "12 items in a row" in trip.message
    assert "server_error" in trip.message


def test_the_row_is_as_long_as_the_concurrency_and_an_answer_ends_it() -> None:
    breaker = Breaker(concurrency=20)
    evidence = _refused("server_error")
    assert not _saw(breaker, *[(item, evidence, I.PENDING) for item in range(19)])
    assert not _saw(breaker, (50, ANSWER, I.COMPLETED), (20, evidence, I.PENDING))


def test_one_item_that_fails_often_is_no_row() -> None:
    breaker = Breaker(concurrency=4)
    assert not _saw(breaker, *[(3, _refused("server_error"), I.PENDING)] * 40)


@pytest.mark.parametrize("cause", ["context_length", "content_filter", "too_large"])
def test_prompts_that_are_refused_for_themselves_are_no_row_however_many(cause: str) -> None:
    breaker = Breaker(concurrency=4)
    assert not _saw(breaker, *[(item, _refused(cause), I.FAILED) for item in range(100)])


def test_throttling_and_an_endpoint_that_is_away_are_no_row() -> None:
    breaker = Breaker(concurrency=4)
    for scope in (Scope.THROTTLE, Scope.UNREACHABLE):
        assert not _saw(breaker, *[(item, _refused("rate_limited", scope), I.PENDING) for item in range(100)])


@pytest.mark.parametrize(("limit", "allowed"), [(3, 2), (0.05, 4)])
def test_fail_on_error_stops_at_a_count_or_a_share(limit: float, allowed: int) -> None:
    failures = FailureLimit(total=100, fail_on_error=limit)
    seen = [failures.saw(_refused("context_length"), I.FAILED) for _ in range(allowed + 1)]
    assert seen[:-1] == [None] * allowed
    assert seen[-1] is not None
    assert (seen[-1].reason, seen[-1].exit_code) == ("fail_on_error", 5)


def test_failures_of_earlier_runs_count_towards_fail_on_error() -> None:
    assert FailureLimit(total=100, fail_on_error=3, failed=2).saw(_refused("context_length"), I.FAILED)


def test_what_is_tried_again_or_was_throttled_away_is_no_failure() -> None:
    failures = FailureLimit(total=100, fail_on_error=1)
    assert failures.saw(_refused("context_length"), I.PENDING) is None
    assert failures.saw(_refused("rate_limited", Scope.THROTTLE), I.FAILED) is None
    assert failures.failed == 0
