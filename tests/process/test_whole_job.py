"""The main job from spec to outputs, in real processes; the endpoint's own log is the judge."""

from collections.abc import Callable

from batchrun.core.states import ItemState
from tests.lab import Lab, assert_accounts_agree, assert_outputs_whole


def test_a_thousand_items_are_a_thousand_requests_in_input_order(make_lab: Callable[..., Lab]) -> None:
    lab = make_lab(latency_ms=5)
    lab.write_input(1_000)
    lab.write_spec(concurrency=32)
    run = lab.run("submit", "jobs/job.json")
    assert run.wait() == 0, run.err
    judged = lab.judged()
    assert judged.posts == judged.billed == 1_000
    assert judged.max_in_flight <= 32
    assert [line["custom_id"] for line in lab.lines()] == [f"a{number:05d}" for number in range(1_000)]
    assert lab.lines("out.errors.jsonl") == []
    standing = assert_accounts_agree(lab)
    assert standing.counts[ItemState.COMPLETED] == 1_000
    assert standing.attempts.total == 1_000


def test_concurrency_is_used_to_the_full_and_never_exceeded(make_lab: Callable[..., Lab]) -> None:
    lab = make_lab(latency_ms=200)
    ids = [f"a{number:05d}" for number in range(160)]
    lab.write_input(len(ids))
    lab.write_spec(concurrency=16)
    run = lab.run("submit", "jobs/job.json")
    assert run.wait() == 0, run.err
    assert lab.judged().max_in_flight == 16
    assert_outputs_whole(lab, ids)
