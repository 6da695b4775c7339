"""A disk that is full anywhere, a ledger that another tool locks, a clock that is set back: no paid answer is lost."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.proof.conftest import ROOT, SEED
from tests.proof.disk import LARGEST_BYTES, SMALLEST_BYTES, draw

CUTS = 5


@pytest.mark.process
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_troubles_of_disk_lock_and_clock_stop_a_job_in_words_at_most_and_lose_nothing(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.proof.disk", "--cuts", str(CUTS), "--seed", SEED, "--lanes", "3"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    print(done.stdout, done.stderr)
    assert done.returncode == 0, f"PROOF_SEED={SEED}"
    *_, stopped, _, summary = done.stdout.splitlines()
    assert int(stopped.rpartition(" ")[2]) >= CUTS // 2, stopped
    assert json.loads(summary)["runs"] == CUTS + 3


def test_the_cut_points_are_spread_over_all_that_a_job_writes() -> None:
    cuts = [trouble.at for trouble in draw(20, 7) if trouble.kind == "full"]
    assert cuts == sorted(cuts)
    assert cuts[0] < SMALLEST_BYTES + (LARGEST_BYTES - SMALLEST_BYTES) / 10
    assert cuts[-1] > LARGEST_BYTES - (LARGEST_BYTES - SMALLEST_BYTES) / 10
