"""Ctrl-C and SIGTERM: the first drains, the second gives up; and a process that was stopped and wakes up again."""

import signal
import time
from collections.abc import Callable

import pytest

from batchrun.core.states import AttemptState, ItemState, JobState
from tests.lab import Lab, Run, assert_accounts_agree, assert_outputs_whole
from tests.process.steps import (
    TASK,
    assert_sent_once,
    assert_settled,
    gated,
    ids,
    is_reading,
    replace_endpoint,
    start_and_stop_while_registering,
    start_endpoint,
    stop_between_writes,
    until,
    until_quiet,
    until_said,
    until_standing,
)

SUBMIT = ("submit", "jobs/job.json", "--no-trial")
RESUME = ("resume", TASK)
SIGNALS = [pytest.param(signal.SIGINT, 130, id="SIGINT"), pytest.param(signal.SIGTERM, 143, id="SIGTERM")]
COUNT, CONCURRENCY = 48, 8


def _lab(make_lab: Callable[..., Lab], *, count: int = COUNT, **settings: object) -> Lab:
    lab = make_lab(**settings)
    lab.write_input(count)
    lab.write_spec(concurrency=CONCURRENCY)
    return lab


def _drained(lab: Lab, number: int) -> tuple[Run, int]:
    """Start a job, signal its process once all its slots are in use again; return it, and how much had left by then."""
    with gated(lab, admits=CONCURRENCY):
        run = lab.start(*SUBMIT)
        lab.await_arrivals(2 * CONCURRENCY, run=run)
        run.kill(number)
        until_said(run, "draining")
        return run, lab.arrivals()


def _assert_resumable(run: Run, *, code: int) -> None:
    assert run.wait() == code, run.err + run.out
    assert f"batchrun resume {TASK}" in run.out, run.out


@pytest.mark.parametrize(("number", "code"), SIGNALS)
def test_the_first_signal_drains(number: int, code: int, make_lab: Callable[..., Lab]) -> None:
    lab = _lab(make_lab)
    run, sent = _drained(lab, number)
    _assert_resumable(run, code=code)
    assert lab.arrivals() == sent == 2 * CONCURRENCY
    assert lab.judged().by_outcome["answered"] == sent
    standing = assert_accounts_agree(lab, is_over=False)
    assert standing.counts[ItemState.COMPLETED] == sent
    assert standing.counts[ItemState.PENDING] == COUNT - sent
    assert standing.counts[ItemState.RUNNING] == standing.attempts.open == 0
    assert len(lab.lines()) == sent
    assert lab.run(*RESUME).wait() == 0
    assert_settled(lab, count=COUNT, concurrency=CONCURRENCY)
    assert_sent_once(lab)
    assert_outputs_whole(lab, ids(COUNT))


@pytest.mark.parametrize(("number", "code"), SIGNALS)
def test_the_second_signal_gives_up_what_is_in_flight(number: int, code: int, make_lab: Callable[..., Lab]) -> None:
    lab = _lab(make_lab, latency_ms=300_000)
    run = lab.start(*SUBMIT)
    lab.await_arrivals(CONCURRENCY, run=run)
    run.kill(number)
    until_said(run, "draining: 8 requests in flight")
    began = time.monotonic()
    run.kill(number)
    assert run.wait() == code, run.err
    assert time.monotonic() - began < 20.0, "at once: the answers take minutes"
    standing = assert_accounts_agree(lab, is_over=False)
    assert standing.counts[ItemState.IN_DOUBT] == CONCURRENCY
    assert standing.attempts.by_state[AttemptState.UNKNOWN] == CONCURRENCY
    assert {item["cause"] for item in _doubts(lab)} == {"aborted"}
    replace_endpoint(lab, latency_ms=0)
    resumed = lab.run(*RESUME)
    assert resumed.wait() == 6, resumed.err
    assert f"batchrun reconcile {TASK}" in resumed.out
    assert_settled(lab, count=COUNT, doubts_at_most=CONCURRENCY, concurrency=CONCURRENCY)
    assert_sent_once(lab)
    assert_outputs_whole(lab, ids(COUNT))


def _doubts(lab: Lab) -> list[dict[str, str]]:
    found: list[dict[str, str]] = lab.run("reconcile", TASK, "--json").json["in_doubt"]
    return found


