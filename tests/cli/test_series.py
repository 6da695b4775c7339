"""Several specs of one submit: checked and registered together, then run in turn; none stops or hides another."""

import json
import signal
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from batchrun.cli.main import cli
from batchrun.cli.series import WORST_FIRST, typed_again, worst
from batchrun.core.states import ItemState, JobState
from tests.acceptance.endpoint import ScriptedEndpoint
from tests.cli.contract import read_stream
from tests.core.specs import spec_of
from tests.lab import Lab, batch_line
from tests.process.limits import small_files
from tests.process.steps import gated, interrupted, until_said

SECRET = "sk-Wq83nVzL0pTr5KyB"
Scripted = Callable[..., tuple[Lab, ScriptedEndpoint]]


def write_all(lab: Lab, *names: str, count: int = 12, **changes: dict[str, Any]) -> None:
    """Write inputs, and `jobs/all.jsonl` with a spec a line; `changes` are by job."""
    for name in names:
        lab.write_input(count, name=f"{name}.jsonl", prefix=name)
    specs = [spec_of(name, **changes.get(name, {})) for name in names]
    (lab.folder / "jobs" / "all.jsonl").write_text("".join(json.dumps(spec) + "\n" for spec in specs))


def items_in_order(lab: Lab) -> list[str]:
    """Return the items in the order in which their requests arrived."""
    assert lab.log is not None
    entries = [json.loads(line) for line in lab.log.read_text().splitlines()]
    return [entry["item"] for entry in entries if entry["ev"] == "arrive" and entry["method"] == "POST"]


def assert_nothing(lab: Lab) -> None:
    assert lab.arrivals() == 0
    assert not (lab.folder / ".batchrun").exists()
    assert list((lab.folder / "outputs").iterdir()) == []


def states(lab: Lab, *names: str) -> list[JobState]:
    return [lab.standing(name).job.state for name in names]


# -- in turn ----------------------------------------------------------------------------------------------------------


def test_the_specs_of_files_and_of_lines_run_in_turn(lab: Lab) -> None:
    write_all(lab, "b", "c")
    lab.write_input(12, name="a.jsonl", prefix="a")
    (lab.folder / "jobs" / "a.json").write_text(json.dumps(spec_of("a"), indent=2))
    run = lab.run("submit", "jobs/a.json", "jobs/all.jsonl")
    assert run.wait() == 0, run.err + run.out
    arrived = items_in_order(lab)
    assert [item[0] for item in arrived] == ["a"] * 12 + ["b"] * 12 + ["c"] * 12
    assert [line.split(" completed")[0] for line in run.out.splitlines() if " completed in " in line] == [
        *"abc",
        *"abc",
    ]
    assert [len(lab.lines(f"{name}.jsonl")) for name in "abc"] == [12, 12, 12]


def test_a_series_of_one_line_is_a_submit_like_any_other(lab: Lab) -> None:
    write_all(lab, "a")
    run = lab.run("submit", "jobs/all.jsonl")
    assert run.wait() == 0, run.err
    assert "job 1 of" not in run.err
    assert run.out.splitlines()[0].startswith("a completed in ")


def test_a_job_with_failures_does_not_stop_the_next_one_nor_hide(make_scripted: Scripted) -> None:
    refusal = {"status": 400, "json": {"error": {"message": "no", "code": "bad"}}}
    lab, _ = make_scripted(rules=[{"when": {"item": "a00003"}, "replies": [refusal], "then": "again"}])
    write_all(lab, "a", "b")
    run = lab.run("submit", "jobs/all.jsonl", "--no-trial")
    assert run.wait() == 3, run.err + run.out
    assert states(lab, "a", "b") == [JobState.COMPLETED, JobState.COMPLETED]
    assert lab.standing("b").counts[ItemState.COMPLETED] == 12


def test_a_refused_key_of_one_job_does_not_stop_the_next_one_nor_hide(make_lab: Callable[..., Lab]) -> None:
    lab = make_lab(api_key=SECRET)
    write_all(lab, "a", "b", a={"api_key_env": "WRONG_KEY"})
    env = {"OPENAI_API_KEY": SECRET, "WRONG_KEY": "sk-not-this-one-at-all"}
    run = lab.run("submit", "jobs/all.jsonl", "--no-trial", env=env)
    assert run.wait() == 4, run.err + run.out
    assert states(lab, "a", "b") == [JobState.PAUSED, JobState.COMPLETED]
    assert "a paused: " in run.out.splitlines()[-2]
    assert run.out.splitlines()[-2].endswith("(auth)")


def test_each_job_prints_an_object_of_its_own(make_scripted: Scripted) -> None:
    refusal = {"status": 400, "json": {"error": {"message": "no", "code": "bad"}}}
    lab, _ = make_scripted(rules=[{"when": {"item": "b00000"}, "replies": [refusal], "then": "again"}])
    write_all(lab, "a", "b", "c")
    run = lab.run("submit", "jobs/all.jsonl", "--json", "--no-trial")
    assert run.wait() == 3, run.err
    objects = read_stream(run.out)
    assert [(one["kind"], one["job_id"], one["exit_code"]) for one in objects] == [
        ("job_status", "a", 0),
        ("job_status", "b", 3),
        ("job_status", "c", 0),
    ]


