"""Deciding about a running job from another terminal: pause, set, resume; in effect at once, whoever performs it."""

import time
from collections.abc import Callable

import pytest

from batchrun.core.states import ItemState, JobState
from tests.lab import Lab, Run, assert_accounts_agree, assert_outputs_whole
from tests.process.steps import TASK, assert_sent_once, ids, until, until_quiet, until_said

SUBMIT = ("submit", "jobs/job.json", "--no-trial")
COUNT = 200
EFFECT_S = 2.0


@pytest.fixture(params=["embedded", "scaled"])
def running(request: pytest.FixtureRequest, make_lab: Callable[..., Lab]) -> tuple[Lab, Run]:
    """A job of 200 items of 100 ms under way, eight at once, in one process or by two workers."""
    lab = make_lab(latency_ms=100)
    lab.write_input(COUNT)
    lab.write_spec(concurrency=8)
    if request.param == "scaled":
        lab.env["BATCHRUN_BROKER"] = request.getfixturevalue("redis_url")
        for _ in range(2):
            until_said(lab.start("worker", "--alone", "-c", "8"), "is ready")
    lab.gate(30)  # until the test has seen to it that there is something left of the job
    run = lab.start(*SUBMIT)
    lab.await_arrivals(30, run=run)
    return lab, run


def in_hand_after_a_round(lab: Lab, run: Run, *, least: int) -> int:
    """Let everything be answered that stands at the gate, and return how much stands there then."""
    served = lab.arrivals()
    lab.gate(served)
    lab.await_arrivals(served + least, run=run)
    return until_quiet(lab, for_s=0.5, run=run) - served


def test_a_pause_stops_the_sends_and_resume_goes_on(running: tuple[Lab, Run]) -> None:
    lab, run = running
    rehearsed = lab.run("pause", TASK, "--dry-run", "--json").json
    assert (rehearsed["applied"], rehearsed["dry_run"]) == (False, True)
    paused = lab.run("pause", TASK, "--json")
    assert paused.wait() == 0, paused.err
    assert paused.json["applied"]
    lab.gate(None)
    assert run.wait() == 0, run.err
    at_rest = lab.arrivals()
    assert at_rest < COUNT
    until(lambda: lab.standing().counts[ItemState.RUNNING] == 0, "what was in flight has finished")
    again = lab.run("pause", TASK, "--json").json
    assert not again["applied"]
    standing = lab.standing()
    assert (standing.job.state, standing.job.reason) == (JobState.PAUSED, "paused_by_user")
    planned = lab.run("resume", TASK, "--dry-run", "--json").json
    left = standing.counts[ItemState.PENDING]
    assert (planned["to_send"], planned["kept"], planned["unsettled"]) == (left, COUNT - left, 0)
    assert lab.standing().job == standing.job
    assert lab.arrivals() == at_rest
    resumed = lab.run("resume", TASK)
    assert resumed.wait() == 0, resumed.err
    assert_sent_once(lab)
    assert_accounts_agree(lab)
    assert_outputs_whole(lab, ids(COUNT))
    ended = lab.run("pause", TASK)
    assert ended.wait() == 2
    assert "cannot be paused" in ended.err


def test_a_lower_concurrency_holds_within_two_seconds_and_a_higher_one_is_used(running: tuple[Lab, Run]) -> None:
    lab, run = running
    done = lab.run("set", TASK, "-c", "2", "--json").json
    assert done["changes"] == {"concurrency": {"before": 8, "after": 2}}
    for _ in range(3):  # a process that stood still for these two seconds did not hear of it in time
        time.sleep(EFFECT_S)
        if (in_hand := in_hand_after_a_round(lab, run, least=2)) == 2:
            break
    assert in_hand == 2
    lab.gate(None)
    assert not lab.run("set", TASK, "-c", "2", "--json").json["applied"]
    assert lab.run("set", TASK, "-c", "16").wait() == 0
    assert run.wait() == 0, run.err
    assert lab.judged().max_in_flight <= 16
    assert_sent_once(lab)


def test_a_limit_a_minute_holds_from_the_moment_at_which_it_is_set(running: tuple[Lab, Run]) -> None:
    lab, run = running
    assert lab.run("set", TASK, "--rpm", "300").wait() == 0
    for _ in range(3):  # a process that stood still for these two seconds did not hear of it in time
        time.sleep(EFFECT_S)
        began, seen = time.monotonic(), lab.arrivals()
        lab.gate(seen + 20)
        lab.await_arrivals(seen + 20, run=run)
        if (took_s := time.monotonic() - began) > 1.5:
            break
    assert took_s > 1.5, "five a second, and two seconds' share at the beginning; without a limit eighty a second"
    lab.gate(None)
    lifted = lab.run("set", TASK, "--rpm", "none", "--json").json
    assert lifted["changes"] == {"rpm": {"before": 300, "after": None}}
    assert run.wait() == 0, run.err
    assert_sent_once(lab)


def test_a_limit_on_the_cost_needs_prices_and_something_must_be_set(running: tuple[Lab, Run]) -> None:
    lab, run = running
    refused = lab.run("set", TASK, "--max-cost", "1")
    assert refused.wait() == 2
    assert "has no prices" in refused.err
    assert lab.run("set", TASK).wait() == 2
    lab.gate(None)
    assert run.wait() == 0, run.err
