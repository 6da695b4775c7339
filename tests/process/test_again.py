"""The same job again: submitted twice, tried first, changed, resumed, retried, reconciled, cancelled, exported."""

import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from batchrun.core.states import ItemState, JobState
from tests.acceptance.endpoint import ScriptedEndpoint
from tests.lab import Lab, Run, assert_accounts_agree, assert_outputs_whole, batch_line, strict_json
from tests.process.steps import (
    TASK,
    assert_never_locked,
    assert_sent_once,
    gated,
    ids,
    interrupted,
    start_and_stop_while_registering,
)

SUBMIT = ("submit", "jobs/job.json")
RESUME = ("resume", TASK)
Scripted = Callable[..., tuple[Lab, ScriptedEndpoint]]


def _error(status: int, message: str) -> dict[str, Any]:
    return {"status": status, "json": {"error": {"message": message, "type": "x", "param": None, "code": None}}}


# Of twelve items one is wrong for good, one is out of luck four times, and one is never heard of again.
TROUBLED = {
    "rules": [
        {"when": {"item": "a00002"}, "replies": [_error(400, "this field is not known")]},
        {"when": {"item": "a00004"}, "replies": [_error(500, "out of luck")] * 4, "then": "default"},
        {"when": {"item": "a00006"}, "replies": [{"break_at": "request", "billed": True}], "then": "default"},
    ]
}


def _troubled(make_scripted: Scripted, **script: Any) -> tuple[Lab, ScriptedEndpoint]:
    """A job of twelve items that has ended with one doubt and two failures."""
    lab, endpoint = make_scripted(**(TROUBLED | script))
    lab.write_input(12)
    lab.write_spec(concurrency=4)
    run = lab.run(*SUBMIT)
    assert run.wait() == 6, run.err + run.out
    assert _counts(lab) == {"completed": 9, "failed": 2, "in_doubt": 1}
    return lab, endpoint


def _done(lab: Lab, count: int = 12, **spec: Any) -> None:
    lab.write_input(count)
    lab.write_spec(**spec)
    run = lab.run(*SUBMIT)
    assert run.wait() == 0, run.err + run.out
    assert lab.arrivals() == count


def _counts(lab: Lab) -> dict[str, int]:
    """The job's counts that are not zero; every item counted once."""
    standing = lab.standing()
    assert sum(standing.counts.values()) == standing.job.total
    return {state.value: count for state, count in standing.counts.items() if count}


def _outputs(lab: Lab) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted((lab.folder / "outputs").iterdir())}


def _object(run: Run, kind: str, code: int = 0) -> dict[str, Any]:
    """The one object of a command that was run with --json."""
    assert run.wait() == code, run.err + run.out
    lines = run.out.splitlines()
    assert len(lines) == 1, run.out
    value = strict_json(lines[0].encode())
    assert (value["schema"], value["kind"]) == ("batchrun/1", kind)
    return value


def _refusal(run: Run, kind: str, code: int) -> dict[str, Any]:
    """The error of a command that was run with --json."""
    assert run.wait() == code, run.err + run.out
    lines = run.out.splitlines()
    assert len(lines) == 1, run.out
    value = strict_json(lines[0].encode())
    error: dict[str, Any] = value["error"]
    assert value["schema"] == "batchrun/1"
    assert (error["kind"], error["exit_code"]) == (kind, code)
    assert error["message"]
    assert "hint" in error
    return error


# -- submit, trial, resume ----------------------------------------------------------------------------------------


def test_a_job_submitted_again_goes_on_where_it_stands(lab: Lab) -> None:
    _done(lab)
    before = _outputs(lab)
    for command in (SUBMIT, RESUME, SUBMIT, ("retry-failed", TASK), ("reconcile", TASK), ("trial", "jobs/job.json")):
        again = lab.run(*command)
        assert again.wait() == 0, again.err
    assert lab.arrivals() == 12
    assert _outputs(lab) == before


