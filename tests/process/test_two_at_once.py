"""One job, several processes: one performs, the others follow, and one of them takes over when it dies."""

import re
import signal
from collections.abc import Callable

import pytest

from batchrun.core.states import ItemState
from tests.lab import Lab, Run, assert_outputs_whole
from tests.process.steps import (
    TASK,
    assert_sent_once,
    assert_settled,
    gated,
    ids,
    interrupted,
    kill_with_answers_in_hand,
    performer_among,
    start_and_stop_while_registering,
    until,
    until_said,
    until_standing,
)

COUNT, CONCURRENCY = 120, 8
DOUBTS_A_KILL = CONCURRENCY
RESUME = ("resume", TASK)


@pytest.fixture
def lab(make_lab: Callable[..., Lab]) -> Lab:
    lab = make_lab(latency_ms=60)
    lab.write_input(COUNT)
    lab.write_spec(concurrency=CONCURRENCY)
    return lab


def _names_the_performer(run: Run, performer: Run) -> bool:
    said = re.search(
        rf"performed by \S+ \(pid {performer.process.pid} on \S+\) since \d\d:\d\d:\d\d", run.err + run.out
    )
    return said is not None


@pytest.mark.parametrize("crowd", [2, 8])
def test_one_of_several_resumes_performs_and_one_takes_over_when_it_is_killed(crowd: int, lab: Lab) -> None:
    interrupted(lab, at=20)
    with gated(lab, admits=60):
        runs = [lab.start(*RESUME) for _ in range(crowd)]
        first = performer_among(lab, runs)
        others = [run for run in runs if run is not first]
        for run in others:
            until_said(run, "following it")
            assert _names_the_performer(run, first), run.err
        lab.await_arrivals(60, run=first)
        first.kill()
        assert first.wait() == -9
    codes = {run.wait() for run in others}
    assert codes <= {0, 6}, [run.err for run in others]
    assert len(codes) == 1
    assert sum("going on here" in run.err for run in others) == 1
    assert_settled(lab, count=COUNT, doubts_at_most=2 * DOUBTS_A_KILL, concurrency=CONCURRENCY)
    assert_sent_once(lab)
    assert_outputs_whole(lab, ids(COUNT))


def test_the_job_survives_the_death_of_one_performer_after_the_other(lab: Lab) -> None:
    lab.gate(10)
    runs = [lab.start("submit", "jobs/job.json", "--no-trial")]
    lab.await_arrivals(10, run=runs[0])
    runs += [lab.start(*RESUME) for _ in range(3)]
    for run in runs[1:]:
        until_said(run, "following it")
    living, kills = runs, 0
    while len(living) > 1:
        performer = performer_among(lab, living)
        arrived = lab.arrivals()
        lab.gate(10 + 15 * (kills + 1))
        lab.await_arrivals(arrived + 15, run=performer)
        performer.kill()
        assert performer.wait() == -9
        living = [run for run in living if run is not performer]
        kills += 1
    lab.gate(None)
    assert living[0].wait() in (0, 6), living[0].err
    assert_settled(lab, count=COUNT, doubts_at_most=kills * DOUBTS_A_KILL, concurrency=CONCURRENCY)
    assert_sent_once(lab)


def test_no_wait_exits_9_and_says_who_performs_the_job_and_since_when(lab: Lab) -> None:
    lab.gate(10)
    performer = lab.start("submit", "jobs/job.json", "--no-trial")
    lab.await_arrivals(10, run=performer)
    for command in (("resume", TASK, "--no-wait"), ("submit", "jobs/job.json", "--no-wait")):
        refused = lab.run(*command)
        assert refused.wait() == 9
        assert _names_the_performer(refused, performer), refused.err
        error = lab.run(*command, "--json").json["error"]
        assert (error["kind"], error["exit_code"]) == ("job_busy", 9)
        assert str(performer.process.pid) in error["message"]
        assert error["hint"] == f"batchrun status {TASK} -w"
    lab.gate(None)
    assert performer.wait() == 0
    assert_settled(lab, count=COUNT, concurrency=CONCURRENCY)
    assert_sent_once(lab)


def test_two_submits_of_one_new_job_are_one_job(lab: Lab) -> None:
    runs = [lab.start("submit", "jobs/job.json") for _ in range(2)]
    assert [run.wait() for run in runs] == [0, 0], [run.err for run in runs]
    assert_settled(lab, count=COUNT, concurrency=CONCURRENCY)
    assert_sent_once(lab)
    assert_outputs_whole(lab, ids(COUNT))


def test_a_submit_that_meets_a_registration_waits_for_it_and_follows(lab: Lab) -> None:
    lab.gate(1)
    first = start_and_stop_while_registering(lab, "submit", "jobs/job.json", "--no-trial")
    hasty = lab.run("submit", "jobs/job.json", "--no-wait")
    assert hasty.wait() == 9, hasty.err
    assert f"(pid {first.process.pid} on " in hasty.err
    second = lab.start("submit", "jobs/job.json")
    until_said(second, "registered by")
    first.kill(signal.SIGCONT)
    until_said(second, "performed by")
    assert sum(lab.standing().counts.values()) == COUNT
    for run in (second, first):
        run.kill(signal.SIGINT)
    until_said(first, "draining")
    lab.gate(None)
    assert (second.wait(), first.wait()) == (130, 130)
    assert_sent_once(lab)


