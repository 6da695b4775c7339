"""Standard streams that are closed, full or gone, and files that are none: the run goes on, and nothing is replaced."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.lab import Lab, assert_accounts_agree

BATCHRUN = f"{sys.executable} -m batchrun"
ROOT = Path(__file__).resolve().parents[2]


def _shell(lab: Lab, command: str) -> subprocess.CompletedProcess[str]:
    env = {"OPENAI_BASE_URL": str(lab.base_url), "PYTHONPATH": str(ROOT), "PATH": os.environ["PATH"]}
    return subprocess.run(
        ["bash", "-c", command.replace("batchrun ", f"{BATCHRUN} ", 1)],
        cwd=lab.folder,
        env=env,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.fixture
def small(make_lab: Callable[..., Lab]) -> Lab:
    lab = make_lab(latency_ms=2)
    lab.write_input(30)
    lab.write_spec()
    return lab


@pytest.mark.parametrize("streams", ["2>&-", "2>&1 | head -c 1", ">&- 2>&-", "<&- 2>/dev/full"])
def test_a_run_does_not_need_anybody_to_listen(small: Lab, streams: str) -> None:
    _shell(small, f"batchrun submit jobs/job.json {streams}")
    assert small.standing().job.state == "completed"
    assert assert_accounts_agree(small).attempts.total == 30


def test_a_full_stdout_is_said_in_words(small: Lab) -> None:
    small.run("submit", "jobs/job.json")
    ended = _shell(small, "batchrun status --json >/dev/full")
    assert ended.returncode == 1
    assert "Traceback" not in ended.stderr
    assert "cannot be written" in ended.stderr


def test_a_spec_that_is_no_file_is_refused_and_not_waited_for(small: Lab) -> None:
    os.mkfifo(small.folder / "jobs" / "fifo.json")
    run = small.run("submit", "jobs/fifo.json")
    assert run.wait() == 2
    assert "no regular file" in run.err


def test_an_export_replaces_neither_devices_nor_the_input_nor_the_ledger(small: Lab) -> None:
    small.run("submit", "jobs/job.json")
    fifo, link = small.folder / "fifo", small.folder / "link"
    os.mkfifo(fifo)
    link.symlink_to(fifo)
    kept = {
        path: path.read_bytes() for path in (small.folder / "inputs/in.jsonl", small.folder / ".batchrun/ledger.db")
    }
    for target in ("fifo", "link", "inputs/in.jsonl", "inputs/../inputs/in.jsonl", ".batchrun/ledger.db"):
        run = small.run("export", "batch-001", "-o", target)
        assert run.wait() == 2, target
    assert fifo.is_fifo()
    assert all(path.read_bytes() == data for path, data in kept.items())