def test_a_job_that_another_process_performs_is_left_to_it(make_lab: Callable[..., Lab]) -> None:
    lab = make_lab(latency_ms=60_000)
    write_all(lab, "a", "b")
    (lab.folder / "jobs" / "a.json").write_text(json.dumps(spec_of("a")))
    other = lab.start("submit", "jobs/a.json", "--no-trial")
    lab.await_arrivals(4, run=other)
    env = {"OPENAI_BASE_URL": "http://127.0.0.1:1/v1", "BATCHRUN_NEVER_REACHED_S": "0.2"}
    run = lab.run("submit", "jobs/all.jsonl", "--no-wait", "--no-trial", "--json", env=env)
    other.kill()
    assert run.wait() == 5, run.err  # a guard's stop is worse than a job that is in other hands
    first, second = read_stream(run.out)
    assert (first["kind"], first["job_id"], first["error"]["exit_code"]) == ("job_error", "a", 9)
    assert "is performed by" in first["error"]["message"]
    assert (second["job_id"], second["reason"]) == ("b", "unreachable")


def test_the_jobs_are_taken_as_they_were_when_the_series_began(make_lab: Callable[..., Lab]) -> None:
    lab = make_lab()
    write_all(lab, "a", "b")
    with gated(lab, admits=1):
        run = lab.start("submit", "jobs/all.jsonl", "--no-trial")
        lab.await_arrivals(1, run=run)
        (lab.folder / "inputs" / "b.jsonl").write_text("no JSON any more\n")
    assert run.wait() == 0, run.err
    assert lab.standing("b").counts[ItemState.COMPLETED] == 12


def test_a_trial_of_several_jobs_tries_each(lab: Lab) -> None:
    write_all(lab, "a", "b")
    run = lab.run("trial", "jobs/all.jsonl", "-n", "3")
    assert run.wait() == 0, run.err
    assert sorted(item[0] for item in items_in_order(lab)) == ["a"] * 3 + ["b"] * 3
    assert [lab.standing(name).job.reason for name in "ab"] == ["trial_only", "trial_only"]
    assert lab.run("submit", "jobs/all.jsonl").wait() == 0
    assert len(items_in_order(lab)) == len(set(items_in_order(lab))) == 24


# -- interruption -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_stops_the_whole_series_and_names_the_way_on(
    number: int, code: int, make_lab: Callable[..., Lab]
) -> None:
    lab = make_lab(latency_ms=200)
    write_all(lab, "a", "b", "c")
    with gated(lab, admits=2):
        run = lab.start("submit", "jobs/all.jsonl", "--no-trial", "-c", "2")
        lab.await_arrivals(2, run=run)
        run.kill(number)
        until_said(run, "draining")
    assert run.wait() == code, run.err
    assert "batchrun resume a" in run.out
    assert "b has had no turn" in run.out
    assert run.out.splitlines()[-1] == "next:  batchrun submit --no-trial --concurrency 2 jobs/all.jsonl"
    assert {item[0] for item in items_in_order(lab)} == {"a"}
    # All of them stand in the ledger: each can be resumed by its name, or all by the same command.
    assert lab.run("resume", "c").wait() == 0
    again = run.out.splitlines()[-1].removeprefix("next:  batchrun ").split()
    assert lab.run(*again).wait() == 0
    assert len(items_in_order(lab)) == len(set(items_in_order(lab))) == 36


def test_a_series_that_was_killed_is_gone_on_with_by_the_same_command(make_lab: Callable[..., Lab]) -> None:
    lab = make_lab()
    write_all(lab, "a", "b", "c", b={"on_unknown": "retry", "retry_times": 3})
    interrupted(lab, at=16, command=("submit", "jobs/all.jsonl", "--no-trial"))
    assert lab.run("submit", "jobs/all.jsonl", "--no-trial").wait() == 0
    assert states(lab, *"abc") == [JobState.COMPLETED] * 3
    assert [len(lab.lines(f"{name}.jsonl")) for name in "abc"] == [12, 12, 12]


def test_the_command_to_be_typed_again_is_the_one_that_was_typed() -> None:
    top = cli.make_context("batchrun", ["--db", "my ledger.db", "-vv", "submit"])
    submit = cli.get_command(top, "submit")
    assert submit is not None
    typed = ["--no-trial", "-y", "-c", "3", "--max-cost", "1.50", "jobs/a.json", "my jobs/b.json"]
    with submit.make_context("submit", typed, parent=top):
        again = typed_again()
    assert again == (
        "batchrun --db 'my ledger.db' --verbose --verbose submit "
        "--yes --no-trial --max-cost 1.50 --concurrency 3 jobs/a.json 'my jobs/b.json'"
    )