def test_an_output_that_was_deleted_is_written_again_without_a_request(lab: Lab) -> None:
    _done(lab)
    before = _outputs(lab)
    (lab.folder / "outputs" / "out.jsonl").unlink()
    assert lab.run(*RESUME).wait() == 0
    assert _outputs(lab) == before
    assert lab.arrivals() == 12


def test_a_trial_of_everything_ends_the_job(lab: Lab) -> None:
    lab.write_input(6)
    lab.write_spec()
    run = lab.run("trial", "jobs/job.json")
    assert run.wait() == 0, run.err
    assert lab.standing().job.state is JobState.COMPLETED
    assert f"batchrun resume {TASK}" not in run.out
    assert_sent_once(lab)
    assert_outputs_whole(lab, ids(6))


def test_a_second_trial_changes_nothing_and_a_changed_one_names_the_command_to_type(lab: Lab) -> None:
    lab.write_input(20)
    lab.write_spec()
    assert lab.run("trial", "jobs/job.json").wait() == 0
    for command in (("trial", "jobs/job.json"), ("trial", "jobs/job.json", "-n", "12")):
        assert lab.run(*command).wait() == 0
        assert (lab.standing().job.state, lab.standing().job.reason) == (JobState.PAUSED, "trial_only")
    assert lab.arrivals() == 10
    lab.write_spec(max_tokens=32)
    refused = lab.run("trial", "jobs/job.json")
    assert refused.wait() == 2
    assert "batchrun submit jobs/job.json --accept-changes" in refused.err
    assert lab.run("submit", "jobs/job.json", "--accept-changes", "-y").wait() == 0


@pytest.mark.parametrize(("count", "size"), [(40, 10), (12, 10), (7, 10), (12, 12), (12, 1)])
def test_a_trial_and_the_full_run_are_one_request_an_item(count: int, size: int, lab: Lab) -> None:
    lab.write_input(count)
    lab.write_spec()
    trial = lab.run("trial", "jobs/job.json", "-n", str(size))
    assert trial.wait() == 0, trial.err + trial.out
    assert lab.arrivals() == min(count, size)
    assert lab.run(*SUBMIT).wait() == 0
    assert lab.arrivals() == count
    assert_accounts_agree(lab)
    assert_sent_once(lab)
    assert_outputs_whole(lab, ids(count))


def test_a_trial_says_what_it_found_and_what_the_rest_would_take(lab: Lab) -> None:
    lab.write_input(40)
    lab.write_spec(price={"input_per_1m_usd": 1.0, "output_per_1m_usd": 2.0})
    value = _object(lab.run("trial", "jobs/job.json", "-n", "8", "--sample", "head", "--json"), "job_status")
    report = value["trial_report"]
    assert (report["size"], report["left"], report["counts"]["completed"]) == (8, 32, 8)
    assert float(report["projected_usd"]) > 0
    assert (value["state"], value["reason"], value["trial"]) == ("paused", "trial_only", "passed")
    assert sorted(lab.judged().items) == ids(8)
    assert lab.run(*RESUME).wait() == 0
    assert lab.arrivals() == 40


def test_a_trial_that_does_not_pass_stops_the_job_until_somebody_wants_it_all_the_same(
    make_scripted: Scripted,
) -> None:
    lab, endpoint = make_scripted(default=_error(400, "this field is not known"))
    lab.write_input(30)
    lab.write_spec(concurrency=4)
    run = lab.run(*SUBMIT)
    assert run.wait() == 5
    assert "trial" in run.out
    assert _counts(lab) == {"failed": 10, "pending": 20}
    assert lab.run(*SUBMIT).wait() == 5
    assert len(endpoint.requests) == 10
    endpoint.follow({})
    assert lab.run(*RESUME).wait() == 3
    assert _counts(lab) == {"failed": 10, "completed": 20}
    assert len(endpoint.requests) == 30


