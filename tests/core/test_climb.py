"""Adaptive concurrency: what each round leads to, and where a job with a model of an endpoint comes to."""

from dataclasses import replace

import pytest

from batchrun.core.climb import LONGEST_REST, Climb, climb
from batchrun.core.concurrency import Concurrency
from batchrun.core.gauge import Gauge, Seen
from batchrun.core.outcome import Charge, Evidence, Scope, Timing, Usage
from batchrun.core.states import AttemptState
from tests.core.crowd import Crowd, Model

WIDE = Concurrency(1, 512)
SEEDS = range(6)


def settled(kept: int, **changes: object) -> Climb:
    """Return a climb that has found its limit."""
    known = {"is_starting": False, "speed": 100.0, "quickest": 100.0}
    return replace(Climb.within(WIDE, now=kept), **known | changes)  # type: ignore[arg-type]


def a_round(now: Climb, *, speed: float = 100.0, **changes: float) -> Seen:
    """Return what a whole round at the limit in force shows, of answers of 100 tokens."""
    answers = now.needs()
    seen = Seen(answers, 100.0 * answers, 100.0 * answers / speed, used_s=10.0 * now.limit, open_s=10.0)
    return replace(seen, **changes)  # type: ignore[arg-type]


def after(now: Climb, **seen: float) -> Climb:
    step = climb(now, a_round(now, **seen))
    assert step is not None
    if step[1] is not None:
        assert (step[1].before, step[1].after) == (now.limit, step[0].limit)
    return step[0]


# -- one round --------------------------------------------------------------------------------------------------------


def test_clean_rounds_double_what_is_new() -> None:
    now, limits = Climb.within(WIDE), []
    for _ in range(8):
        limits.append(now.limit)
        now = after(now)
    assert limits == [8, 16, 32, 64, 128, 256, 512, 512]


def test_a_round_that_shows_too_little_decides_nothing() -> None:
    now = Climb.within(WIDE)
    assert climb(now, Seen()) is None
    assert climb(now, replace(a_round(now), answers=now.needs() - 1)) is None
    resting = settled(16, rests=2)
    assert climb(resting, a_round(resting, open_s=0.5)) is None, "where nothing is tried, nothing is in a hurry"


def test_further_slots_that_bring_no_further_work_are_given_up() -> None:
    now = after(after(Climb.within(WIDE)), speed=50.0)
    assert (now.limit, now.is_starting) == (8, False)


@pytest.mark.parametrize(("speed", "limit"), [(86.0, 20), (82.0, 16)])
def test_a_limit_tried_is_kept_when_a_fifth_of_it_shows_as_work(speed: float, limit: int) -> None:
    now = after(replace(settled(16), tried=20), speed=speed)
    assert now.kept == limit


def test_fewer_are_tried_only_where_something_may_be_waiting_and_kept_if_as_much_is_done() -> None:
    assert after(settled(16, is_upward=False)).limit == 20, "at full speed nothing waits"
    slow = after(settled(16, is_upward=False, quickest=200.0))
    assert slow.limit == 13
    assert after(slow, speed=122.0).kept == 13
    assert after(slow, speed=101.0).limit == 16


def test_a_refusal_cuts_at_once_and_takes_back_what_was_tried() -> None:
    now = settled(64)
    step = climb(now, Seen(throttled=1))
    assert step is not None
    assert step[1] is not None
    assert (step[0].limit, step[1].reason) == (44, "throttled")
    step = climb(replace(now, tried=80), Seen(throttled=1))
    assert step is not None
    assert step[0].limit == 64


def test_what_was_refused_is_approached_half_way_and_not_reached_for_long() -> None:
    now, refused = settled(32), []
    for _ in range(200):
        step = climb(now, Seen(throttled=1) if now.limit > 35 else a_round(now))
        assert step is not None
        refused += [now.limit] if now.limit > 35 else []
        now = step[0]
    assert now.kept == 35
    assert refused[:2] == [40, 36]
    assert len(refused) <= 7


def test_a_range_is_never_left_however_often_it_refuses() -> None:
    now = Climb.within(Concurrency(4, 64))
    for _ in range(20):
        step = climb(now, Seen(throttled=3))
        assert step is not None
        now = step[0]
        assert now.limit == max(4, now.limit)
    assert now.limit == 4


def test_failures_stop_growth_and_cut_nothing() -> None:
    now = Climb.within(WIDE)
    for _ in range(3):
        now = after(now, failed=4)
        assert now.limit == 8
    assert after(now).limit == 16, "and when they stop, it grows"
    assert after(now, failed=1).limit == 16, "one of many is nothing"
    assert after(replace(settled(16), tried=20), failed=10).limit == 16


def test_a_job_that_does_not_use_its_limit_gets_no_larger_one() -> None:
    assert after(Climb.within(WIDE), used_s=8.0).limit == 8
    assert after(replace(settled(16), tried=20), used_s=8.0).limit == 16


def test_an_endpoint_that_becomes_slow_at_the_same_limit_is_asked_for_less() -> None:
    now = after(settled(64, rests=9), speed=50.0)
    assert now.limit == 32
    assert after(now, speed=100.0).kept == 32, "it had a queue"
    assert after(now, speed=50.0).limit == 64, "it had longer answers"


