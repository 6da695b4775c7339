"""The example with which a command's help begins is typed here as it stands, and does something useful."""

import os
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from batchrun.cli.main import COMMANDS
from tests.acceptance.endpoint import ScriptedEndpoint
from tests.docs.test_commands import free_port
from tests.docs.test_help import EVERY, example_of
from tests.lab import Lab, Run
from tests.process.steps import until

ROOT = Path(__file__).parents[2]
EXAMPLES = {name: shlex.split(example_of(command.get_help(context))) for name, command, context in EVERY}
REFUSED = {"status": 400, "json": {"error": {"message": "no", "code": "context_length_exceeded"}}}
CUT = {"break_at": "head", "billed": True}
USEFUL = (0, 3, 6)  # done; done, and some items failed; done, and some are in doubt
# In this order: after these there is nothing left for the others.
LAST = ("batchrun pause", "batchrun set", "batchrun cancel", "batchrun purge")
BEFORE = {"batchrun pause": ("retry-failed", "batch-001", "--all", "--no-run")}  # so that there is something to do
# These do not end by themselves, or take long: another test types them.
ELSEWHERE = {
    "batchrun bench": "tests/bench/test_bench_command.py",
    "batchrun demo": "README.md",
    "batchrun chaos": "tests/process/test_chaos.py",
    "batchrun compare": "tests/cli/test_compare.py",
    "batchrun db move": "tests/process/test_move.py",
    "batchrun mock-server": "tests/cli/test_help_examples.py",
    "batchrun worker": "tests/cli/test_help_examples.py",
}


@pytest.fixture
def clone(make_scripted: Callable[..., tuple[Lab, ScriptedEndpoint]]) -> Lab:
    """A folder with the job and the input that a clone brings; one item is refused, one is in doubt."""
    rules = [
        {"when": {"has": "charged twice"}, "replies": [REFUSED], "then": "again"},
        {"when": {"has": "tracking page"}, "replies": [CUT], "then": "again"},
    ]
    lab, _ = make_scripted(rules=rules, default={"answer": {}})
    for name in ("jobs", "inputs"):
        shutil.copytree(ROOT / name, lab.folder / name, dirs_exist_ok=True)
    return lab


@pytest.mark.slow
@pytest.mark.process
@pytest.mark.timeout(180)
def test_every_example_is_typed_and_does_something_useful(clone: Lab) -> None:
    order = sorted(
        (name for name in EXAMPLES if name not in ELSEWHERE), key=lambda name: LAST.index(name) if name in LAST else -1
    )
    order.remove("batchrun submit")
    for name in ["batchrun submit", *order]:
        program, *arguments = EXAMPLES[name]
        if name in BEFORE:
            assert clone.run(*BEFORE[name]).wait() == 0
        run = clone.run(*arguments)
        said = f"$ {shlex.join([program, *arguments])}\n{run.err}\n{run.out}"
        assert run.wait() in USEFUL, said
        assert "Traceback" not in said
        assert run.out.strip(), said


@pytest.mark.process
def test_the_mock_servers_example_serves(clone: Lab) -> None:
    _, *arguments = EXAMPLES["batchrun mock-server"]
    port = str(free_port())
    run = clone.start(*[port if word == "8000" else word for word in arguments])
    until(lambda: f":{port}/v1" in run.out, "the mock server says where it listens")
    ended = _submit_to(clone, port)
    assert ended.wait() in USEFUL, ended.err + ended.out
    run.kill(signal.SIGTERM)
    assert run.wait() in (0, 143)
    assert (clone.folder / "requests.jsonl").stat().st_size > 0


@pytest.mark.process
@pytest.mark.timeout(120)
def test_the_workers_example_works(clone: Lab, redis_url: str) -> None:
    clone.env |= {"BATCHRUN_BROKER": redis_url, "OPENAI_BASE_URL": clone.base_url or ""}
    env = {**os.environ, **clone.env}
    worker = subprocess.Popen([sys.executable, "-m", *EXAMPLES["batchrun worker"]], cwd=clone.folder, env=env)
    try:
        ended = clone.run("submit", "jobs/job.json", timeout_s=60)
        assert ended.wait() in USEFUL, ended.err + ended.out
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(30) in (0, 143)
    finally:
        worker.kill()
        worker.wait()


def _submit_to(lab: Lab, port: str) -> Run:
    return lab.run("submit", "jobs/job.json", env={"OPENAI_BASE_URL": f"http://127.0.0.1:{port}/v1"})


def test_no_command_is_left_out() -> None:
    for name, path in ELSEWHERE.items():
        text = (ROOT / path).read_text()
        assert name in text or f"make {name.split()[1]}" in text, name
    groups = {name.rpartition(" ")[0] for name in EXAMPLES if name.count(" ") == 2}
    assert {f"batchrun {name}" for name in COMMANDS} <= EXAMPLES.keys() | groups