def test_retrying_what_failed_in_a_trial_judges_the_trial_again_before_the_full_run(make_scripted: Scripted) -> None:
    lab, endpoint = make_scripted(default=_error(400, "this field is not known"))
    lab.write_input(30)
    lab.write_spec(concurrency=4)
    assert lab.run(*SUBMIT).wait() == 5
    again = lab.run("retry-failed", TASK, "--all")
    assert again.wait() == 5, again.err
    assert (len(endpoint.requests), _counts(lab)) == (20, {"failed": 10, "pending": 20})
    endpoint.follow({})
    again = lab.run("retry-failed", TASK, "--all")
    assert again.wait() == 0, again.err
    assert (len(endpoint.requests), _counts(lab)) == (50, {"completed": 30})


def test_after_submit_the_input_file_is_not_needed(make_lab: Callable[..., Lab]) -> None:
    lab = make_lab(latency_ms=50)
    lab.write_input(40)
    lab.write_spec(concurrency=4)
    interrupted(lab, at=12)
    (lab.folder / "inputs" / "in.jsonl").unlink()
    (lab.folder / "jobs" / "job.json").unlink()
    assert lab.run(*RESUME).wait() in (0, 6)
    assert_accounts_agree(lab)
    assert_outputs_whole(lab, ids(40))
    assert_sent_once(lab)


def test_an_input_that_changes_while_it_is_registered_is_refused_and_registered_anew(lab: Lab) -> None:
    lab.write_input(25_000)
    lab.write_spec()
    run = start_and_stop_while_registering(lab, *SUBMIT, "--no-trial")
    lab.write_input(30)
    run.kill(signal.SIGCONT)
    assert run.wait() == 2, run.err
    assert "changed while it was read" in run.err
    assert lab.standing().job.state is JobState.FAILED
    assert lab.run("status", TASK, "--exit-status").wait() == 2
    assert lab.run(*RESUME).wait() == 2
    assert lab.arrivals() == 0
    again = lab.run(*SUBMIT)
    assert again.wait() == 0, again.err
    assert _counts(lab) == {"completed": 30}
    assert_sent_once(lab)
    assert_outputs_whole(lab, ids(30))


# -- a changed input, changed parameters --------------------------------------------------------------------------


def _edit(lab: Lab, names: list[str], **texts: str) -> None:
    path = lab.folder / "inputs" / "in.jsonl"
    path.write_text("".join(batch_line(name, texts.get(name, "hello")) for name in names))


@pytest.mark.parametrize("command", [SUBMIT, RESUME])
def test_a_changed_input_is_explained_refused_and_on_request_taken_over(command: tuple[str, ...], lab: Lab) -> None:
    _done(lab)
    old = ids(12)
    _edit(lab, ["zero", *old[:5], *old[6:]], a00003="good day")  # one on top, one changed, one gone
    before = _outputs(lab)
    refused = lab.run(*command)
    assert refused.wait() == 2
    assert "10 items unchanged, 1 changed, 1 new, 1 removed" in refused.err
    assert "--accept-changes" in refused.err
    error = _refusal(lab.run(*command, "--json"), "job_changed", 2)
    assert "--accept-changes" in error["hint"]
    assert (lab.arrivals(), _outputs(lab)) == (12, before)
    taken = lab.run(*command, "--accept-changes")
    assert taken.wait() == 0, taken.err
    assert "10 items unchanged and kept" in taken.err
    judged = lab.judged()
    assert judged.posts == 14
    assert {key for key, item in judged.items.items() if item.arrival_count == 2} == {"a00003"}
    assert judged.items["zero"].arrival_count == 1
    assert_accounts_agree(lab)
    assert_outputs_whole(lab, ["zero", *old[:5], *old[6:]])
    assert lab.run(*command).wait() == 0
    assert lab.arrivals() == 14


