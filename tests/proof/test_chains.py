"""A few random chains of deaths, others every day; `make proof` plays as many as one likes.

PROOF_SEED=N repeats the day that printed N.
"""

import json

import pytest

from tests.proof.chains import draw
from tests.proof.conftest import SEED, Prove

CHAINS = 2


@pytest.mark.process
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_chains_of_deaths_zombies_and_wrong_sweepers_lose_and_bill_nothing_twice(prove: Prove, redis_url: str) -> None:
    done = prove("chains", "--chains", str(CHAINS), "--seed", SEED, "--lanes", "2", "--redis", redis_url)
    print(done.stdout, done.stderr)
    assert done.returncode == 0, f"PROOF_SEED={SEED}"
    summary = json.loads(done.stdout.splitlines()[-1])
    assert summary["runs"] == CHAINS
    assert summary["silent_second_bills"] == summary["lost_items"] == 0


def test_a_chain_is_drawn_from_its_seed_alone_and_all_kinds_are_drawn() -> None:
    chains = [draw(f"7/{number}") for number in range(200)]
    assert chains == [draw(f"7/{number}") for number in range(200)]
    assert {(chain.policy, chain.backend, chain.is_shared) for chain in chains} == {
        (policy, backend, is_shared)
        for policy in ("hold", "retry")
        for backend in ("sqlite", "postgres")
        for is_shared in (False, True)
    }
    assert {chain.disturbance for chain in chains} == {None, "zombie", "wrong sweeper"}
    assert {chain.deaths for chain in chains} == {1, 2, 3, 4, 5}
    assert {chain.processes for chain in chains} == {1, 2, 3}