def test_a_drain_that_takes_too_long_gives_up_by_itself(make_lab: Callable[..., Lab]) -> None:
    lab = _lab(make_lab, latency_ms=300_000)
    run = lab.start(*SUBMIT, env={"BATCHRUN_DRAIN_TIMEOUT_S": "0.5"})
    lab.await_arrivals(CONCURRENCY, run=run)
    run.kill(signal.SIGTERM)
    assert run.wait() == 143, run.err
    assert lab.standing().counts[ItemState.IN_DOUBT] == CONCURRENCY
    assert_accounts_agree(lab, is_over=False)


def test_a_signal_during_the_trial_drains_and_resume_tries_the_rest_first(make_lab: Callable[..., Lab]) -> None:
    lab = make_lab()
    lab.write_input(30)
    lab.write_spec(concurrency=2)
    with gated(lab, admits=2):
        run = lab.start("submit", "jobs/job.json")
        lab.await_arrivals(4, run=run)
        run.kill(signal.SIGTERM)
        until_said(run, "draining")
    _assert_resumable(run, code=143)
    assert lab.arrivals() == 4
    assert lab.standing().job.phase == "trial"
    resumed = lab.run(*RESUME, "-c", "8")
    assert resumed.wait() == 0, resumed.err
    assert "trial of batch-001: 10 of 30 items" in resumed.err
    assert_settled(lab, count=30, concurrency=8)
    assert lab.judged().posts == 30


@pytest.mark.parametrize(("number", "code"), SIGNALS)
def test_a_signal_during_registration_leaves_a_job_that_submit_registers_anew(
    number: int, code: int, make_lab: Callable[..., Lab]
) -> None:
    lab = _lab(make_lab)
    run = start_and_stop_while_registering(lab, *SUBMIT)
    run.kill(number)
    run.kill(signal.SIGCONT)
    assert run.wait() == code, run.err
    assert "batchrun submit jobs/job.json" in run.err
    assert lab.arrivals() == 0
    refused = lab.run(*RESUME)
    assert refused.wait() == 2
    assert "submit" in refused.err
    with gated(lab, admits=1):
        again = lab.start(*SUBMIT)
        lab.await_arrivals(1, run=again)
        assert sum(lab.standing().counts.values()) == COUNT
        again.kill(number)
        until_said(again, "draining")
    assert again.wait() == code
    assert_accounts_agree(lab, is_over=False)
    assert_sent_once(lab)


@pytest.mark.parametrize(("number", "code"), SIGNALS)
def test_a_signal_while_the_input_is_read_ends_at_once_and_leaves_nothing(
    number: int, code: int, make_lab: Callable[..., Lab]
) -> None:
    lab = _lab(make_lab, count=60_000)
    run = lab.start(*SUBMIT)
    until(lambda: is_reading(run, "in.jsonl"), "the input is being read")
    run.kill(number)
    assert run.wait(5) == code, run.err
    assert "Traceback" not in run.err
    assert lab.arrivals() == 0
    assert not (lab.folder / ".batchrun").exists()


def test_a_signal_to_a_follower_leaves_the_performer_alone(make_lab: Callable[..., Lab]) -> None:
    lab = _lab(make_lab)
    with gated(lab, admits=CONCURRENCY):
        run = lab.start(*SUBMIT)
        lab.await_arrivals(CONCURRENCY, run=run)
        follower = lab.start(*RESUME)
        until_said(follower, "following it")
        follower.kill(signal.SIGTERM)
        assert follower.wait(5) == 143, follower.err
    assert run.wait() == 0, run.err
    assert_settled(lab, count=COUNT, concurrency=CONCURRENCY)
    assert_sent_once(lab)


def test_a_signal_while_the_endpoint_was_never_reached(make_lab: Callable[..., Lab]) -> None:
    lab = _lab(make_lab)
    assert lab.mock is not None
    lab.mock.kill()
    run = lab.start(*SUBMIT)
    until_standing(lab, lambda standing: standing.attempts.by_state.get(AttemptState.NOT_SENT, 0) > 0, "it was tried")
    run.kill(signal.SIGTERM)
    _assert_resumable(run, code=143)
    assert lab.standing().counts[ItemState.PENDING] == COUNT
    start_endpoint(lab)
    assert lab.run(*RESUME).wait() == 0
    assert_settled(lab, count=COUNT, concurrency=CONCURRENCY)
    assert_sent_once(lab)