def test_lines_in_another_order_or_written_otherwise_are_no_change(lab: Lab) -> None:
    _done(lab)
    path = lab.folder / "inputs" / "in.jsonl"
    path.write_text("\n".join(reversed(path.read_text().replace('": ', '":  ').splitlines())))
    again = lab.run(*SUBMIT)
    assert again.wait() == 0, again.err
    assert lab.arrivals() == 12


def test_a_changed_line_in_doubt_must_be_settled_first(make_scripted: Scripted) -> None:
    lab, endpoint = _troubled(make_scripted)
    _edit(lab, ids(12), a00006="good day")
    refused = lab.run(*SUBMIT, "--accept-changes")
    assert refused.wait() == 2
    assert "reconcile" in refused.err
    assert _counts(lab) == {"completed": 9, "failed": 2, "in_doubt": 1}
    assert lab.run("reconcile", TASK, "--fail").wait() == 3
    count = len(endpoint.requests)
    assert lab.run(*SUBMIT, "--accept-changes").wait() == 3
    assert _counts(lab) == {"completed": 10, "failed": 2}
    assert len(endpoint.requests) == count + 1


@pytest.mark.parametrize("changes", [{"model": "another"}, {"max_tokens": 32}, {"params": {"temperature": 0.5}}])
def test_changed_request_parameters_are_another_job(changes: dict[str, Any], lab: Lab) -> None:
    _done(lab)
    lab.write_spec(**changes)
    refused = lab.run(*SUBMIT)
    assert refused.wait() == 2
    assert "12 changed" in refused.err
    assert lab.arrivals() == 12
    assert lab.run(*SUBMIT, "--accept-changes").wait() == 0
    assert lab.arrivals() == 24
    assert_accounts_agree(lab)


def test_what_is_no_part_of_a_job_s_identity_may_change_and_is_taken_over(make_lab: Callable[..., Lab]) -> None:
    lab = make_lab(latency_ms=150)
    lab.write_input(40)
    lab.write_spec(concurrency=2)
    interrupted(lab, at=8)
    lab.write_spec(
        concurrency=6,
        retry_times=0,
        on_unknown="retry",
        timeout_s=30.0,
        price={"input_per_1m_usd": 1, "output_per_1m_usd": 2},
        output_file="./outputs/new.jsonl",
        error_file="./outputs/new-errors.jsonl",
    )
    run = lab.run(*SUBMIT)
    assert run.wait() in (0, 3), run.err
    job = lab.standing().job
    assert (job.concurrency, job.retry_times, job.on_unknown) == (6, 0, "retry")
    assert job.spec["timeout_s"] == 30.0
    assert lab.judged().max_in_flight == 6
    assert_accounts_agree(lab)
    assert_outputs_whole(lab, ids(40), output="new.jsonl", errors="new-errors.jsonl")


def test_flags_of_resume_are_kept_with_the_job(make_lab: Callable[..., Lab]) -> None:
    lab = make_lab(latency_ms=100)
    lab.write_input(30)
    lab.write_spec(concurrency=2)
    interrupted(lab, at=6)
    run = lab.run(*RESUME, "-c", "5", "--on-unknown", "retry")
    assert run.wait() == 0, run.err
    job = lab.standing().job
    assert (job.concurrency, job.on_unknown) == (5, "retry")
    assert _counts(lab) == {"completed": 30}
    assert lab.judged().max_in_flight == 5


# -- retry-failed -------------------------------------------------------------------------------------------------


def test_retry_failed_leaves_permanent_failures_and_doubts_alone_and_says_so(make_scripted: Scripted) -> None:
    lab, endpoint = _troubled(make_scripted)
    before, count = _outputs(lab), len(endpoint.requests)
    dry = lab.run("retry-failed", TASK, "--dry-run")
    assert dry.wait() == 0
    for words in ("1 failed item", "server_error 1", "1 permanent (--all)", f"1 in doubt (batchrun reconcile {TASK})"):
        assert words in dry.out + dry.err, (words, dry.out, dry.err)
    value = _object(lab.run("retry-failed", TASK, "--dry-run", "--json"), "retry")
    assert (value["items"], value["permanent"], value["in_doubt"], value["applied"]) == (1, 1, 1, False)
    assert (len(endpoint.requests), _outputs(lab)) == (count, before)
    run = lab.run("retry-failed", TASK)
    assert run.wait() == 6, run.err
    assert _counts(lab) == {"completed": 10, "failed": 1, "in_doubt": 1}
    assert len(endpoint.requests) == count + 1
    assert_accounts_agree(lab)
    assert_outputs_whole(lab, ids(12))


