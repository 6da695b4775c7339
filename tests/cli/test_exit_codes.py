"""Every exit code of the contract, from real processes: one table, a story for each way to end."""

import re
import signal
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.endpoint import ScriptedEndpoint
from tests.lab import Lab, Run, batch_line
from tests.process.steps import TASK, until

ROOT = Path(__file__).parents[2]
SUBMIT = ("submit", "jobs/job.json")
PRICE = {"input_per_1m_usd": 1, "output_per_1m_usd": 1}
REFUSED = {"status": 400, "json": {"error": {"message": "no", "code": "context_length_exceeded"}}}
CUT = {"break_at": "head", "billed": True}


@dataclass
class Stage:
    """What a story is played with."""

    make_lab: Callable[..., Lab]
    make_scripted: Callable[..., tuple[Lab, ScriptedEndpoint]]

    def lab(self, count: int = 4, *, spec: dict[str, Any] | None = None, **settings: Any) -> Lab:
        """Return a lab with a job of `count` items; `settings` are its mock endpoint's."""
        return _with_job(self.make_lab(**settings), count, spec)

    def scripted(self, count: int = 4, *, spec: dict[str, Any] | None = None, **replies: dict[str, Any]) -> Lab:
        """Return a lab with a job whose items are answered, but for those that `replies` names."""
        rules = [{"when": {"item": name}, "replies": [reply], "then": "again"} for name, reply in replies.items()]
        lab, _ = self.make_scripted(rules=rules, default={"answer": {}})
        return _with_job(lab, count, spec)

    def running(self) -> tuple[Lab, Run]:
        """Return a lab with a job that is under way and will be for long."""
        lab = self.lab(60, latency_ms=400, spec={"concurrency": 2})
        run = lab.start(*SUBMIT, "--no-trial")
        lab.await_arrivals(1, run=run)
        return lab, run


def _with_job(lab: Lab, count: int, spec: dict[str, Any] | None) -> Lab:
    lab.write_input(count)
    lab.write_spec(**spec or {})
    return lab


Story = Callable[[Stage], Run]


def every_item_completed(stage: Stage) -> Run:
    return stage.lab().run(*SUBMIT)


def a_trial_that_passed(stage: Stage) -> Run:
    return stage.lab(8).run("trial", "jobs/job.json", "-n", "3")


def a_spec_without_a_fault(stage: Stage) -> Run:
    return stage.lab().run("validate", "jobs/job.json")


def a_job_that_failed_is_only_looked_at(stage: Stage) -> Run:
    lab = stage.scripted(a00001=REFUSED)
    assert lab.run(*SUBMIT).wait() == 3
    return lab.run("status")


def a_ledger_that_is_none(stage: Stage) -> Run:
    lab = stage.lab()
    (lab.folder / ".batchrun").mkdir()
    (lab.folder / ".batchrun" / "ledger.db").write_bytes(b"no database " * 500)
    return lab.run(*SUBMIT)


def a_ledger_that_is_not_there_is_checked(stage: Stage) -> Run:
    return stage.lab().run("db", "check")


def an_option_that_is_not_there(stage: Stage) -> Run:
    return stage.lab().run(*SUBMIT, "--no-such-option")


def a_faulty_spec(stage: Stage) -> Run:
    return stage.lab(spec={"concurrency": 0}).run(*SUBMIT)


def a_faulty_input(stage: Stage) -> Run:
    lab = stage.lab()
    (lab.folder / "inputs" / "in.jsonl").write_text("{oops\n")
    return lab.run(*SUBMIT)


def a_job_that_is_not_there(stage: Stage) -> Run:
    lab = stage.lab()
    assert lab.run(*SUBMIT).wait() == 0
    return lab.run("resume", "batch-002")


def an_item_failed(stage: Stage) -> Run:
    return stage.scripted(a00001=REFUSED).run(*SUBMIT)


def a_line_was_rejected(stage: Stage) -> Run:
    lab = stage.lab()
    (lab.folder / "inputs" / "in.jsonl").write_text(batch_line("a") + "{oops\n" + batch_line("b"))
    return lab.run(*SUBMIT, "--skip-invalid")


def items_were_cancelled(stage: Stage) -> Run:
    lab, run = stage.running()
    assert lab.run("cancel", TASK).wait() == 0
    run.wait()
    return run


def the_status_of_a_job_with_failures(stage: Stage) -> Run:
    lab = stage.scripted(a00001=REFUSED)
    assert lab.run(*SUBMIT).wait() == 3
    return lab.run("status", "--exit-status")


def a_key_that_is_refused(stage: Stage) -> Run:
    return stage.lab(20, api_key="sk-right-0123456789").run(*SUBMIT, env={"OPENAI_API_KEY": "sk-wrong-9876543210"})


def the_budget_is_spent(stage: Stage) -> Run:
    return stage.lab(20, spec={"price": PRICE, "max_cost_usd": "0.0005", "concurrency": 1}).run(*SUBMIT, "--no-trial")


def too_many_items_failed(stage: Stage) -> Run:
    lab = stage.scripted(30, a00000=REFUSED, a00001=REFUSED, spec={"concurrency": 1, "fail_on_error": 2})
    return lab.run(*SUBMIT, "--no-trial")


