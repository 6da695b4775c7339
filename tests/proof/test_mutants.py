"""Every mutant is still one: its rule stands in the code, once, and the code without it is code."""

import pytest

from tests.proof.mutants import MUTANTS, ROOT, Mutant


@pytest.mark.parametrize("mutant", MUTANTS, ids=[mutant.name for mutant in MUTANTS])
def test_the_rule_stands_where_its_mutant_takes_it_away(mutant: Mutant) -> None:
    source = (ROOT / mutant.file).read_text(encoding="utf-8")
    compile(mutant.text(source), mutant.file, "exec")
    assert all((ROOT / test).exists() for test in mutant.tests)


def test_there_are_enough_and_none_has_another_ones_name() -> None:
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS) >= 12