@pytest.mark.parametrize(
    ("flags", "sent"),
    [
        (["--all"], ["a00002", "a00004"]),
        (["--cause", "bad_request"], ["a00002"]),
        (["--item", "a00002", "--item", "a00004"], ["a00002", "a00004"]),
        (["--cause", "timeout"], []),
    ],
)
def test_retry_failed_sends_what_was_named(flags: list[str], sent: list[str], make_scripted: Scripted) -> None:
    lab, endpoint = _troubled(make_scripted)
    count = len(endpoint.requests)
    run = lab.run("retry-failed", TASK, *flags)
    assert run.wait() == (6 if sent else 0), run.err
    assert sorted(request.item for request in endpoint.requests[count:]) == sent
    assert_accounts_agree(lab)


def test_retry_failed_can_leave_the_sending_to_resume(make_scripted: Scripted) -> None:
    lab, endpoint = _troubled(make_scripted)
    count = len(endpoint.requests)
    put_back = lab.run("retry-failed", TASK, "--no-run", "--json")
    assert _object(put_back, "retry")["applied"] is True
    assert _counts(lab) == {"completed": 9, "failed": 1, "in_doubt": 1, "pending": 1}
    assert len(endpoint.requests) == count
    assert lab.run(*RESUME).wait() == 6
    assert len(endpoint.requests) == count + 1


# -- reconcile ----------------------------------------------------------------------------------------------------


def test_reconcile_lists_each_doubt_with_its_attempt(make_scripted: Scripted) -> None:
    lab, endpoint = _troubled(make_scripted)
    listed = lab.run("reconcile", TASK)
    assert listed.wait() == 0
    doubted = next(request for request in endpoint.requests if request.item == "a00006")
    attempt_id = doubted.headers["x-client-request-id"]
    assert "a00006" in listed.out + listed.err
    assert attempt_id in listed.out + listed.err
    value = _object(lab.run("reconcile", TASK, "--json"), "doubts")
    (doubt,) = value["in_doubt"]
    assert (doubt["custom_id"], doubt["attempt_id"], doubt["cause"]) == ("a00006", attempt_id, "connection_lost")
    assert doubt["sent_at"].endswith("Z")
    assert value["applied"] is False


def test_reconcile_retry_sends_the_doubts_again_and_nothing_else(make_scripted: Scripted) -> None:
    lab, endpoint = _troubled(make_scripted)
    count = len(endpoint.requests)
    dry = lab.run("reconcile", TASK, "--retry", "--dry-run")
    assert dry.wait() == 0
    assert len(endpoint.requests) == count
    put_back = lab.run("reconcile", TASK, "--retry", "--no-run")
    assert put_back.wait() == 0
    assert _counts(lab) == {"completed": 9, "failed": 2, "pending": 1}
    run = lab.run(*RESUME)
    assert run.wait() == 3, run.err
    assert [request.item for request in endpoint.requests[count:]] == ["a00006"]
    assert _counts(lab) == {"completed": 10, "failed": 2}
    standing = assert_accounts_agree(lab)
    assert standing.attempts.possible_requests == 1  # what may have been billed stays on the account
    assert_outputs_whole(lab, ids(12))