def the_trial_did_not_pass(stage: Stage) -> Run:
    lab = stage.scripted(20, **{f"a{number:05d}": REFUSED for number in range(20)}, spec={"trial": {"size": 2}})
    return lab.run(*SUBMIT)


def an_endpoint_that_is_not_there(stage: Stage) -> Run:
    lab = stage.lab()
    return lab.run(*SUBMIT, env={"OPENAI_BASE_URL": "http://127.0.0.1:1/v1", "BATCHRUN_NEVER_REACHED_S": "0.3"})


def an_item_is_in_doubt(stage: Stage) -> Run:
    return stage.scripted(a00001=CUT).run(*SUBMIT)


def a_doubt_counts_more_than_a_failure(stage: Stage) -> Run:
    return stage.scripted(a00001=CUT, a00002=REFUSED).run(*SUBMIT)


def a_guard_counts_more_than_a_doubt(stage: Stage) -> Run:
    lab = stage.scripted(30, a00000=CUT, a00001=REFUSED, a00002=REFUSED, spec={"concurrency": 1, "fail_on_error": 2})
    return lab.run(*SUBMIT, "--no-trial")


def the_demo_finds_a_second_bill(stage: Stage) -> Run:
    """The tour's own judge reads the endpoint's log; one more bill is written into that log meanwhile."""
    lab = stage.lab()
    run = lab.start("demo", "--items", "40", "--keep")
    until(lambda: _bills(lab), "the tour's endpoint has been asked", timeout_s=60)
    (log,) = lab.folder.glob("batchrun-demo-*/requests.jsonl")
    with log.open("ab", buffering=0) as file:
        file.write(_bills(lab)[0] + b"\n")
    run.wait(90)
    assert "BROKEN: no item was billed twice" in run.out
    return run


def _bills(lab: Lab) -> list[bytes]:
    logs = list(lab.folder.glob("batchrun-demo-*/requests.jsonl"))
    return [line for log in logs for line in log.read_bytes().split(b"\n")[:-1] if b'"billed":true' in line]


def the_status_of_a_job_that_runs(stage: Stage) -> Run:
    lab, _ = stage.running()
    return lab.run("status", TASK, "--exit-status")


def the_status_of_a_job_that_was_killed(stage: Stage) -> Run:
    lab, run = stage.running()
    run.kill()
    run.process.join()
    return lab.run("status", TASK, "--exit-status")


def another_process_has_the_job(stage: Stage) -> Run:
    lab, _ = stage.running()
    return lab.run(*SUBMIT, "--no-wait")


def ctrl_c(stage: Stage) -> Run:
    return _stopped_by(stage, signal.SIGINT)


def sigterm(stage: Stage) -> Run:
    return _stopped_by(stage, signal.SIGTERM)


def _stopped_by(stage: Stage, number: int) -> Run:
    lab, run = stage.running()
    run.kill(number)
    run.wait()
    assert f"batchrun resume {TASK}" in run.out
    assert lab.run("status", TASK, "--exit-status").wait() == 8
    return run


CODES: list[tuple[int, Story]] = [
    (0, every_item_completed),
    (0, a_trial_that_passed),
    (0, a_spec_without_a_fault),
    (0, a_job_that_failed_is_only_looked_at),
    (1, a_ledger_that_is_none),
    (1, a_ledger_that_is_not_there_is_checked),
    (2, an_option_that_is_not_there),
    (2, a_faulty_spec),
    (2, a_faulty_input),
    (2, a_job_that_is_not_there),
    (3, an_item_failed),
    (3, a_line_was_rejected),
    (3, items_were_cancelled),
    (3, the_status_of_a_job_with_failures),
    (4, a_key_that_is_refused),
    (5, the_budget_is_spent),
    (5, too_many_items_failed),
    (5, the_trial_did_not_pass),
    (5, an_endpoint_that_is_not_there),
    (5, a_guard_counts_more_than_a_doubt),
    (6, an_item_is_in_doubt),
    (6, a_doubt_counts_more_than_a_failure),
    (7, the_demo_finds_a_second_bill),
    (8, the_status_of_a_job_that_runs),
    (8, the_status_of_a_job_that_was_killed),
    (9, another_process_has_the_job),
    (130, ctrl_c),
    (143, sigterm),
]


@pytest.mark.process
@pytest.mark.timeout(120)
@pytest.mark.parametrize(("code", "story"), CODES, ids=[f"{code}-{story.__name__}" for code, story in CODES])
def test_a_process_ends_with_the_code_of_what_happened(
    code: int, story: Story, make_lab: Callable[..., Lab], make_scripted: Callable[..., tuple[Lab, ScriptedEndpoint]]
) -> None:
    run = story(Stage(make_lab, make_scripted))
    assert run.wait() == code, f"{run.arguments}\n{run.err}\n{run.out}"
    assert "Traceback" not in run.err + run.out


def test_no_code_that_the_readme_promises_is_left_out() -> None:
    rows = re.findall(r"^\| ([0-9, ]+) \|", (ROOT / "README.md").read_text(), re.MULTILINE)
    promised = {int(code) for row in rows for code in row.split(",")}
    assert promised == {code for code, _ in CODES}
