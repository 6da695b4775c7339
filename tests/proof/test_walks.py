"""Very many ways through the life of a few items, each with its seed: `walk(SEED)` repeats one."""

import time

import pytest

from tests.ledger.model import Model
from tests.proof.scale import IS_WHOLE, first_seed
from tests.proof.test_every_state import DoubtsCountAsUnsent, LateOwnersMoveTheItem, RescueGivesPending
from tests.proof.walks import STEPS, walk

WALKS = 10_000 if IS_WHOLE else 300


@pytest.mark.timeout(600)
def test_on_no_way_is_anything_billed_in_silence_and_each_leads_to_an_end() -> None:
    seed, began = first_seed(), time.process_time()
    print(f"seeds {seed} to {seed + WALKS - 1}")
    steps = [len(walk(number)) for number in range(seed, seed + WALKS)]
    print(f"{WALKS:,} walks, {sum(steps):,} steps, {WALKS / (time.process_time() - began) * 60:,.0f} walks a minute")
    assert sum(steps) > WALKS * STEPS * 0.8  # few ways end early
    assert walk(seed) == walk(seed)  # a seed is one way and no other


@pytest.mark.parametrize("broken", [RescueGivesPending, DoubtsCountAsUnsent, LateOwnersMoveTheItem])
def test_chance_finds_a_missing_rule_as_well(broken: type[Model]) -> None:
    def breaks(seed: int) -> bool:
        try:
            walk(seed, broken)
        except AssertionError as fault:
            return "seed" in fault.__notes__[0]
        return False

    assert any(breaks(seed) for seed in range(200))