def test_a_submit_finishes_the_registration_of_one_that_was_killed_meanwhile(lab: Lab) -> None:
    lab.gate(1)
    first = start_and_stop_while_registering(lab, "submit", "jobs/job.json", "--no-trial")
    second = lab.start("submit", "jobs/job.json")
    until_said(second, "registered by")
    first.kill()
    first.process.join()
    lab.await_arrivals(1, run=second)
    assert sum(lab.standing().counts.values()) == COUNT
    second.kill(signal.SIGINT)
    until_said(second, "draining")
    lab.gate(None)
    assert second.wait() == 130, second.err
    assert_sent_once(lab)


def test_a_submit_that_meets_a_trial_waits_for_it_and_goes_on_after_it_passed(make_lab: Callable[..., Lab]) -> None:
    lab = make_lab()
    lab.write_input(30)
    lab.write_spec()
    with gated(lab, admits=1):
        trial = lab.start("trial", "jobs/job.json")
        lab.await_arrivals(1, run=trial)
        submit = lab.start("submit", "jobs/job.json")
        until_said(submit, "following it")
    assert trial.wait() == 0, trial.err
    assert submit.wait() == 0, submit.err
    assert_settled(lab, count=30, concurrency=8)
    assert lab.judged().posts == 30
    assert_outputs_whole(lab, ids(30))


def test_a_submit_that_meets_a_trial_adopts_its_refusal(make_lab: Callable[..., Lab]) -> None:
    lab = make_lab(reset_rate=1.0)
    lab.write_input(30)
    lab.write_spec()
    with gated(lab, admits=1):
        trial = lab.start("trial", "jobs/job.json")
        lab.await_arrivals(1, run=trial)
        submit = lab.start("submit", "jobs/job.json")
        until_said(submit, "following it")
    assert trial.wait() == 5, trial.err
    assert submit.wait() == 5, submit.err
    assert lab.judged().posts == 10
    standing = lab.standing()
    assert standing.job.reason == "trial_gate"
    assert standing.counts[ItemState.PENDING] == 20


def test_a_submit_takes_over_from_a_trial_that_is_killed(make_lab: Callable[..., Lab]) -> None:
    lab = make_lab()
    lab.write_input(30)
    lab.write_spec(concurrency=4)
    with gated(lab, admits=5):
        trial = lab.start("trial", "jobs/job.json")
        lab.await_arrivals(5, run=trial)
        submit = lab.start("submit", "jobs/job.json")
        until_said(submit, "following it")
        trial.kill()
        assert trial.wait() == -9
    assert submit.wait() == 6, submit.err
    assert_settled(lab, count=30, doubts_at_most=5, concurrency=4)
    assert_sent_once(lab)


def test_two_jobs_of_one_ledger_run_side_by_side(lab: Lab) -> None:
    lab.write_spec("other.json", task_id="other", output_file="./outputs/other.jsonl")
    runs = [lab.start("submit", f"jobs/{name}.json") for name in ("job", "other")]
    assert [run.wait() for run in runs] == [0, 0], [run.err for run in runs]
    assert lab.judged().posts == lab.judged().billed == 2 * COUNT
    for name, task_id in (("out", TASK), ("other", "other")):
        assert lab.standing(task_id).counts[ItemState.COMPLETED] == COUNT
        assert_outputs_whole(lab, ids(COUNT), output=f"{name}.jsonl", errors=f"{name}.errors.jsonl")


def test_looking_on_from_other_terminals_disturbs_nothing(lab: Lab) -> None:
    lab.gate(20)
    run = lab.start("submit", "jobs/job.json", "--no-trial")
    until_standing(lab, lambda standing: standing.counts[ItemState.COMPLETED] == 20, "it is under way")
    looks = [
        lab.run(*command, "--json")
        for command in (("status", TASK), ("ls",), ("failures", TASK), ("show", TASK, "a00003"), ("db", "check"))
    ]
    assert [look.wait() for look in looks] == [0] * len(looks), [look.err + look.out for look in looks]
    seen = looks[0].json
    assert seen["state"] == "in_progress"
    assert seen["holder"]["pid"] == run.process.pid
    watch = lab.start("status", TASK, "-w", "--json")
    export = lab.run("export", TASK, "-o", "outputs/so-far.jsonl")
    assert export.wait() == 0
    assert len(lab.lines("so-far.jsonl")) == 20
    until(lambda: watch.out, "it is watched")
    lab.gate(None)
    assert run.wait() == 0
    assert watch.wait() == 0
    assert watch.json["state"] == "completed"
    until(lambda: not (lab.folder / "outputs" / "out.jsonl.partial").exists(), "the partial output is gone")
    assert_settled(lab, count=COUNT, concurrency=CONCURRENCY)


def test_answers_that_a_killed_process_had_received_are_kept(lab: Lab) -> None:
    run = lab.start("submit", "jobs/job.json", "--no-trial")
    lab.await_arrivals(40, run=run)
    received = kill_with_answers_in_hand(lab, run, CONCURRENCY)
    resumed = lab.run(*RESUME)
    assert resumed.wait() in (0, 6), resumed.err
    assert f"{received} answers it had received are kept" in resumed.err
    # What it had claimed ahead may stand in doubt, and nothing else.
    assert_settled(lab, count=COUNT, doubts_at_most=CONCURRENCY // 4, concurrency=CONCURRENCY)
    assert_sent_once(lab)
