"""What is wrong with the job, the endpoint or the key is said before it costs anything, and can be mended."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from batchrun.core.states import AttemptState, ItemState
from tests.acceptance.endpoint import ScriptedEndpoint
from tests.lab import Lab, Run, assert_accounts_agree, assert_outputs_whole, batch_line
from tests.process.steps import TASK, assert_sent_once, assert_settled, ids, kill_with_answers_in_hand, replace_endpoint

SUBMIT = ("submit", "jobs/job.json")
RESUME = ("resume", TASK)
SECRET = "sk-Wq83nVzL0pTr5KyB"
HANDFUL = 3 + 8  # refusals that stop a job, and what may be in flight meanwhile
Scripted = Callable[..., tuple[Lab, ScriptedEndpoint]]


def _assert_nothing(lab: Lab) -> None:
    """Nothing was sent and nothing was written."""
    assert lab.arrivals() == 0
    assert not (lab.folder / ".batchrun").exists()
    assert list((lab.folder / "outputs").iterdir()) == []


def _says(run: Run, *words: str) -> None:
    said = (run.out + run.err).lower()
    for one in words:
        assert one.lower() in said, f"nobody said {one!r}\n{run.err}{run.out}"


# -- before the first request -------------------------------------------------------------------------------------


def test_all_faults_of_spec_and_input_are_told_at_once(lab: Lab) -> None:
    good = batch_line("a1")
    lines = [good, "{oops\n", "\n", batch_line("a1"), '{"custom_id": "x", "body": {"messages": []}}\n', "[1]\n"]
    (lab.folder / "inputs" / "in.jsonl").write_text("".join(lines))
    lab.write_spec(concurency=4, retry_times=-1, max_tokens="many", model=None)
    spec = (lab.folder / "jobs" / "job.json").read_text().splitlines()
    line_of = {
        name: next(no for no, line in enumerate(spec, 1) if f'"{name}"' in line) for name in json.loads("\n".join(spec))
    }
    for command in (SUBMIT, ("validate", "jobs/job.json"), ("trial", "jobs/job.json")):
        run = lab.run(*command)
        assert run.wait() == 2, run.err
        for key in ("concurency", "retry_times", "max_tokens"):
            _says(run, f"line {line_of[key]}: ", key)
        _says(run, "did you mean 'concurrency'", "'model' is missing")
        _says(run, "input line 2:", "input line 4:", "input line 5:", "input line 6:")
    faults = lab.run(*SUBMIT, "--json").json["error"]
    assert faults["kind"] == "bad_input"
    assert faults["total"] == len(faults["faults"]) == 8
    _assert_nothing(lab)


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        (None, "does not exist"),
        ("", "is empty"),
        ("[]", "one JSON object"),
        ("{'task_id': 1}", "line 1"),
        ('{"task_id": "a",\n"task_id": "b"}', "stands twice"),
        (b"\xff\xfe{}", "UTF-8"),
    ],
)
def test_a_spec_that_is_none_is_named(spec: str | bytes | None, words: str, lab: Lab) -> None:
    lab.write_input(3)
    if spec is not None:
        (lab.folder / "jobs" / "job.json").write_bytes(spec if isinstance(spec, bytes) else spec.encode())
    run = lab.run(*SUBMIT)
    assert run.wait() == 2
    _says(run, words, "job.json")
    _assert_nothing(lab)


@pytest.mark.parametrize(
    ("text", "words"),
    [(None, "does not exist"), ("", "empty"), ("\n \n", "blank"), ("\x1f\x8b\x08abcdefg", "gzip")],
)
def test_an_input_without_items_is_named(text: str | None, words: str, lab: Lab) -> None:
    lab.write_spec()
    if text is not None:
        (lab.folder / "inputs" / "in.jsonl").write_bytes(text.encode("latin-1"))
    run = lab.run(*SUBMIT)
    assert run.wait() == 2
    _says(run, words, "in.jsonl")
    _assert_nothing(lab)


@pytest.mark.parametrize(
    ("env", "spec", "words"),
    [
        ({"OPENAI_BASE_URL": ""}, {}, ["no endpoint", "OPENAI_BASE_URL"]),
        ({"OPENAI_BASE_URL": "ftp://x/v1"}, {}, ["ftp"]),
        ({"OPENAI_API_KEY": f"{SECRET}\nBearer"}, {}, ["line break"]),
        ({"OPENAI_API_KEY": f"\u201c{SECRET}\u201d"}, {}, ["curly quote"]),
        ({}, {"base_url": "https://api.example.invalid/v1"}, ["no API key", "OPENAI_API_KEY"]),
        ({}, {"base_url": "https://api.example.invalid/v1", "api_key_env": "NOT_SET"}, ["NOT_SET", "export"]),
        ({"BATCHRUN_BROKER": "amqp://127.0.0.1:1"}, {}, ["must be Redis", "BATCHRUN_BROKER"]),
        ({"BATCHRUN_DEAD_AFTER_S": "soon"}, {}, ["BATCHRUN_DEAD_AFTER_S", "number"]),
    ],
)
def test_a_setting_that_cannot_be_is_named_before_anything_is_written(
    env: dict[str, str], spec: dict[str, Any], words: list[str], lab: Lab
) -> None:
    lab.write_input(3)
    lab.write_spec(**spec)
    run = lab.run(*SUBMIT, env=env)
    assert run.wait() == 2, run.err
    _says(run, *words)
    assert SECRET not in run.out + run.err
    _assert_nothing(lab)


def test_a_folder_for_the_output_must_be_there(lab: Lab) -> None:
    lab.write_input(3)
    lab.write_spec(output_file="./results/out.jsonl")
    run = lab.run(*SUBMIT)
    assert run.wait() == 2
    _says(run, "mkdir -p", "results")
    _assert_nothing(lab)


def test_faulty_lines_can_be_skipped_and_are_accounted_for(lab: Lab) -> None:
    lines = [batch_line("a1"), "{oops\n", batch_line("a1", "again"), batch_line("a4"), "[1]\n"]
    (lab.folder / "inputs" / "in.jsonl").write_text("".join(lines))
    lab.write_spec()
    run = lab.run(*SUBMIT, "--skip-invalid")
    assert run.wait() == 3, run.err
    standing = assert_accounts_agree(lab)
    assert standing.counts[ItemState.COMPLETED] == 2
    assert standing.counts[ItemState.REJECTED] == 3
    assert sorted(lab.judged().items) == ["a1", "a4"]
    assert_outputs_whole(lab, ["a1", "line-2", "line-3", "a4", "line-5"])
    assert {line["error"]["code"] for line in lab.lines("out.errors.jsonl")} == {"rejected"}
    assert lab.run(*SUBMIT, "--skip-invalid").wait() == 3
    assert lab.run("retry-failed", TASK, "--all").wait() in (0, 3)
    assert lab.arrivals() == 2


# -- at the first requests ----------------------------------------------------------------------------------------


def _stopped(
    lab: Lab,
    code: int,
    *words: str,
    env: dict[str, str] | None = None,
    count: int = 60,
    then: str = f"batchrun resume {TASK}",
) -> None:
    """Run a job that must stop after a handful of requests, with every item still to be done."""
    lab.write_input(count)
    lab.write_spec()
    run = lab.run(*SUBMIT, env=env)
    assert run.wait() == code, run.err + run.out
    _says(run, *words, then)
    assert lab.arrivals() <= HANDFUL
    standing = assert_accounts_agree(lab, is_over=False)
    assert standing.counts[ItemState.PENDING] == count
    assert standing.attempts.possible_requests == 0
    assert lab.run("status", TASK, "--exit-status").wait() == code


def _mended(lab: Lab, *, env: dict[str, str] | None = None, count: int = 60) -> None:
    run = lab.run(*RESUME, env=env)
    assert run.wait() == 0, run.err + run.out
    assert_settled(lab, count=count)
    assert lab.judged().billed == count
    assert_outputs_whole(lab, ids(count))


def test_a_wrong_key_stops_the_job_and_a_right_one_finishes_it(make_lab: Callable[..., Lab]) -> None:
    lab = make_lab(api_key=SECRET)
    _stopped(lab, 4, "key", "OPENAI_API_KEY", env={"OPENAI_API_KEY": "sk-not-this-one-at-all"})
    _mended(lab, env={"OPENAI_API_KEY": SECRET})
    assert not list(_files_with(lab, SECRET))
    assert not list(_files_with(lab, "sk-not-this-one-at-all"))


def _files_with(lab: Lab, secret: str) -> list[Path]:
    return [path for path in lab.folder.rglob("*") if path.is_file() and secret.encode() in path.read_bytes()]


def test_a_model_that_is_not_served_stops_the_job(make_lab: Callable[..., Lab]) -> None:
    lab = make_lab(models=("another",), strict_models=True)
    _stopped(lab, 5, "model", "mock", "has 'another'", then="batchrun submit jobs/job.json --accept-changes")
    replace_endpoint(lab, strict_models=False)
    _mended(lab)


def test_a_wrong_model_is_mended_in_the_spec(make_lab: Callable[..., Lab]) -> None:
    lab = make_lab(models=("another",), strict_models=True)
    _stopped(lab, 5, "model", "mock", "has 'another'", then="batchrun submit jobs/job.json --accept-changes")
    lab.write_spec(model="another")
    assert lab.run(*SUBMIT).wait() == 2
    run = lab.run(*SUBMIT, "--accept-changes")
    assert run.wait() == 0, run.err + run.out
    assert lab.judged().billed == 60
    assert_accounts_agree(lab)
    assert_outputs_whole(lab, ids(60))


def test_a_wrong_route_stops_the_job(lab: Lab) -> None:
    assert lab.base_url is not None
    wrong = lab.base_url.replace("/v1", "/nothing/here/v1")
    _stopped(lab, 5, "404", "OPENAI_BASE_URL", env={"OPENAI_BASE_URL": wrong})
    _mended(lab)


QUICK = {"BATCHRUN_NEVER_REACHED_S": "0.5"}


def test_a_wrong_host_stops_the_job_without_a_request(lab: Lab) -> None:
    _stopped(
        lab,
        5,
        "no-such-host.invalid",
        "name",
        env={**QUICK, "OPENAI_BASE_URL": "http://no-such-host.invalid/v1", "OPENAI_API_KEY": SECRET},
    )
    _mended(lab)
    assert_sent_once(lab)


def test_a_wrong_port_stops_the_job_without_a_request(lab: Lab) -> None:
    _stopped(lab, 5, "refused", "127.0.0.1:1", env={**QUICK, "OPENAI_BASE_URL": "http://127.0.0.1:1/v1"})
    assert lab.arrivals() == 0
    assert lab.standing().attempts.by_state == {AttemptState.NOT_SENT: lab.standing().attempts.total}
    _mended(lab)
    assert_sent_once(lab)


def test_an_address_that_answers_with_web_pages_stops_the_job(make_scripted: Scripted) -> None:
    page = {"text": "<!doctype html><html><title>Welcome</title></html>", "headers": {"Content-Type": "text/html"}}
    lab, endpoint = make_scripted(default=page)
    lab.write_input(60)
    lab.write_spec()
    run = lab.run(*SUBMIT)
    assert run.wait() == 5, run.err + run.out
    _says(run, "web page")
    assert len(endpoint.requests) <= 12 + 8
    standing = assert_accounts_agree(lab, is_over=False)
    assert standing.counts[ItemState.PENDING] >= 40


def test_one_item_s_own_refusals_stop_nobody_else(make_scripted: Scripted) -> None:
    gone = {"status": 404, "json": {"error": {"message": "The model `x` does not exist", "code": "model_not_found"}}}
    lab, _ = make_scripted(rules=[{"when": {"has": '"x"'}, "replies": [gone]}])
    lines = [batch_line(name, model="x") if name in ("a00005", "a00015") else batch_line(name) for name in ids(40)]
    (lab.folder / "inputs" / "in.jsonl").write_text("".join(lines))
    lab.write_spec(concurrency=4)
    run = lab.run(*SUBMIT)
    assert run.wait() == 3, run.err + run.out
    standing = assert_accounts_agree(lab)
    assert standing.counts[ItemState.COMPLETED] == 38
    assert {line["error"]["code"] for line in lab.lines("out.errors.jsonl")} == {"model_not_found"}


def test_another_job_without_its_key_does_not_stand_in_the_way(make_scripted: Scripted) -> None:
    lab, endpoint = make_scripted(default={"answer": {}, "delay_s": 0.3})
    lab.write_input(20)
    lab.write_spec("first.json", task_id="first", output_file="./outputs/first.jsonl", api_key_env="FIRST_KEY")
    first = lab.start("submit", "jobs/first.json", "--no-trial", env={"FIRST_KEY": SECRET})
    lab.await_arrivals(8, run=first)
    kill_with_answers_in_hand(lab, first, 8)
    # To judge what the first had received takes the first's key: it must be masked. Without it, that waits.
    endpoint.follow({})
    lab.write_spec()
    second = lab.run(*SUBMIT, env={"FIRST_KEY": "no\nkey"})
    assert second.wait() == 0, second.err
    assert lab.standing("first").counts[ItemState.RUNNING] == 8
    assert lab.run("resume", "first", env={"FIRST_KEY": SECRET}).wait() == 0
    assert lab.standing("first").counts[ItemState.COMPLETED] == 20
    assert lab.judged().billed == 40
