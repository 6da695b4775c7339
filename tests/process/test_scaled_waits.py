"""What an endpoint asks of one worker holds for all of them, is shown, and keeps nobody from deciding."""

import re
import signal
from collections.abc import Callable

from batchrun.core.states import ItemState, JobState
from tests.acceptance.endpoint import ScriptedEndpoint
from tests.lab import Lab, Run, assert_accounts_agree
from tests.process.steps import TASK, until, until_said, until_standing

SUBMIT = ("submit", "jobs/job.json", "--no-trial", "--no-progress")
Scripted = Callable[..., tuple[Lab, ScriptedEndpoint]]


def asks_for(seconds: float) -> dict[str, object]:
    """A refusal that asks for a pause."""
    error = {"message": "slow down", "type": "rate_limit_exceeded", "code": "rate_limit_exceeded"}
    return {"status": 429, "headers": {"Retry-After": f"{seconds:g}"}, "json": {"error": error}}


def crew_of(lab: Lab, count: int, *, slots: int, redis_url: str) -> list[Run]:
    lab.env["BATCHRUN_BROKER"] = redis_url
    crew = [lab.start("worker", "--alone", "-c", str(slots)) for _ in range(count)]
    for one in crew:
        until_said(one, "is ready")
    return crew


def test_ten_minutes_hold_every_worker_are_shown_and_are_slept_by_none(make_scripted: Scripted, redis_url: str) -> None:
    lab, endpoint = make_scripted(default={"content": "yes", "delay_s": 0.1})
    crew = crew_of(lab, 2, slots=4, redis_url=redis_url)
    lab.write_input(200)
    lab.write_spec(concurrency=6)
    run = lab.start(*SUBMIT)
    until(lambda: endpoint.answered >= 20, "some are answered")
    endpoint.follow({"default": asks_for(600)})
    standing = until_standing(lab, lambda seen: seen.held_for_s is not None, "the ledger knows of the pause")
    assert standing.held_for_s is not None
    assert 590 < standing.held_for_s < 661
    until_standing(lab, lambda seen: seen.counts[ItemState.RUNNING] == 0, "what was in flight has been refused")
    sent = lab.arrivals()
    done = lab.standing().counts[ItemState.COMPLETED]
    assert 1 <= sent - done <= 6, "what was in flight, and nothing after it"

    assert re.search(r"waiting   the endpoint asked for a pause: (9|10) m \d+ s of it left", lab.run("status").out)
    assert 500 < lab.run("status", "--json").json["timing"]["held_for_s"] < 661

    endpoint.follow({})
    assert lab.run("set", TASK, "-c", "3").wait() == 0
    until_standing(lab, lambda seen: seen.slots == 3, "the workers have taken the new limit")
    crew[0].kill(signal.SIGTERM)
    assert crew[0].wait() == 0, "it leaves in the middle of the pause"
    assert lab.run("pause", TASK).wait() == 0
    assert run.wait() == 0, "who followed is told"
    assert lab.standing().job.state is JobState.PAUSED
    assert lab.run("cancel", TASK).wait() in (0, 3)
    standing = until_standing(lab, lambda seen: seen.job.state is JobState.CANCELLED, "it is cancelled")
    assert standing.counts[ItemState.CANCELLED] == 200 - done
    assert lab.arrivals() == sent, "nothing left in all that time"
    crew[1].kill(signal.SIGTERM)
    assert crew[1].wait() == 0


def test_the_end_of_a_pause_that_many_workers_keep_is_no_stampede(make_scripted: Scripted, redis_url: str) -> None:
    lab, endpoint = make_scripted(default={"content": "yes", "delay_s": 0.1})
    slots, pause_s = 16, 3.0
    crew = crew_of(lab, 4, slots=4, redis_url=redis_url)
    lab.write_input(120)
    lab.write_spec(concurrency=slots)
    run = lab.start(*SUBMIT)
    until(lambda: endpoint.answered >= 20, "some are answered")
    for _ in range(3):  # what leaves one by one is late all at once where the machine stood still
        endpoint.follow({"default": asks_for(pause_s)})
        until_standing(lab, lambda seen: bool(seen.held_for_s), "the ledger knows of the pause")
        until_standing(lab, lambda seen: seen.counts[ItemState.RUNNING] == 0, "what was in flight has been refused")
        sent = lab.arrivals()
        endpoint.follow({"default": {"content": "yes", "delay_s": 2.0}})  # so long that no slot is used a second time
        until(lambda sent=sent: lab.arrivals() >= sent + slots, "all slots are in use again")
        before, after = endpoint.requests[sent - 1], endpoint.requests[sent : sent + slots]
        assert after[0].at_s - before.at_s >= pause_s
        if (spread_s := after[-1].at_s - after[0].at_s) > 0.25:
            break
    assert spread_s > 0.25, "the slots come back one by one, over 0.6 s"
    endpoint.follow({})
    assert run.wait() == 0, run.err
    assert_sent_once_but_for_refusals(lab)
    for one in crew:
        one.kill(signal.SIGTERM)
        assert one.wait() == 0


def assert_sent_once_but_for_refusals(lab: Lab) -> None:
    """No item was answered twice, and all are answered."""
    assert_accounts_agree(lab)
    assert lab.judged().billed == lab.standing().counts[ItemState.COMPLETED] == 120
