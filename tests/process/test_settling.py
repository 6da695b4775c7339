"""Doubts that are settled without paying: against an endpoint that keeps what it did."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.lab import Lab, assert_accounts_agree, assert_outputs_whole
from tests.process.steps import TASK, ids

COUNT = 16
PRICE = {"input_per_1m_usd": 1, "output_per_1m_usd": 2}


def in_doubt(make_lab: Callable[..., Lab], spec: dict[str, Any], **mock: Any) -> Lab:
    """Run a job of which some connections were reset after the work was done."""
    lab = make_lab(seed=4, reset_rate=0.3, **mock)
    lab.write_input(COUNT)
    lab.write_spec(price=PRICE, **spec)
    run = lab.run("submit", "jobs/job.json", "--no-trial")
    assert run.wait() == 6, run.err
    return lab


def test_a_look_up_settles_every_doubt_and_nothing_is_billed_twice(make_lab: Callable[..., Lab]) -> None:
    lab = in_doubt(make_lab, {"lookup": "openai"}, stores=True)
    billed = lab.judged().billed
    listed = lab.run("reconcile", TASK)
    assert f"batchrun reconcile {TASK} --lookup (free)" in listed.out
    run = lab.run("reconcile", TASK, "--lookup")
    assert run.wait() == 0, run.err + run.out
    assert "the answer is taken" in run.out
    standing = assert_accounts_agree(lab)
    assert (lab.judged().billed, standing.attempts.certain_requests) == (billed, billed)
    assert standing.attempts.possible_requests == 0
    assert_outputs_whole(lab, ids(COUNT))


def test_a_log_of_costs_tells_what_was_billed_and_leaves_the_doubt(make_lab: Callable[..., Lab]) -> None:
    lab = in_doubt(make_lab, {"lookup": "litellm"}, spend_log="costs")
    run = lab.run("reconcile", TASK, "--lookup")
    assert run.wait() == 6, run.err + run.out
    assert "billed for certain, without an answer: still in doubt" in run.out
    standing = assert_accounts_agree(lab)
    assert (standing.attempts.certain_requests, standing.attempts.possible_requests) == (lab.judged().billed, 0)
    assert "billed for certain $" in lab.run("reconcile", TASK).out


def test_a_replay_settles_every_doubt_with_one_bill_each(make_lab: Callable[..., Lab]) -> None:
    lab = in_doubt(make_lab, {"idempotency_header": "Idempotency-Key"}, replay_s=60)
    before = lab.judged()
    run = lab.run("reconcile", TASK, "--replay")
    assert run.wait() == 0, run.err + run.out
    assert "with the first request that is one bill" in run.out
    standing, after = assert_accounts_agree(lab), lab.judged()
    assert after.billed == before.billed == standing.attempts.certain_requests
    assert after.posts > before.posts
    assert standing.attempts.possible_requests == 0
    assert_outputs_whole(lab, ids(COUNT))


@pytest.mark.parametrize(("mock", "level", "billed"), [({"replay_s": 60}, "ok", 1), ({}, "warn", 2)])
def test_the_doctor_tries_whether_an_endpoint_replays(
    make_lab: Callable[..., Lab], mock: dict[str, Any], level: str, billed: int
) -> None:
    lab = make_lab(**mock)
    lab.write_input(1)
    lab.write_spec()
    run = lab.run("doctor", "jobs/job.json", "--send", "--probe-replay", "--json")
    (found,) = [one for one in run.json["findings"] if one["name"] == "replay"]
    assert (found["level"], lab.judged().billed) == (level, billed), found
    assert not (lab.folder / ".batchrun").exists()
