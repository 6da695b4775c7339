"""What makes a run doubtful, and nothing that does not; when a request could have been sent; how much was cached."""

from dataclasses import replace

import pytest

from batchrun.core.measuring.cache_hits import cache_hit_share
from batchrun.core.measuring.document import Run, Series
from batchrun.core.measuring.doubts import doubts
from batchrun.core.measuring.dues import closed_dues, scheduled_dues
from batchrun.core.measuring.timings import Measured
from tests.core.measuring.test_document import make_run
from tests.core.measuring.traces import answered, failed


def run_of(*requests: Measured, observations: dict[str, Series] | None = None) -> Run:
    return replace(make_run(1, list(requests)), events=(), observations=observations or {})


def counters(*values: float | None) -> Series:
    return Series("tokens", tuple(range(len(values))), values)


def good(number: int = 0) -> Measured:
    return replace(answered(100, 200, name=f"r{number}", sent_s=float(number)), max_tokens=2, cached_tokens=0)


def test_a_good_run_raises_no_doubt() -> None:
    assert list(doubts(run_of(good(), good(1)))) == []


@pytest.mark.parametrize(
    ("requests", "words"),
    [
        ([good(), failed(1), failed(1, cause="timeout")], "2 of 3 requests failed (server_error, timeout)"),
        ([replace(good(), cached_tokens=9)], "a cache flatters it: the server knew 90% of the prompts' tokens"),
        ([replace(good(), max_tokens=50)], "answers ended early: 2 tokens instead of 50"),
        ([replace(good(), output_tokens=None)], "did not say how many tokens"),
        ([replace(good(), first_token_s=None)], "1 answers came whole"),
        ([replace(good(1), due_s=0.8)], "the client kept requests waiting for 50% of their time"),
    ],
)
def test_each_doubt_is_said(requests: list[Measured], words: str) -> None:
    (said,) = doubts(run_of(*requests))
    assert words in said


def test_what_is_shared_on_purpose_is_no_doubt() -> None:
    shared = run_of(replace(good(), cached_tokens=9))
    assert list(doubts(shared, shared_share=0.85)) == []


def test_the_servers_own_counters_say_what_its_cache_knew() -> None:
    seen = {"server.prefix_queries": counters(1000, None, 1400), "server.prefix_hits": counters(50, 60, 150)}
    assert cache_hit_share(run_of(good(), observations=seen)) == 0.25
    assert cache_hit_share(run_of(replace(good(), cached_tokens=4))) == 0.4
    assert cache_hit_share(run_of(replace(good(), cached_tokens=None))) is None
    assert cache_hit_share(run_of(good(), observations={"server.prefix_queries": counters(5)})) == 0.0


def test_in_a_closed_loop_a_request_is_due_when_a_slot_comes_free() -> None:
    run = [answered(900, sent_s=0.0), answered(400, sent_s=0.1), answered(100, sent_s=0.7), answered(100, sent_s=1.0)]
    due = closed_dues(run, concurrency=2)
    assert [one.due_s for one in due] == [0.0, 0.0, pytest.approx(0.5), pytest.approx(0.8)]
    assert [one.queue_s for one in due] == [0.0, 0.1, pytest.approx(0.2), pytest.approx(0.2)]


def test_by_a_schedule_a_request_is_due_when_it_arrives_and_once() -> None:
    run = [
        answered(100, name="a", sent_s=0.0),
        answered(100, name="b", sent_s=0.6),
        answered(100, name="a", sent_s=2.0),
    ]
    assert [one.due_s for one in scheduled_dues(run, {"a": 0.0, "b": 0.5})] == [0.0, 0.5, None]