def test_trials_that_bring_nothing_become_rare() -> None:
    now, tries = settled(64), 0
    for _ in range(200):
        before, now = now, after(now, speed=100.0 if now.limit <= 64 else 70.0)
        tries += before.tried is None and now.tried is not None
    assert tries <= 200 / LONGEST_REST + 5


def test_a_resumed_job_begins_where_it_was() -> None:
    assert Climb.within(WIDE, now=37).limit == 37
    assert Climb.within(Concurrency(4, 16), now=37).limit == 16


# -- the gauge --------------------------------------------------------------------------------------------------------


def evidence(outcome: AttemptState = AttemptState.ANSWERED, cause: str | None = None, **more: object) -> Evidence:
    timing = Timing(0.0, None, 2.0, 2.0)
    return Evidence(outcome, cause, cause, Charge.NONE, timing, **more)  # type: ignore[arg-type]


def test_the_gauge_counts_what_was_sent_after_the_limit_had_settled() -> None:
    gauge = Gauge()
    gauge.begin(1, 10.0, settle_s=5.0)
    gauge.saw(16.0, evidence(usage=Usage(5, 84)))  # sent at 14
    gauge.saw(18.0, evidence(usage=Usage(5, 84)))
    gauge.saw(18.0, evidence())
    gauge.saw(18.0, evidence(AttemptState.REFUSED, "server_error"))
    gauge.saw(18.0, evidence(AttemptState.REFUSED, "bad_request"))
    gauge.saw(11.0, evidence(AttemptState.REFUSED, "rate_limited", scope=Scope.THROTTLE))  # sent at 9
    gauge.saw(13.0, evidence(AttemptState.REFUSED, "rate_limited", scope=Scope.THROTTLE))
    gauge.tick(15.5, in_use=4, is_open=True)
    gauge.tick(16.5, in_use=4, is_open=False)
    assert gauge.take() == Seen(2, 116.0, 4.0, failed=1, throttled=1, used_s=2.0, open_s=0.5)
    assert gauge.take() is None
    gauge.tick(17.0, in_use=4, is_open=True)
    assert gauge.take() is None, "and what the slots did is told with the next answer"
    gauge.saw(18.0, evidence())
    assert gauge.take() == Seen(1, 16.0, 2.0, used_s=2.0, open_s=1.0)


def test_what_several_processes_see_is_added_but_for_the_time() -> None:
    seen = Seen(2, 20.0, 4.0, 1, 0, used_s=6.0, open_s=3.0)
    seen.add(Seen(1, 10.0, 2.0, 0, 1, used_s=3.0, open_s=2.0))
    assert seen == Seen(3, 30.0, 6.0, 1, 1, used_s=9.0, open_s=3.0)
    assert seen.speed == 5.0


# -- the whole, on a clock of its own ---------------------------------------------------------------------------------


MODELS = {
    "a knee at 100": Model(slots=100, sigma=0.5),
    "a knee at 37, quick": Model(latency_s=0.3, slots=37, sigma=0.3),
    "a knee at 24, slow": Model(latency_s=2.0, slots=24, sigma=0.3),
    "a batch that becomes slower": Model(drag=1 / 64, sigma=0.3),
    "refusals above 40": Model(refuse_above=40, sigma=0.3),
    "one in a hundred fails": Model(slots=60, sigma=0.3, error_share=0.01),
}


@pytest.mark.parametrize("name", MODELS)
def test_within_a_minute_it_does_nine_tenths_of_the_best_fixed_concurrency(name: str) -> None:
    found = []
    for seed in SEEDS:
        crowd = Crowd(replace(MODELS[name]), Concurrency.of("4-256"), seed)
        crowd.run(until=60.0)
        reached = crowd.climb.limit
        crowd.run(until=90.0)
        found.append((crowd.rate("answered", since=60.0) / crowd.model.best(256), seed, reached))
    assert min(found)[0] >= 0.9, f"(share of the best, seed, limit after a minute): {found}"


@pytest.mark.parametrize("model", [Model(refuse_above=64, sigma=0.3), Model(slots=64, refuse_above=80, sigma=0.3)])
def test_when_half_of_the_endpoint_is_gone_refusals_are_rare_within_half_a_minute(model: Model) -> None:
    for seed in SEEDS[:4]:
        crowd = Crowd(replace(model), Concurrency.of("4-256"), seed)
        crowd.run(until=60.0)
        crowd.model.slots //= 2
        crowd.model.refuse_above = 32
        crowd.run(until=90.0)
        before = crowd.now
        crowd.run(until=120.0)
        refused, answered = crowd.rate("throttled", since=before), crowd.rate("answered", since=before)
        assert refused / (refused + answered) < 0.02, f"seed {seed}"
        assert answered > 0.8 * crowd.model.best(256), f"seed {seed}"


def test_when_the_endpoint_grows_the_job_grows_after_it() -> None:
    crowd = Crowd(Model(slots=16, sigma=0.3), Concurrency.of("4-256"))
    crowd.run(until=60.0)
    crowd.model.slots = 128
    crowd.run(until=200.0)
    assert crowd.rate("answered", since=170.0) > 0.9 * crowd.model.best(256)