def test_reconcile_fail_gives_the_doubts_up_and_writes_the_outputs(make_scripted: Scripted) -> None:
    lab, endpoint = _troubled(make_scripted)
    count = len(endpoint.requests)
    run = lab.run("reconcile", TASK, "--fail", "--item", "a00006", "-y")
    assert run.wait() == 3, run.err
    assert len(endpoint.requests) == count
    assert _counts(lab) == {"completed": 9, "failed": 3}
    errors = {line["custom_id"]: line["error"]["code"] for line in lab.lines("out.errors.jsonl")}
    assert errors == {"a00002": "bad_request", "a00004": "server_error", "a00006": "given_up"}
    assert lab.run("reconcile", TASK).wait() == 0
    assert lab.run("retry-failed", TASK).wait() == 3  # the unlucky one; who was given up is left alone
    assert _counts(lab) == {"completed": 10, "failed": 2}
    assert_accounts_agree(lab)


def test_reconcile_refuses_what_is_not_in_doubt(make_scripted: Scripted) -> None:
    lab, _ = _troubled(make_scripted)
    _refusal(lab.run("reconcile", TASK, "--item", "a00001", "--retry", "--json"), "usage", 2)
    _refusal(lab.run("reconcile", TASK, "--retry", "--fail", "--json"), "usage", 2)
    assert _counts(lab) == {"completed": 9, "failed": 2, "in_doubt": 1}


# -- cancel -------------------------------------------------------------------------------------------------------


def test_a_running_job_is_cancelled_from_another_terminal_within_two_seconds(make_lab: Callable[..., Lab]) -> None:
    lab = make_lab(latency_ms=300)
    lab.write_input(100)
    lab.write_spec(concurrency=4)
    with gated(lab, admits=8):
        run = lab.start(*SUBMIT, "--no-trial")
        lab.await_arrivals(8, run=run)
        cancel = lab.run("cancel", TASK)
    assert cancel.wait() == 0, cancel.err
    assert run.wait() == 3, run.err
    sent = lab.arrivals()
    assert sent <= 8 + 4 + 4, "the eight, those that stood at the gate, and at most as many that were claimed by then"
    standing = assert_accounts_agree(lab)
    assert standing.job.state is JobState.CANCELLED
    assert _counts(lab) == {"completed": sent, "cancelled": 100 - sent}
    assert_outputs_whole(lab, ids(100))
    again = _object(lab.run("cancel", TASK, "--json"), "cancel")
    assert (again["items"], again["applied"]) == (0, False)
    assert lab.run(*RESUME).wait() == 3
    assert lab.run("status", TASK, "--exit-status").wait() == 3
    assert lab.arrivals() == sent
    reopened = lab.run(*RESUME, "--cancelled", "-c", "40")
    assert reopened.wait() == 0, reopened.err
    assert _counts(lab) == {"completed": 100}
    assert_sent_once(lab)
    assert_outputs_whole(lab, ids(100))


def test_a_paused_job_is_cancelled_at_once(make_scripted: Scripted) -> None:
    lab, endpoint = make_scripted(default=_error(401, "who are you"))
    lab.write_input(30)
    lab.write_spec(concurrency=4)
    assert lab.run(*SUBMIT).wait() == 4
    dry = _object(lab.run("cancel", TASK, "--dry-run", "--json"), "cancel")
    assert (dry["items"], dry["dry_run"]) == (30, True)
    assert _counts(lab) == {"pending": 30}
    assert lab.run("cancel", TASK).wait() == 0
    assert lab.standing().job.state is JobState.CANCELLED
    assert _counts(lab) == {"cancelled": 30}
    assert_outputs_whole(lab, ids(30))
    endpoint.follow({})
    assert lab.run(*RESUME, "--cancelled").wait() == 0
    assert _counts(lab) == {"completed": 30}


def test_a_job_whose_process_was_killed_can_be_cancelled(make_lab: Callable[..., Lab]) -> None:
    lab = make_lab(latency_ms=300)
    lab.write_input(40)
    lab.write_spec(concurrency=4)
    interrupted(lab, at=8)
    assert lab.run("cancel", TASK).wait() == 0
    standing = assert_accounts_agree(lab)
    assert standing.job.state is JobState.CANCELLED
    assert standing.counts[ItemState.IN_DOUBT] <= 5
    assert standing.counts[ItemState.CANCELLED] >= 30
    assert_outputs_whole(lab, ids(40))


