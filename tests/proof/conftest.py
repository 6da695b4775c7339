"""What the proof's tests share: the counted hits of every scene, counted once for all test processes."""

import datetime
import fcntl
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SEED = os.environ.get("PROOF_SEED") or str(datetime.date.today().toordinal())  # another every day
Prove = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="session")
def prove(tmp_path_factory: pytest.TempPathFactory, make_postgres_database: Callable[[], str]) -> Prove:
    """Return a function that runs a module of the proof in a process that has imported nothing of the product yet."""
    folder = tmp_path_factory.mktemp("proof")
    url = make_postgres_database()

    def run(module: str, *arguments: str) -> "subprocess.CompletedProcess[str]":
        command = [sys.executable, "-m", f"tests.proof.{module}", "--postgres", url, *arguments]
        return subprocess.run(
            command, cwd=ROOT, env=os.environ | {"TMPDIR": str(folder)}, capture_output=True, text=True
        )

    return run


@pytest.fixture(scope="session")
def counts(tmp_path_factory: pytest.TempPathFactory, prove: Prove) -> Path:
    """How often each scene reaches each point."""
    folder = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        folder = folder.parent  # that of all workers
    path = folder / "proof-counts.json"
    with (folder / "proof-counts.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not path.exists():
            done = prove("matrix", "--cases", "0", "--counts", str(path))
            assert done.returncode == 0, done.stdout + done.stderr
    return path