def test_a_ledger_that_cannot_be_used_any_more_ends_the_series(lab: Lab) -> None:
    write_all(lab, "a", "b", "c", b={"concurrency": 10_000})  # the answers in flight of so many need a large file
    run = lab.run("submit", "jobs/all.jsonl", "--no-trial", "--json", before=partial(small_files, 32 << 20))
    assert run.wait() == 1, run.err
    first, second = read_stream(run.out)
    assert (first["job_id"], first["state"]) == ("a", "completed")
    assert (second["job_id"], second["error"]["kind"]) == ("b", "ledger")
    again = lab.run("submit", "jobs/all.jsonl", "--no-trial")
    assert again.wait() == 0, again.err
    assert len(items_in_order(lab)) == 36


# -- before the first request -----------------------------------------------------------------------------------------


def test_one_faulty_spec_keeps_all_of_them_from_starting(lab: Lab) -> None:
    write_all(lab, "a", "b", "c", b={"concurency": 1}, c={"retry_times": -1, "model": None})
    (lab.folder / "inputs" / "c.jsonl").write_text(batch_line("c0") + "{oops\n")
    for command in ("submit", "validate", "trial"):
        run = lab.run(command, "jobs/all.jsonl")
        assert run.wait() == 2, run.err
        for said in (
            "jobs/all.jsonl line 2: unknown key 'concurency'",
            "jobs/all.jsonl line 3: 'retry_times'",
            "jobs/all.jsonl line 3: 'model' is missing",
            "jobs/all.jsonl line 3: input line 2: ",
            "4 faults",
        ):
            assert said in run.err, run.err
    assert_nothing(lab)


def test_what_is_missing_for_one_job_s_start_is_said_before_any_starts(lab: Lab) -> None:
    write_all(lab, "a", "b", b={"base_url": "https://api.example.invalid/v1"})
    run = lab.run("submit", "jobs/all.jsonl")
    assert run.wait() == 2
    assert "no API key is set for https://api.example.invalid/v1" in run.err
    assert_nothing(lab)


def test_a_limit_without_a_price_names_each_spec(lab: Lab) -> None:
    write_all(lab, "a", "b", "c", b={"price": {"input_per_1m_usd": 1, "output_per_1m_usd": 1}})
    run = lab.run("submit", "jobs/all.jsonl", "--max-cost", "1")
    assert run.wait() == 2
    assert "jobs/all.jsonl line 1: --max-cost" in run.err
    assert "jobs/all.jsonl line 2: --max-cost" not in run.err
    assert "jobs/all.jsonl line 3: --max-cost" in run.err
    assert_nothing(lab)


def test_a_dry_run_of_several_says_each_and_writes_nothing(lab: Lab) -> None:
    write_all(lab, "a", "b")
    run = lab.run("submit", "jobs/all.jsonl", "--dry-run")
    assert run.wait() == 0
    assert [line.split(":")[0] for line in run.out.splitlines()] == ["would submit a", "would submit b"]
    assert_nothing(lab)


def test_an_output_of_an_older_job_is_refused_before_any_job_is_registered(lab: Lab) -> None:
    write_all(lab, "a")
    assert lab.run("submit", "jobs/all.jsonl").wait() == 0
    before = lab.arrivals()
    write_all(lab, "b", "c", c={"output_file": "outputs/a.jsonl"})
    run = lab.run("submit", "jobs/all.jsonl")
    assert run.wait() == 2, run.err
    assert "jobs/all.jsonl line 2" in run.err
    assert "is job 'a''s output" in run.err
    assert lab.arrivals() == before
    assert [json.loads(lab.run("ls", "--json").out)["jobs"][0]["job_id"]] == ["a"]


def test_a_changed_job_is_refused_before_any_request_and_goes_on_once_that_is_accepted(lab: Lab) -> None:
    write_all(lab, "b")
    assert lab.run("submit", "jobs/all.jsonl").wait() == 0
    before = lab.arrivals()
    write_all(lab, "a", "b", count=13)
    run = lab.run("submit", "jobs/all.jsonl")
    assert run.wait() == 2, run.err
    assert "--accept-changes" in run.err
    assert lab.arrivals() == before
    assert len(json.loads(lab.run("ls", "--json").out)["jobs"]) == 1
    assert lab.run("submit", "jobs/all.jsonl", "--accept-changes").wait() == 0
    assert lab.arrivals() == before + 13 + 1


# -- the exit code of a series ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("codes", "code"),
    [
        ([0, 0], 0),
        ([0, 3], 3),
        ([3, 6, 0], 6),
        ([6, 5, 3], 5),
        ([5, 4], 4),
        ([4, 2, 5], 2),
        ([9, 3], 9),
        ([9, 5], 5),
        ([3, 130], 130),
        ([4, 143], 143),
    ],
)
def test_a_series_ends_like_its_worst_job(codes: list[int], code: int) -> None:
    assert worst(codes) == worst(reversed(codes)) == code


def test_every_exit_code_of_a_job_has_its_rank() -> None:
    assert sorted(WORST_FIRST) == [0, 1, 2, 3, 4, 5, 6, 8, 9]
