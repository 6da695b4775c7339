"""A part of the crash matrix, another one every day. `make proof` runs all of it.

PROOF_SEED=N repeats the day that printed N.
"""

import json
from pathlib import Path

import pytest

from tests.proof.conftest import SEED, Prove

CASES, PARTS = 120, 2


@pytest.mark.process
@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("part", range(1, PARTS + 1))
def test_wherever_a_process_dies_nothing_is_billed_twice_or_lost(part: int, counts: Path, prove: Prove) -> None:
    share = ("--cases", str(CASES), "--part", f"{part}/{PARTS}", "--seed", SEED)
    done = prove("matrix", *share, "--counts", str(counts), "--lanes", "2")
    print(done.stdout, done.stderr)
    summary = json.loads(done.stdout.splitlines()[-1])
    assert done.returncode == 0, f"PROOF_SEED={SEED}"
    assert summary["deaths"] >= 1.5 * CASES / PARTS  # where one is cleared up after, others die: seven in three cases
    assert summary["silent_second_bills"] == summary["lost_items"] == 0