def test_a_finished_job_cannot_be_cancelled(lab: Lab) -> None:
    _done(lab)
    _refusal(lab.run("cancel", TASK, "--json"), "illegal_move", 2)
    assert _counts(lab) == {"completed": 12}


# -- looking ------------------------------------------------------------------------------------------------------


def test_every_way_of_looking_at_a_job_is_one_object_of_strict_json(make_scripted: Scripted) -> None:
    lab, _ = _troubled(make_scripted)
    status = _object(lab.run("status", "--json"), "job_status")  # the latest job
    assert {"job_id", "state", "reason", "counts", "attempts", "usage", "billing", "timing"} <= status.keys()
    assert status["counts"] | {"total": 12, "completed": 9, "failed": 2, "in_doubt": 1} == status["counts"]
    assert status["attempts"] == {
        "total": 15,
        "open": 0,
        "sent": 15,
        "not_sent": 0,
        "refused": 5,
        "answered": 9,
        "unusable": 0,
        "unknown": 1,
    }
    assert status["billing"]["certain_requests"] == 9
    assert status["billing"]["possible_requests"] == 1
    (job,) = _object(lab.run("ls", "--json"), "job_list")["jobs"]
    assert (job["job_id"], job["state"], job["counts"]["in_doubt"]) == (TASK, "completed", 1)
    groups = _object(lab.run("failures", TASK, "--json"), "failures")["causes"]
    assert {group["cause"]: group["count"] for group in groups} == {
        "bad_request": 1,
        "server_error": 1,
        "connection_lost": 1,
    }
    assert all(group["hint"] for group in groups)
    item = _object(lab.run("show", TASK, "a00004", "--json"), "item")
    assert [attempt["state"] for attempt in item["attempts"]] == ["refused"] * 4
    assert len({attempt["attempt_id"] for attempt in item["attempts"]}) == 4
    listed = lab.run("failures", TASK, "--items", "--json")
    assert [strict_json(line.encode())["custom_id"] for line in listed.out.splitlines()] == [
        "a00002",
        "a00004",
        "a00006",
    ]
    assert _object(lab.run("validate", "jobs/job.json", "--json"), "validation")["items"] == 12
    assert _object(lab.run("db", "check", "--json"), "ledger")
    assert _object(lab.run("db", "upgrade", "--json"), "upgrade")["applied"] is False
    exported = _object(lab.run("export", TASK, "-o", "outputs/x.jsonl", "--json"), "export")
    assert (exported["output_lines"], exported["error_lines"]) == (9, 3)
    assert _object(lab.run(*SUBMIT, "--dry-run", "--json"), "submit")["items"] == 12
    assert _object(lab.run(*RESUME, "--json"), "job_status", 6)["exit_code"] == 6
    assert _object(lab.run("retry-failed", TASK, "--json"), "job_status", 6)["counts"]["completed"] == 10
    assert_never_locked(lab)


def test_every_failure_of_a_command_is_one_object_of_strict_json(make_scripted: Scripted) -> None:
    lab, _ = make_scripted()
    lab.write_input(3)
    lab.write_spec(wrong=1)
    for command in (("status", "no-such"), ("resume", "no-such"), ("show", "no-such", "x"), ("failures", "no-such")):
        _refusal(lab.run(*command, "--json"), "job_not_found", 2)
    for command in (
        ("retry-failed", "no-such"),
        ("reconcile", "no-such"),
        ("cancel", "no-such"),
        ("export", "no-such"),
    ):
        _refusal(lab.run(*command, "--json"), "job_not_found", 2)
    faults = _refusal(lab.run(*SUBMIT, "--json"), "bad_input", 2)["faults"]
    assert "wrong" in faults[0]["what"]
    _refusal(lab.run("submit", "jobs/none.json", "--json"), "usage", 2)
    _refusal(lab.run("submit", "--json"), "usage", 2)
    _refusal(lab.run("sumbit", "jobs/job.json", "--json"), "usage", 2)
    _refusal(lab.run("status", "--no-such-flag", "--json"), "usage", 2)
    _refusal(lab.run("status", "--db", "oracle://x/y", "--json"), "usage", 2)


