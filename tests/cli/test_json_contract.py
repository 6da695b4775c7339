"""Every object that any command prints with `--json` follows the schema of its kind: no key comes or goes unseen."""

import ast
import copy
import json
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from batchrun.cli import schemas
from batchrun.cli.chaos import Storm
from batchrun.cli.context import Context
from batchrun.cli.main import COMMANDS
from batchrun.cli.ordeal_verdict import Report
from batchrun.cli.schemas import kinds, output_schema
from batchrun.core.states import AttemptState, ItemState, JobState
from batchrun.mock.config import MockConfig
from batchrun.mock.process import MockProcess
from tests.acceptance.endpoint import ScriptedEndpoint
from tests.cli.contract import faults_of, kind_of, read_stream, validator_of
from tests.lab import Lab, batch_line
from tests.process.steps import gated, until

CLI = Path(schemas.__file__).parent
PRICE = {"input_per_1m_usd": 1, "output_per_1m_usd": 2}


# -- kinds ------------------------------------------------------------------------------------------------------------


def emitted_kinds(source: str, name: str) -> Iterator[str]:
    """Yield the kind of every `emit(...)` in a module; one that is no plain word fails."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and getattr(node.func, "id", getattr(node.func, "attr", None)) == "emit":
            kind = node.args[0]
            assert isinstance(kind, ast.Constant), f"{name}:{node.lineno}: write the kind as a plain string"
            yield kind.value


def all_emitted() -> dict[str, list[str]]:
    """Return every kind that the command line prints, and the modules that do."""
    found: dict[str, list[str]] = {}
    for path in sorted(CLI.rglob("*.py")):
        for kind in emitted_kinds(path.read_text(), path.name):
            found.setdefault(kind, []).append(path.name)
    return found


def test_every_kind_that_is_printed_has_a_schema_and_no_schema_is_left_over() -> None:
    printed, described = all_emitted(), set(kinds()) - {"error"}
    for kind, modules in printed.items():
        assert kind in described, f"{modules} prints kind {kind!r}: write batchrun/cli/json_schemas/{kind}.json"
    assert described == set(printed), "these schemas describe what nothing prints any more"


def test_a_kind_without_a_schema_would_be_seen() -> None:
    assert list(emitted_kinds('def f():\n    emit("new_kind", {})\n    say.emit("other", {})', "x.py")) == [
        "new_kind",
        "other",
    ]
    assert "no schema" in faults_of({"schema": "batchrun/1", "kind": "new_kind"})[0]
    with pytest.raises(AssertionError, match=r"x\.py:1"):
        list(emitted_kinds("emit(kind, {})", "x.py"))


def objects_in(schema: Any) -> Iterator[dict[str, Any]]:
    """Yield every part of a schema that describes an object with named keys."""
    if isinstance(schema, dict):
        if "properties" in schema:
            yield schema
        for part in schema.values():
            yield from objects_in(part)
    elif isinstance(schema, list):
        for part in schema:
            yield from objects_in(part)


@pytest.mark.parametrize("kind", kinds())
def test_a_schema_is_strict_at_every_level_and_has_the_envelope(kind: str) -> None:
    schema = output_schema(kind)
    assert (schema["title"], schema["properties"]["schema"]) == (kind, {"const": "batchrun/1"})
    assert kind == "error" or schema["properties"]["kind"] == {"const": kind}
    for part in objects_in(schema):
        assert part["additionalProperties"] is False
        assert set(part["required"]) <= set(part["properties"])
    assert "urn:batchrun:1:shared" not in json.dumps(schema)


def test_the_states_of_the_schemas_are_those_of_the_ledger() -> None:
    shared = json.loads((schemas.FOLDER / "shared.json").read_text())["$defs"]
    assert shared["item_state"]["enum"] == [state.value for state in ItemState]
    assert shared["job_state"]["enum"] == [state.value for state in JobState]
    assert shared["attempt_state"]["enum"] == [state.value for state in AttemptState]
    assert set(shared["by_state"]["properties"]) == {state.value for state in ItemState}


# -- what the commands print ------------------------------------------------------------------------------------------


@dataclass
class Show:
    """A lab with one job in every state that an item can end in, and all that its commands have printed so far."""

    lab: Lab
    printed: dict[str, list[dict[str, Any]]] = field(default_factory=dict)

    def run(self, *arguments: str, code: int = 0, env: dict[str, str] | None = None) -> list[dict[str, Any]]:
        """Run a command with `--json`; return what it printed, each object checked."""
        run = self.lab.run(*arguments, "--json", env=env)
        assert run.wait() == code, f"{arguments}: {run.out}{run.err}"
        return self.take(run.out)

    def take(self, printed: str) -> list[dict[str, Any]]:
        objects = read_stream(printed)
        assert objects
        for value in objects:
            self.printed.setdefault(kind_of(value), []).append(value)
        return objects


REFUSAL = {"status": 400, "json": {"error": {"message": "too long", "code": "context_length_exceeded"}}}
CUT = {"break_at": "head", "billed": True}


@pytest.fixture(scope="module")
def show(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Show]:
    with ExitStack() as stack:
        folder = tmp_path_factory.mktemp("contract")
        rules = [
            {"when": {"item": "a00001"}, "replies": [REFUSAL], "then": "again"},
            {"when": {"item": "a00002"}, "replies": [CUT], "then": "again"},
        ]
        endpoint = ScriptedEndpoint({"rules": rules}, log=folder / "requests.jsonl")
        endpoint.start()
        stack.callback(endpoint.stop)
        lab = Lab(folder, base_url=endpoint.base_url, log=folder / "requests.jsonl")
        stack.callback(lab.stop)
        yield Show(lab)


def test_every_command_prints_what_its_schema_says(show: Show) -> None:
    """One story through all commands: each step is checked, and in the end no kind may be missing."""
    lab = show.lab
    _before_the_job(show)
    lines = [batch_line(f"a{number:05d}") for number in range(14)] + ["{oops\n"]
    (lab.folder / "inputs" / "in.jsonl").write_text("".join(lines))
    lab.write_spec(price=PRICE, metadata={"who": "me"}, lookup="litellm", idempotency_header="Idempotency-Key")
    show.run("validate", "jobs/job.json", code=2)
    show.run("submit", "jobs/job.json", "--skip-invalid", "--dry-run")
    trial = show.run("trial", "jobs/job.json", "--skip-invalid", "-n", "3")
    assert "trial_report" in trial[-1]
    show.run("submit", "jobs/job.json", "--skip-invalid", code=6)
    _look_at_it(show)
    _settle_it(show)
    _other_jobs(show)
    _streams(show)
    _measure_it(show)
    show.run("db", "move", "--to", "moved.db")
    show.run("db", "check", code=1)
    show.run("status", "batch-001", code=1)
    left = sorted(set(kinds()) - set(show.printed) - ELSEWHERE.keys())
    assert left == [], "no command of this test printed these kinds"


# What takes long or needs more than one process is checked by a test of its own.
ELSEWHERE = {
    "chaos": "test_the_verdict_of_chaos_is_an_object",
    "demo": "test_the_proof_of_the_demo_is_an_object",
    "job_error": "test_a_job_that_another_process_performs_is_left_to_it",
}


@pytest.mark.parametrize(("kind", "test"), ELSEWHERE.items())
def test_what_the_story_leaves_out_is_checked_elsewhere(kind: str, test: str) -> None:
    source = "".join(path.read_text() for path in Path(__file__).parent.glob("test_*.py"))
    body = source.partition(f"def {test}(")[2].partition("\ndef ")[0]
    assert f'"{kind}"' in body
    assert "read_stream(" in body


@pytest.mark.slow
@pytest.mark.process
@pytest.mark.timeout(180)
def test_the_proof_of_the_demo_is_an_object(lab: Lab) -> None:
    run = lab.run("demo", "--items", "40", "--json", timeout_s=150)
    assert run.wait() == 0, run.err
    (proof,) = read_stream(run.out)
    assert (proof["kind"], proof["ok"]) == ("demo", True)


def test_the_verdict_of_chaos_is_an_object(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report = Report(1, "hold, 60 items", deaths=3, lost_items=1, violations=["not so: ..."])
    assert Storm(Context(json=True), tmp_path, 7, reports=[report]).close(kept=True) == 7
    (verdict,) = read_stream(capsys.readouterr().out)
    assert (verdict["kind"], verdict["ok"], verdict["deaths"]) == ("chaos", False, 3)


def _before_the_job(show: Show) -> None:
    made = show.run("init", "project")[0]
    assert "jobs/job.json" in made["made"]
    assert show.run("init", "project", "--from", "project/inputs/batch_input.jsonl")[0]["columns"] == []
    show.run("config", "show")
    show.run("completion", "bash")
    show.run("doctor")
    assert show.run("ls")[0]["jobs"] == []
    show.run("status", code=2)
    show.run("submit", "jobs/none.json", code=2)
    show.run("no-such-command", code=2)
    show.run("submit", "--no-such-option", code=2)
    show.run("db", "check", code=1)
    show.run("db", "upgrade")
    show.run("db", "check")
    show.run("worker", "--alone", code=2)
    show.run("schema", "--list")
    show.run("doctor")


def _look_at_it(show: Show) -> None:
    show.run("status", "batch-001", "--exit-status", code=6)
    show.run("ls")
    assert len(show.run("failures", "batch-001")[0]["causes"]) >= 3
    assert len(show.run("failures", "batch-001", "--items")) >= 2
    for item in ("a00000", "a00001", "a00002", "line-15"):
        show.run("show", "batch-001", item)
    show.run("show", "batch-001", "a00000", "--request", "--response")
    receipt = show.run("cost", "batch-001")[0]
    assert {line["cause"] for line in receipt["by_cause"]} == {None, "context_length", "cut_body"}
    assert show.run("report", "batch-001")[0]["job"]["counts"]["in_doubt"] == 1
    assert show.run("diagnose", "batch-001")[0]["findings"][0]["layer"] == "reliability"
    show.run("show", "batch-001", "nothing", code=2)
    show.run("export", "batch-001")
    show.run("export", "batch-001", "-o", "all.jsonl")


def _settle_it(show: Show) -> None:
    show.run("reconcile", "batch-001")
    assert show.run("reconcile", "batch-001", "--lookup", code=6)[0]["asked"][0]["result"] == "not_asked"
    answer = {"choices": [{"message": {"role": "assistant", "content": "yes"}}]}
    (show.lab.folder / "answers.jsonl").write_text(json.dumps({"custom_id": "a00002", "response": answer}) + "\n")
    assert show.run("reconcile", "batch-001", "--import", "answers.jsonl", "--dry-run")[0]["taken"][0]["line"] == 1
    assert show.run("reconcile", "batch-001", "--replay", "--dry-run")[0]["asked"][0]["result"] == "in_doubt"
    show.run("reconcile", "batch-001", "--fail", "--dry-run")
    show.run("reconcile", "batch-001", "--retry", "--no-run")
    plan = show.run("resume", "batch-001", "--dry-run")[0]
    assert (plan["kind"], plan["to_send"], plan["to_send_again"], plan["holder"]) == ("resume", 1, 0, None)
    show.run("resume", "batch-001", code=6)
    show.run("reconcile", "batch-001", "--fail", code=3)
    show.run("revalidate", "batch-001", "--dry-run")
    show.run("retry-failed", "batch-001", "--dry-run")
    show.run("retry-failed", "batch-001", "--all", "--no-run")
    show.run("set", "batch-001", "-c", "4", "--rpm", "600", "--dry-run")
    assert show.run("set", "batch-001", "-c", "4", "--tpm", "none")[0]["changes"]["concurrency"]["after"] == 4
    show.run("pause", "batch-001", "--dry-run")
    show.run("pause", "batch-001")
    show.run("cancel", "batch-001", "--dry-run")
    show.run("cancel", "batch-001")
    show.run("status", "batch-001", "--exit-status", code=3)
    show.run("config", "show", "batch-001")
    show.run("purge", "batch-001", "--dry-run")
    assert show.run("purge", "batch-001", "-y")[0]["jobs"][0]["job_id"] == "batch-001"
    assert show.run("show", "batch-001", "a00000")[0]["purged_at"] is not None


def _other_jobs(show: Show) -> None:
    show.lab.write_input(4, name="small.jsonl", prefix="b")
    show.lab.write_spec("plain.json", task_id="plain", input_file="inputs/small.jsonl", output_file="outputs/p.jsonl")
    show.run("validate", "jobs/plain.json")
    show.run("submit", "jobs/plain.json", "--no-trial")
    status = show.run("status", "plain")[0]
    assert status["billing"]["certain_usd"] is None
    assert show.run("compare", "plain", "plain")[0]["answers"]["equal"] == 4
    receipt = show.run("cost")[0]
    assert (receipt["price"], receipt["total"]["certain_usd"], receipt["total"]["unpriced_requests"]) == (None, None, 4)


def _measure_it(show: Show) -> None:
    """Measure a mock of its own: the scripted endpoint counts no tokens by length."""
    with MockProcess(MockConfig(ttft_ms=1, answer_tokens=4, answer_spread=0.0)) as mock:
        flags = ("-w", "40x4", "-n", "4", "-c", "1,2", "--rounds", "1", "--pause", "0", "--base-url", mock.base_url)
        measured = show.run("bench", *flags)[0]
        assert (
            show.run("bench", *flags, "--goodput", "e2el:0", code=7)[0]["loads"][0]["figures"]["attainment"]["high"]
            == 0
        )
    assert [run["requests"] for run in measured["runs"]] == [None, None]
    (path, _) = sorted((show.lab.folder / "measurements").glob("*.json"))
    show.take(path.read_text())


def _streams(show: Show) -> None:
    """What goes on until it is stopped: `status -w` prints one object a second, `mock-server` one when it listens."""
    run = show.lab.start("mock-server", "--port", "0", "--json")
    until(lambda: run.out.endswith("\n"), "the mock server says where it listens")
    run.kill(signal.SIGTERM)
    assert run.wait() in (0, 143)
    show.take(run.out.splitlines()[0])


def test_a_watched_job_is_a_stream_of_objects(make_lab: Callable[..., Lab]) -> None:
    lab = make_lab()
    lab.write_input(6)
    lab.write_spec(concurrency=2)
    with gated(lab, admits=1):
        job = lab.start("submit", "jobs/job.json", "--no-trial", "--json")
        lab.await_arrivals(1, run=job)
        watch = lab.start("status", "-w", "--json")
        until(lambda: "\n" in watch.out, "it is watched")
    assert watch.wait() == 0, watch.err
    stream = read_stream(watch.out)
    assert len(stream) >= 2
    assert {value["kind"] for value in stream} == {"job_status"}
    assert stream[-1]["state"] == "completed"
    assert job.wait() == 0
    assert len(read_stream(job.out)) == 1


def test_a_run_that_is_stopped_prints_a_last_object(make_lab: Callable[..., Lab]) -> None:
    lab = make_lab(latency_ms=200)
    lab.write_input(40)
    lab.write_spec(concurrency=2)
    run = lab.start("submit", "jobs/job.json", "--no-trial", "--json")
    lab.await_arrivals(3, run=run)
    run.kill(signal.SIGTERM)
    assert run.wait() == 143, run.err
    assert len(read_stream(run.out)) == 1


def test_a_key_more_or_less_is_no_longer_the_same_object(show: Show) -> None:
    """The schemas are held against what was really printed: each key is needed, and no other is allowed."""
    if not show.printed:
        test_every_command_prints_what_its_schema_says(show)
    for kind, values in show.printed.items():
        needed = output_schema(kind)["required"]
        for key in needed:
            less = copy.deepcopy(values[0])
            del less[key]
            assert not validator_of(kind).is_valid(less), (kind, key)
        assert not validator_of(kind).is_valid(values[0] | {"extra": 1}), kind
        seen = {key for value in values for key in value}
        described = set(output_schema(kind)["properties"])
        assert described <= seen, f"{kind}: described and never printed: {sorted(described - seen)}"


def test_every_command_is_part_of_the_story() -> None:
    source = Path(__file__).read_text()
    missing = [name for name in COMMANDS if f'"{name}"' not in source]
    assert missing == [], f"run {missing} with --json in this file"


def test_an_error_that_nobody_foresaw_is_an_object_too(lab: Lab) -> None:
    lab.write_input(2)
    lab.write_spec()
    (lab.folder / ".batchrun").mkdir()
    (lab.folder / ".batchrun" / "ledger.db").write_bytes(b"no database at all" * 100)
    run = lab.run("submit", "jobs/job.json", "--json")
    assert run.wait() == 1
    (error,) = read_stream(run.out)
    assert error["error"]["exit_code"] == 1
