"""What a person reads about a trial, a stop, a failure and an item: whole commands against endpoints that misbehave."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from batchrun.cli.say import fold
from tests.acceptance.endpoint import ScriptedEndpoint
from tests.cli.terminal import take_keys, terminal
from tests.lab import Lab, Run, batch_line

pytestmark = pytest.mark.process

Scripted = Callable[..., tuple[Lab, ScriptedEndpoint]]
TASK = "batch-001"
SUBMIT = ("submit", "jobs/job.json")


def refusal(status: int, message: str, code: str | None = None) -> dict[str, Any]:
    return {"status": status, "json": {"error": {"message": message, "type": "x", "param": None, "code": code}}}


def answer(content: str | None, *, finish: str = "stop", tokens: int = 5, **message: Any) -> dict[str, Any]:
    usage = {"prompt_tokens": 10, "completion_tokens": tokens, "total_tokens": 10 + tokens}
    return {"answer": {"content": content, "finish_reason": finish, "usage": usage, "message": message}}


def ended(run: Run, code: int) -> Run:
    assert run.wait() == code, run.err + run.out
    return run


# -- the trial --------------------------------------------------------------------------------------------------------

# Of ten answers three are cut, one only thinks, one is empty, one is a refusal, and four are whole JSON.
MIXED = {
    "rules": [
        {"when": {"item": ["a00000", "a00001", "a00002"]}, "replies": [answer('{"cut": ', finish="length", tokens=64)]},
        {"when": {"item": "a00003"}, "replies": [answer("", finish="length", tokens=64, reasoning_content="well,")]},
        {"when": {"item": "a00004"}, "replies": [answer("")]},
        {"when": {"item": "a00005"}, "replies": [answer(None, refusal="I cannot")]},
    ],
    "default": answer('{"ok": true}', tokens=7),
}
JSON_ASKED = {"params": {"response_format": {"type": "json_object"}}}
PRICE = {"price": {"input_per_1m_usd": 1.0, "output_per_1m_usd": 2.0}}


def test_a_trial_shows_what_one_decides_by_and_its_json_the_same_figures(make_scripted: Scripted) -> None:
    lab, _ = make_scripted(**MIXED)
    lab.write_input(40)
    lab.write_spec(**JSON_ASKED, **PRICE)
    run = ended(lab.run("trial", "jobs/job.json", "--sample", "head", "--json"), 0)
    for words in (
        "trial of batch-001: 10 of 40 items -> http://127.0.0.1",
        "completed 10   failed 0   in doubt 0",
        "10 tokens in, 29 out (5 to 64)",
        "finish    stop 6, length 4",
        "10: 4 cut at the token limit, 2 empty, 4 identical, 1 refused, 3 of 10 not the JSON they were asked for",
        "  sample    a00000  ",
        '-> {"cut":  (finish_reason length)',
        "cost      $0.000688 for the trial",
        "full run: 30 items left",
        "change    1 of 10 answers holds only reasoning, and no text: raise max_tokens (64 now)",
        "change    3 of 10 answers were cut at max_tokens 64: raise it, say to 128 (the longest whole",
        "change    1 of 10 answers is empty",
        "change    1 of 10 answers is a refusal",
        "change    3 of 10 answers are not the JSON they were asked for: they were cut: raise max_tokens",
        "the trial's results are kept and not sent again",
    ):
        assert words in run.err, run.err
    report = run.json["trial_report"]
    answers = report["answers"]
    assert (report["size"], report["left"], report["cost_usd"]) == (10, 30, "0.000688")
    assert answers["finish_reasons"] == {"length": 4, "stop": 6}
    figures = ("total", "cut", "empty", "reasoning_only", "identical", "refused", "json_asked", "not_json")
    assert [answers[name] for name in figures] == [10, 4, 2, 1, 4, 1, 10, 3]
    assert report["prompt_tokens"] == {"mean": 10, "min": 10, "max": 10}
    assert report["projection"]["prompt_tokens"] == {"expected": 300, "low": 300, "high": 300}
    assert [change["about"] for change in report["changes"]] == [
        "reasoning_only",
        "cut",
        "empty",
        "refused",
        "not_json",
    ]
    assert [sample["custom_id"] for sample in answers["samples"]] == ["a00000", "a00001", "a00002"]
    assert all("[[a0000" in sample["prompt"] for sample in answers["samples"])


def test_identical_answers_to_identical_requests_point_to_the_template(make_scripted: Scripted) -> None:
    lab, _ = make_scripted(default=answer("I need the text that you speak of, as none came with the prompt."))
    lines = [json.loads(batch_line("same", "Summarise: {{ text }}")) | {"custom_id": f"a{n:05d}"} for n in range(20)]
    (lab.folder / "inputs" / "in.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    lab.write_spec()
    run = ended(lab.run("trial", "jobs/job.json"), 0)
    assert (
        "10 of 10 answers are identical: 10 of the requests are identical too: is the template filling in?" in run.err
    )


def test_a_trial_names_what_slows_it_and_what_fails(make_scripted: Scripted) -> None:
    throttled = [{**refusal(429, "slow down"), "headers": {"Retry-After": "1"}}]
    lab, _ = make_scripted(
        rules=[
            {"when": {"item": "a00000"}, "replies": throttled, "then": "default"},
            {"when": {"item": "a00001"}, "replies": [refusal(400, "maximum context length is 50 tokens")]},
            {"when": {"item": "a00002"}, "replies": [{**answer("late"), "delay_s": 3.6}]},
            {"when": {"item": "a00003"}, "replies": [{"hang": True}]},
        ]
    )
    lab.write_input(20)
    lab.write_spec(timeout_s=6.0)
    run = ended(lab.run("trial", "jobs/job.json", "--sample", "head"), 0)
    for words in (
        "1 of 10 failed (context length): lower max_tokens (64 now): with the prompt it must stay within",
        "1 of 10 in doubt (timeout): timeout_s is 6: raise it in the spec",
        "the slowest answer took ",
        "1 request was turned away for the moment (429 or 503): lower concurrency (8 now), say to 4",
        "and the pauses that the endpoint asks for",
        "of them not to complete, going by 2 of 10 here",
    ):
        assert words in run.err, run.err


@pytest.mark.parametrize(
    ("endpoint", "body", "reply", "shown"),
    [
        (
            "/v1/embeddings",
            {"input": "some text"},
            {"object": "list", "data": [{"index": 0, "embedding": [0.5] * 768}], "usage": {"prompt_tokens": 3}},
            "(1 vector of 768 numbers)",
        ),
        (
            "/v1/completions",
            {"prompt": "Once"},
            {"choices": [{"index": 0, "text": "upon a time", "finish_reason": "stop"}]},
            "upon a time",
        ),
        (
            "/v1/responses",
            {"input": "hello"},
            {
                "status": "completed",
                "output": [{"type": "message", "content": [{"type": "output_text", "text": "hi"}]}],
            },
            "hi",
        ),
        (
            "/v1/chat/completions",
            {"messages": [{"role": "user", "content": "weather?"}]},
            {
                "choices": [
                    {"message": {"content": None, "tool_calls": [{"function": {"name": "f", "arguments": "{}"}}]}}
                ]
            },
            "(calls) f({})",
        ),
    ],
)
def test_a_trial_shows_the_answers_of_every_endpoint(
    make_scripted: Scripted, endpoint: str, body: dict[str, Any], reply: dict[str, Any], shown: str
) -> None:
    lab, _ = make_scripted(default={"json": reply})
    lines = [json.dumps({"custom_id": f"a{number}", **body}) + "\n" for number in range(4)]
    (lab.folder / "inputs" / "in.jsonl").write_text("".join(lines))
    lab.write_spec(endpoint=endpoint)
    run = ended(lab.run("trial", "jobs/job.json", "-n", "3", "--sample", "head"), 0)
    asked = body["messages"][0]["content"] if "messages" in body else body.get("prompt", body.get("input"))
    assert f"  sample    a0  {asked}\n                -> {shown}\n" in run.err, run.err
    assert f"  answer    {shown}\n" in ended(lab.run("show", TASK, "a1"), 0).out


# -- stops ------------------------------------------------------------------------------------------------------------


def test_a_missing_model_stops_the_job_once_and_names_those_that_are_there(make_scripted: Scripted) -> None:
    lab, endpoint = make_scripted(
        models=["qwen", "turbo-opt-2"], default=refusal(404, "The model `turbo-opt` does not exist.", "model_not_found")
    )
    lab.write_input(30)
    lab.write_spec(model="turbo-opt")
    run = ended(lab.run(*SUBMIT), 5)
    assert (
        "404 Not Found: The model `turbo-opt` does not exist. Did you mean 'turbo-opt-2'? It also has 'qwen'" in run.out
    )
    assert "do        set \"model\" in the spec ('turbo-opt' now) to one that the endpoint serves" in run.out
    assert "next:  batchrun submit jobs/job.json --accept-changes" in run.out
    assert endpoint.looks == 2, "before the first request, and when it stops"
    assert lab.judged().billed == 0
    endpoint.follow({})
    lab.write_spec(model="turbo-opt-2")
    ended(lab.run(*SUBMIT, "--accept-changes"), 0)


# -- failures and one item --------------------------------------------------------------------------------------------

TROUBLE = {
    "rules": [
        {"when": {"item": "a00001"}, "replies": [refusal(400, "maximum context length is 4096 tokens, however ...")]},
        {"when": {"item": "a00002"}, "replies": [refusal(500, "out of luck")] * 2, "then": "again"},
        {"when": {"item": "a00003"}, "replies": [{"break_at": "request", "billed": True}], "then": "default"},
        {"when": {"item": "a00004"}, "replies": [refusal(500, "once")], "then": "default"},
    ]
}


@pytest.fixture
def troubled(make_scripted: Scripted) -> Lab:
    """A job of six items, of which two failed, one is in doubt and one was answered at the second try."""
    lab, _ = make_scripted(**TROUBLE)
    lab.write_input(6)
    lab.write_spec(retry_times=1)
    ended(lab.run(*SUBMIT, "--no-trial"), 6)
    return lab


def test_failures_are_grouped_with_kind_sample_hint_and_next_command(troubled: Lab) -> None:
    text = ended(troubled.run("failures", TASK), 0).out
    assert text.startswith("batch-001: 2 failed, 1 in doubt of 6 items\n")
    for words in (
        "1  context_length  (failed, permanent)",
        "sample  a00001 (line 2): 400 Bad Request: maximum context length is 4096 tokens",
        "do      shorten such prompts, or give their lines a max_tokens of their own, below 64: the model takes 4,096",
        "then    batchrun submit jobs/job.json\n",
        "1  server_error  (failed, transient)",
        "then    batchrun retry-failed batch-001 --cause server_error",
        "1  connection_lost  (in doubt)",
        "this settles doubts: batchrun resume batch-001 --on-unknown retry",
        "then    batchrun reconcile batch-001",
        "next:  batchrun show batch-001 ",
    ):
        assert words in text, text
    folded = fold(text, 80).split("\n")
    assert [line for line in folded if len(line) > 80] == []
    groups = {one["cause"]: one for one in ended(troubled.run("failures", TASK, "--json"), 0).json["causes"]}
    kinds = {cause: (one["kind"], one["sample_line_no"]) for cause, one in groups.items()}
    assert kinds == {
        "context_length": ("permanent", 2),
        "server_error": ("transient", 3),
        "connection_lost": ("doubtful", 4),
    }


def test_the_failed_items_are_listed_one_a_line_in_input_order(troubled: Lab) -> None:
    text = ended(troubled.run("failures", TASK, "--items"), 0).out
    assert [line.split("  ")[:3] for line in text.splitlines()] == [
        ["a00001", "line 2", "failed"],
        ["a00002", "line 3", "failed"],
        ["a00003", "line 4", "in doubt"],
    ]
    run = ended(troubled.run("failures", TASK, "--items", "--cause", "server_error", "--json"), 0)
    assert [(run.json[name]) for name in ("kind", "custom_id", "line_no", "cause_kind")] == [
        "failure",
        "a00002",
        3,
        "transient",
    ]


def test_an_item_is_a_timeline_with_what_was_billed_the_request_and_the_answer(troubled: Lab) -> None:
    text = ended(troubled.run("show", TASK, "a00004"), 0).out
    lines = text.splitlines()
    assert lines[0] == "a00004  completed  (input line 5, mock)"
    assert lines[1].startswith("  1  2")
    assert lines[1].endswith("refused, HTTP 500, not billed")
    assert lines[2] == "     server_error: 500 Internal Server Error: once"
    assert lines[4].startswith("     waited ")
    assert lines[5].startswith("  2  2")
    assert lines[5].endswith("answered, HTTP 200, billed")
    assert "finish_reason stop, 10 in / 5 out tokens" in lines[6]
    assert "max_tokens 64" in lines[8]
    assert lines[9:] == ["            user: [[a00004]] hello", "  answer    answer for a00004"]
    doubt = ended(troubled.run("show", TASK, "a00003"), 0).out
    assert "next:  batchrun reconcile batch-001" in doubt
    assert "unknown, possibly billed" in doubt
    attempts = ended(troubled.run("show", TASK, "a00004", "--json"), 0).json["attempts"]
    assert [(one["no"], one["billed"], one["waited_s"] is None) for one in attempts] == [
        (1, "no", False),
        (2, "yes", True),
    ]


def test_a_long_request_and_answer_are_cut_unless_they_are_asked_for(make_scripted: Scripted) -> None:
    lab, _ = make_scripted(default=answer("an answer " + "that goes on " * 100))
    lab.write_input(1, text="a prompt " + "without an end " * 100)
    lab.write_spec()
    ended(lab.run(*SUBMIT), 0)
    text = ended(lab.run("show", TASK, "a00000"), 0).out
    assert text.count("(cut: --full shows it whole)") == 2
    assert max(map(len, text.splitlines())) < 400
    whole = ended(lab.run("show", TASK, "a00000", "--full"), 0).out
    assert "an end " * 2 not in text[:100]
    assert whole.count("without an end") == 100
    assert whole.count("that goes on") == 100


# -- what others wrote ------------------------------------------------------------------------------------------------

ORDERS = "\x1b[2J\x1b]0;owned\x07\x9b31m\u202e\r\x00\x08"
OBEYED = set("\x1b\x07\x9b\u202e\r\x00\x08\u2066\u200b\x7f")


def test_no_command_passes_on_what_a_terminal_would_obey(make_scripted: Scripted) -> None:
    hostile = answer(f"before{ORDERS}after", reasoning_content=ORDERS) | {"headers": {"x-request-id": "r"}}
    hostile["answer"]["finish_reason"] = f"stop{ORDERS}"
    lab, _ = make_scripted(
        rules=[
            {"when": {"item": "a00001"}, "replies": [refusal(400, f"bad{ORDERS}")]},
            {"when": {"item": "a00002"}, "replies": [{"break_at": "request"}]},
            {"when": {"item": "a00003"}, "replies": [{"text": f"<html><title>{ORDERS}</title>"}]},
        ],
        default=hostile,
    )
    lines = [batch_line(f"a{number:05d}", ORDERS) for number in range(5)] + [
        batch_line("odd\u202e\u2066id\u200b", ORDERS)
    ]
    (lab.folder / "inputs" / "in.jsonl").write_text("".join(lines))
    lab.write_spec(retry_times=0, trial={"size": 4, "max_failed_share": 1.0, "sample": "head"})
    ended(lab.run(*SUBMIT, "-v"), 6)
    commands = [
        ("status", TASK),
        ("failures", TASK),
        ("failures", TASK, "--items"),
        ("reconcile", TASK),
        ("retry-failed", TASK, "--dry-run"),
        ("show", TASK, "odd\u202e\u2066id\u200b", "--full"),
        ("show", TASK, f"none{ORDERS.replace(chr(0), '')}"),
        ("status", f"none{ORDERS.replace(chr(0), '')}"),
        *[("show", TASK, f"a{number:05d}", *flags) for number in range(4) for flags in ((), ("--full",))],
    ]
    for command in commands:
        for flags in ((), ("--json",)):
            lab.run(*command, *flags).wait()
    for run in lab.runs:
        for printed in (run.out_path, run.err_path):
            text = printed.read_bytes().decode() if printed.exists() else ""
            assert not OBEYED & set(text), (run.arguments, sorted(OBEYED & set(text)), text[:400])
            assert "Traceback" not in text
    whole = next(run for run in lab.runs if run.arguments[:3] == ["show", TASK, "a00000"] and "--full" in run.arguments)
    assert "before\\u001b[2J" in whole.out


# -- names ------------------------------------------------------------------------------------------------------------


def test_a_spec_stands_for_its_job_and_a_job_for_a_spec_is_named(lab: Lab) -> None:
    lab.write_input(2)
    lab.write_spec()
    ended(lab.run(*SUBMIT), 0)
    assert "batch-001 completed" in ended(lab.run("status", "jobs/job.json"), 0).out
    assert "a00000  completed" in ended(lab.run("show", "jobs/job.json", "a00000"), 0).out
    wrong = ended(lab.run("submit", TASK), 2).err
    assert "'batch-001' is a job of this ledger, and a spec's file is wanted" in wrong
    assert "try: batchrun resume batch-001" in wrong


SLIPS = [
    (("status", "batch-01"), "no job 'batch-01'", "did you mean 'batch-001'? batchrun ls lists them"),
    (("resume", "zzz"), "no job 'zzz'", "did you mean 'batch-001'?"),
    (("status", "jobs/none.json"), "'jobs/none.json' is no job's name", "batchrun ls"),
    (("status", "inputs/in.jsonl"), "is a file, and no spec", "batchrun ls"),
    (("status", "jobs/all.jsonl"), "holds 2 jobs", "name one of them: x, y"),
    (("submit", "jobs/jb.json"), "'jobs/jb.json' does not exist", "did you mean 'jobs/job.json'?"),
    (("submit", "job.json"), "'job.json' does not exist", "did you mean 'jobs/job.json'?"),
    (("submit", "elsewhere/none.json"), "does not exist", "name a job's spec"),
    (("show", TASK, "a0000l"), "has no item 'a0000l'", "did you mean 'a0000"),
    (("reconcile", TASK, "--item", "a00000"), "'a00000' is not in doubt", "lists those that are"),
    (("reconcile", TASK, "--retry", "--fail"), "exclude each other", "choose one"),
    (("cancel", TASK), "is completed and cannot be cancelled", "batchrun status batch-001"),
]


def test_a_slip_is_named_with_what_was_probably_meant(lab: Lab) -> None:
    lab.write_input(2)
    lab.write_spec()
    (lab.folder / "jobs" / "all.jsonl").write_text('{"task_id": "x"}\n{"task_id": "y"}\n')
    ended(lab.run(*SUBMIT), 0)
    for command, message, hint in SLIPS:
        error = ended(lab.run(*command, "--json"), 2).json["error"]
        assert message in error["message"], (command, error)
        assert hint in error["hint"], (command, error)


def test_where_no_ledger_is_the_error_says_why_and_what_makes_one(lab: Lab) -> None:
    error = ended(lab.run("status", "--json"), 2).json["error"]
    assert "nothing was submitted from here" in error["message"]
    assert "batchrun submit" in error["hint"]


# -- what others were answered shows ----------------------------------------------------------------------------------

PAGE = {"status": 200, "text": "<html><title>Gateway</title></html>", "headers": {"Content-Type": "text/html"}}


QUESTIONS = {
    "a00001": "send 1 item again? [Y/n]:",
    "a00002": "send 1 item again? each may be billed a second time [Y/n]:",
}


def test_an_item_that_may_be_billed_says_why_it_was_not_sent_again_and_what_sends_it(make_scripted: Scripted) -> None:
    lost = {"break_at": "head", "billed": True}
    rules = [
        {"when": {"item": "a00001"}, "replies": [PAGE], "then": "again"},
        {"when": {"item": "a00002"}, "replies": [lost], "then": "again"},
    ]
    lab, _ = make_scripted(rules=rules, default=answer("ok"))
    lab.write_input(4)
    lab.write_spec()
    assert lab.run(*SUBMIT).wait() == 6
    assert "a proxy or gateway in front of it sent this page" in lab.run("failures", TASK).out
    for item, command in (("a00001", "retry-failed"), ("a00002", "reconcile")):
        asks = QUESTIONS[item]
        shown = lab.run("show", TASK, item).out
        assert "no retry  it may have been billed, and on_unknown is hold" in shown
        value = lab.run("show", TASK, item, "--json").json
        assert value["not_sent_again"] in shown
        assert value["next_command"].startswith(f"batchrun {command} {TASK}")
        assert value["next_command"].endswith(f"--item {item}")
        with terminal(lab, *value["next_command"].split()[1:], before=take_keys) as asked:
            asked.until(lambda text, asks=asks: asks in " ".join(text.split()), "it asks, as the documents show")
            asked.press(b"\n")
            assert asked.wait() in (3, 6)
        assert len(lab.run("show", TASK, item, "--json").json["attempts"]) == 2
    assert lab.run("show", TASK, "a00000", "--json").json["not_sent_again"] is None
    which = " ".join(ended(lab.run("show", TASK), 2).err.split())
    assert "such as a00002 (in doubt), a00001 (failed), a00000 (completed), a00003 (completed)" in " ".join(
        which.split()
    )
    assert f"try: batchrun show {TASK} a00002" in which


def test_lines_for_a_route_that_the_model_does_not_serve_fail_alone(make_scripted: Scripted) -> None:
    unknown = {"status": 404, "json": {"detail": "Not Found"}}
    rules = [{"when": {"path": "/v1/embeddings"}, "replies": [unknown], "then": "again"}]
    lab, _ = make_scripted(rules=rules, default=answer("ok"))
    lines = [batch_line(f"c{number}", "hello") for number in range(2)]
    for number in range(5):
        body = {"input": f"vector {number}"}
        lines.append(
            json.dumps({"custom_id": f"e{number}", "method": "POST", "url": "/v1/embeddings", "body": body}) + "\n"
        )
    (lab.folder / "inputs/in.jsonl").write_text("".join(lines))
    lab.write_spec(concurrency=2)
    ended(lab.run("trial", "jobs/job.json", "-n", "2", "--sample", "head"), 0)  # chat alone, in a run of its own
    run = ended(lab.run("resume", TASK), 3)
    assert "2 completed, 5 failed" in run.out
    told = lab.run("failures", TASK).out
    assert "answers on other routes, and not on this: take such lines out, or mend their url" in told
    assert "then    batchrun submit jobs/job.json" in told
