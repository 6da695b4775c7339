"""Targets in vLLM's syntax, and who meets them."""

import dataclasses

import pytest

from batchrun.core.measuring.figures import figures_of
from batchrun.core.measuring.targets import Targets
from tests.core.measuring.traces import answered, failed


def test_targets_are_read_as_vllm_writes_them() -> None:
    wanted = Targets(ttft=2000, tpot=100, e2el=30000)
    assert Targets.parse(["ttft:2000", "tpot:100", "e2el:30000"]) == wanted
    assert Targets.parse(["ttft:2000 tpot:100,e2el:30000"]) == wanted
    assert Targets.parse([]).by_name == {}


@pytest.mark.parametrize("text", ["ttft", "itl:5", "ttft:x", "ttft:-1", "ttft:nan", "ttft:inf", "ttft:1 ttft:2", ":5"])
def test_a_wrong_target_is_named(text: str) -> None:
    with pytest.raises(ValueError, match="target"):
        Targets.parse([text])


def test_a_failure_is_a_miss_and_goodput_counts_the_good_ones_alone() -> None:
    run = [answered(100, 150, sent_s=0.0), answered(100, 400, sent_s=1.0), failed(1, sent_s=1.0),
           answered(300, 350, sent_s=9.65)]  # fmt: skip
    targets = Targets(ttft=200, tpot=100)
    assert [targets.is_met(one) for one in run] == [True, False, False, False]
    figures = figures_of(run, targets=targets)
    assert (figures.attainment, figures.goodput) == (0.25, pytest.approx(1 / 10))


def test_a_target_is_met_by_what_takes_just_as_long() -> None:
    assert Targets(ttft=200).is_met(answered(200))


def test_one_token_misses_no_tpot_and_an_unknown_number_of_tokens_does() -> None:
    assert Targets(tpot=1).is_met(answered(100))
    assert not Targets(tpot=1).is_met(dataclasses.replace(answered(100, 101), output_tokens=None))
    assert not Targets(ttft=1000).is_met(dataclasses.replace(answered(1), first_token_s=None))
