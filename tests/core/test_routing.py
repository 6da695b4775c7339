"""Where the next of several endpoints' requests goes, and when one of them is left alone."""

import pytest

from batchrun.core.outcome import Charge, Evidence, Scope, Timing
from batchrun.core.routing import FAILURES, Health, Load, assign, choose
from batchrun.core.states import AttemptState


def load(
    name: str = "a", *, in_hand: int = 0, room: int = 8, weight: float = 1.0, latency_s: float | None = 1.0
) -> Load:
    return Load(name, in_hand, room, weight, latency_s)


def counted(chosen: list[int | None]) -> dict[int | None, int]:
    return {at: chosen.count(at) for at in set(chosen)}


@pytest.mark.parametrize(
    ("loads", "expected"),
    [
        ([load(in_hand=3), load("b", in_hand=1)], 1),  # the least loaded
        ([load(in_hand=3, weight=4.0), load("b", in_hand=1)], 0),  # as its weight has it
        ([load(latency_s=2.0), load("b", in_hand=1, latency_s=0.5)], 1),  # two at once are done before that one
        ([load(room=0), load("b", in_hand=7, room=1)], 1),  # who is full gets nothing
        ([load(room=0), load("b", room=0)], None),
        ([load(in_hand=1), load("b", latency_s=None)], 1),  # one that is not known yet is as good as the best
        ([], None),
    ],
)
def test_the_next_request_goes_where_it_is_likely_to_be_answered_first(loads: list[Load], expected: int | None) -> None:
    assert choose(loads) == expected


def test_requests_are_shared_by_weight_where_all_are_as_fast() -> None:
    loads = [load("a", room=99), load("b", room=99, weight=2.0), load("c", room=99, weight=3.0)]
    assert counted(assign(loads, [None] * 60)) == {0: 10, 1: 20, 2: 30}


def test_an_endpoint_ten_times_slower_has_a_tenth_of_the_requests_out_where_none_has_a_limit() -> None:
    loads = [load("a", room=99), load("b", room=99, latency_s=10.0)]
    assert counted(assign(loads, [None] * 55)) == {0: 50, 1: 5}


def test_a_slow_endpoint_gets_no_request_that_the_others_will_have_done_before_it() -> None:
    fast, slow = load("a", in_hand=8, room=0), load("b", latency_s=10.0)
    assert choose([fast, slow], waiting=200) == 1  # 25 s of work for the fast one: the slow one helps
    assert choose([fast, slow], waiting=20) is None  # done in 3.5 s
    assert choose([slow], waiting=1) == 0  # nobody else is there
    assert choose([load("a", in_hand=8, room=0, latency_s=6.0), slow], waiting=1) == 1  # and it is not much slower


def test_the_same_key_goes_to_the_same_endpoint_until_that_one_is_much_busier() -> None:
    loads = [load(name, room=99) for name in "abc"]
    homes = {key: choose(loads, affinity=key) for key in (b"%d" % number for number in range(300))}
    assert homes == {key: choose(loads, affinity=key) for key in homes}
    assert all(60 <= list(homes.values()).count(at) <= 140 for at in range(3))
    key = next(key for key, at in homes.items() if at == 0)
    assert choose([load("a", in_hand=4), load("b", in_hand=3), load("c", in_hand=3)], affinity=key) == 0
    assert choose([load("a", in_hand=8), load("b", in_hand=2), load("c", in_hand=3)], affinity=key) == 1
    assert choose([load("a", room=0), load("b"), load("c", in_hand=1)], affinity=key) == 1


def test_keys_stay_where_they_are_when_another_endpoint_comes() -> None:
    two, three = [load("a"), load("b")], [load("a"), load("b"), load("c")]
    keys = [b"%d" % number for number in range(300)]
    moved = [key for key in keys if choose(two, affinity=key) != choose(three, affinity=key)]
    assert {choose(three, affinity=key) for key in moved} == {2}
    assert 60 <= len(moved) <= 140


def seen(outcome: AttemptState, cause: str | None, *, scope: Scope = Scope.ITEM, took_s: float = 1.0) -> Evidence:
    return Evidence(outcome, cause, cause, Charge.POSSIBLE, Timing(0.0, None, took_s, took_s), scope=scope)


ANSWER = seen(AttemptState.ANSWERED, None)
TIMEOUT = seen(AttemptState.UNKNOWN, "timeout")


def test_failures_in_a_row_cool_an_endpoint_down_longer_each_time_and_an_answer_forgets_them() -> None:
    health = Health()
    assert [health.saw(TIMEOUT) for _ in range(FAILURES)] == [None, None, 5.0]
    assert health.is_on_trial
    assert [health.saw(TIMEOUT) for _ in range(6)] == [10.0, 20.0, 40.0, 80.0, 160.0, 160.0]
    assert health.saw(ANSWER) is None
    assert not health.is_on_trial
    assert [health.saw(one) for one in (TIMEOUT, TIMEOUT, ANSWER, TIMEOUT, TIMEOUT)] == [None] * 5


@pytest.mark.parametrize(
    "evidence",
    [
        seen(AttemptState.REFUSED, "bad_request"),
        seen(AttemptState.REFUSED, "rate_limited", scope=Scope.THROTTLE),
        seen(AttemptState.REFUSED, "auth", scope=Scope.EVERYONE),
        seen(AttemptState.UNKNOWN, "aborted"),
    ],
)
def test_what_says_nothing_about_an_endpoints_health_does_not_cool_it(evidence: Evidence) -> None:
    health = Health()
    assert [health.saw(evidence) for _ in range(9)] == [None] * 9


def test_the_latency_is_smoothed() -> None:
    health = Health()
    for took_s in (1.0, 2.0, 2.0):
        health.saw(seen(AttemptState.ANSWERED, None, took_s=took_s))
    assert health.latency_s == pytest.approx(1.36)