def test_looking_for_a_job_where_there_is_no_ledger_makes_none(make_scripted: Scripted) -> None:
    lab, _ = make_scripted()
    for command in (("status", TASK), ("ls",), ("resume", TASK), ("cancel", TASK), ("db", "check")):
        lab.run(*command)
    assert not (lab.folder / ".batchrun").exists()


def test_status_can_end_with_the_job_s_own_code(make_lab: Callable[..., Lab], make_scripted: Scripted) -> None:
    running = make_lab("running", latency_ms=200)
    running.write_input(40)
    running.write_spec(concurrency=4)
    with gated(running, admits=4):
        run = running.start(*SUBMIT, "--no-trial")
        running.await_arrivals(4, run=run)
        assert running.run("status", TASK, "--exit-status").wait() == 8
        assert running.run("status", TASK).wait() == 0
        run.kill()
        assert run.wait() == -9
    assert running.run("status", TASK, "--exit-status").wait() == 8
    troubled, endpoint = _troubled(make_scripted)
    assert troubled.run("status", TASK, "--exit-status").wait() == 6
    assert troubled.run("reconcile", TASK, "--fail").wait() == 3
    assert troubled.run("status", TASK, "--exit-status").wait() == 3
    assert troubled.run("retry-failed", TASK, "--all").wait() == 3
    endpoint.follow({})
    assert troubled.run("retry-failed", TASK, "--all").wait() == 0
    assert troubled.run("status", TASK, "--exit-status").wait() == 0
    troubled.write_spec("other.json", task_id="other", output_file="./outputs/other.jsonl")
    endpoint.follow({"default": _error(401, "who are you")})
    assert troubled.run("submit", "jobs/other.json").wait() == 4
    assert troubled.run("status", "other", "--exit-status").wait() == 4
    assert troubled.run("status", "--exit-status").wait() == 4


def test_an_export_changes_nothing_but_the_file_it_writes(make_scripted: Scripted) -> None:
    lab, endpoint = _troubled(make_scripted)
    before, count = _outputs(lab), len(endpoint.requests)
    assert lab.run("export", TASK).wait() == 0
    assert _outputs(lab) == before
    assert lab.run("export", TASK, "-o", "outputs/copy.jsonl").wait() == 0
    after = _outputs(lab)
    assert after.pop("copy.jsonl") == before["out.jsonl"]
    assert after.pop("copy.errors.jsonl") == before["out.errors.jsonl"]
    assert (after, len(endpoint.requests)) == (before, count)


def test_an_output_that_is_another_job_s_is_refused(lab: Lab) -> None:
    _done(lab)
    before = _outputs(lab)
    lab.write_spec("other.json", task_id="other")
    refused = lab.run("submit", "jobs/other.json")
    assert refused.wait() == 2
    assert TASK in refused.err
    assert (lab.arrivals(), _outputs(lab)) == (12, before)


def test_a_ledger_of_its_own_is_where_the_flag_says(lab: Lab, tmp_path: Path) -> None:
    lab.write_input(12)
    lab.write_spec()
    place = tmp_path / "elsewhere" / "my.db"
    assert lab.run(*SUBMIT, "--db", str(place)).wait() == 0
    assert place.exists()
    assert not (lab.folder / ".batchrun").exists()
    assert lab.run("status", TASK, "--db", f"sqlite:///{place}", "--exit-status").wait() == 0
    assert lab.run("status", TASK).wait() == 2