def test_a_signal_while_the_endpoint_is_down(make_lab: Callable[..., Lab]) -> None:
    lab = _lab(make_lab)
    lab.gate(20)
    run = lab.start(*SUBMIT)
    lab.await_arrivals(20, run=run)
    assert lab.mock is not None
    lab.mock.kill()
    until_standing(lab, lambda standing: standing.job.reason == "endpoint_down", "the job waits for its endpoint")
    run.kill(signal.SIGTERM)
    _assert_resumable(run, code=143)
    start_endpoint(lab)
    assert lab.run(*RESUME).wait() in (0, 6)
    assert_settled(lab, count=COUNT, doubts_at_most=2 * CONCURRENCY, concurrency=CONCURRENCY)
    assert_sent_once(lab)


def test_an_endpoint_that_comes_back_is_used_again_without_anybody_s_help(make_lab: Callable[..., Lab]) -> None:
    lab = _lab(make_lab)
    lab.gate(20)
    run = lab.start(*SUBMIT)
    lab.await_arrivals(20, run=run)
    assert lab.mock is not None
    lab.mock.kill()
    until_standing(lab, lambda standing: standing.job.reason == "endpoint_down", "the job waits for its endpoint")
    start_endpoint(lab)
    assert run.wait() in (0, 6), run.err
    assert_settled(lab, count=COUNT, doubts_at_most=2 * CONCURRENCY, concurrency=CONCURRENCY)
    assert_sent_once(lab)


def test_a_signal_while_the_endpoint_throttles_does_not_wait_for_it(make_lab: Callable[..., Lab]) -> None:
    lab = _lab(make_lab, rate_limit_rate=1.0, retry_after_s=600.0)
    run = lab.start(*SUBMIT)
    lab.await_arrivals(1, run=run)
    until_standing(lab, lambda standing: standing.job.throttle_until_at is not None, "the job is throttled")
    run.kill(signal.SIGTERM)
    _assert_resumable(run, code=143)
    standing = assert_accounts_agree(lab, is_over=False)
    assert standing.counts[ItemState.PENDING] == COUNT
    assert standing.job.throttle_until_at is not None
    assert time.time() < standing.job.throttle_until_at


def test_a_stopped_performer_keeps_its_job_and_goes_on_when_it_wakes(make_lab: Callable[..., Lab]) -> None:
    lab = _lab(make_lab, latency_ms=100)
    quick = {"BATCHRUN_DEAD_AFTER_S": "0.8", "BATCHRUN_HEARTBEAT_S": "0.1"}
    with gated(lab, admits=CONCURRENCY):
        run = lab.start(*SUBMIT, env=quick)
        lab.await_arrivals(CONCURRENCY, run=run)
        follower = lab.start(*RESUME, env=quick)
        until_said(follower, "following it")
        stop_between_writes(lab, run)
    arrived = until_quiet(lab, for_s=2.0, run=follower)  # more than twice as long as a dead one would get
    assert arrived < COUNT
    assert follower.process.is_alive()
    run.kill(signal.SIGCONT)
    assert run.wait() == 0, run.err
    assert follower.wait() == 0, follower.err
    assert_settled(lab, count=COUNT, concurrency=CONCURRENCY)
    assert_sent_once(lab)


def test_a_stopped_performer_on_another_host_loses_its_job_and_its_late_answers_are_kept(
    make_lab: Callable[..., Lab],
) -> None:
    lab = _lab(make_lab, latency_ms=150)
    quick = {"BATCHRUN_DEAD_AFTER_S": "4", "BATCHRUN_HEARTBEAT_S": "0.2"}
    with gated(lab, admits=CONCURRENCY):
        run = lab.start(*SUBMIT, env=quick)
        lab.await_arrivals(2 * CONCURRENCY, run=run)
        stop_between_writes(lab, run)
    # Another host sees no lock: there is nothing to go by but the heartbeat.
    for lock in (lab.folder / ".batchrun" / "workers").glob("*.lock"):
        lock.unlink()
    follower = lab.start(*RESUME, env=quick)
    until_said(follower, "going on here")
    lab.await_arrivals(lab.arrivals() + 4, run=follower)
    run.kill(signal.SIGCONT)
    assert run.wait() in (0, 6, 8), run.err
    assert follower.wait() in (0, 6), follower.err
    # What it had been answered while it slept became no doubt in the end; what it had claimed ahead may stand in doubt.
    standing = assert_settled(lab, count=COUNT, doubts_at_most=CONCURRENCY // 4)
    assert standing.job.state is JobState.COMPLETED
    assert_sent_once(lab)
    assert standing.counts[ItemState.COMPLETED] == lab.judged().by_outcome["answered"] == len(lab.lines())
    assert_outputs_whole(lab, ids(COUNT))
