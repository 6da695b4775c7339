"""When requests arrive: rates that are kept, gaps that vary as they should, and an order that favours no group."""

from itertools import pairwise
from pathlib import Path
from statistics import mean, pstdev

import pytest

from batchrun.bench.arrivals import Pattern
from batchrun.bench.plan import Candidate, Plan, Step, order
from batchrun.bench.workload import RequestSet
from batchrun.errors import UsageFault


def gaps(pattern: Pattern, *, count: int = 8_000, rate: float = 20.0) -> list[float]:
    due_s = pattern.schedule(count, rate, seed=3)
    assert due_s[0] == 0.0
    return [after - before for before, after in pairwise(due_s)]


@pytest.mark.parametrize(("text", "variation"), [("poisson", 1.0), ("gamma:0.25", 2.0), ("gamma:4", 0.5)])
def test_gaps_have_their_rate_and_vary_as_their_pattern_says(text: str, variation: float) -> None:
    found = gaps(Pattern.parse(text))
    assert mean(found) == pytest.approx(1 / 20, rel=0.06)
    assert pstdev(found) / mean(found) == pytest.approx(variation, rel=0.08)
    assert min(found) >= 0


def test_a_wave_has_troughs_and_peaks_and_its_rate_on_the_average() -> None:
    due_s = Pattern.parse("wave:10").schedule(20_000, 50.0, seed=1)
    days = due_s[-1] / 10
    assert len(due_s) / due_s[-1] == pytest.approx(50, rel=0.05)
    at_night = sum(at % 10 < 1 or at % 10 >= 9 for at in due_s) / days / 2
    at_noon = sum(4 <= at % 10 < 6 for at in due_s) / days / 2
    assert at_noon > 4 * at_night


def test_the_same_seed_gives_the_same_arrivals() -> None:
    for text in ("poisson", "gamma", "wave"):
        pattern = Pattern.parse(text)
        assert (
            pattern.schedule(50, 3.0, seed=7) == pattern.schedule(50, 3.0, seed=7) != pattern.schedule(50, 3.0, seed=8)
        )


@pytest.mark.parametrize("text", ["", "uniform", "gamma:", "gamma:0", "gamma:x", "poisson:2", "wave:1.2.3", "closed:1"])
def test_other_arrivals_are_refused(text: str) -> None:
    with pytest.raises(UsageFault, match="no arrivals"):
        Pattern.parse(text)


def test_two_groups_alternate_so_that_a_drift_favours_neither() -> None:
    assert "".join(group for group, _ in order(["A", "B"], 3)) == "ABBAAB"
    assert [number for _, number in order(["A"], 3)] == [1, 2, 3]


def test_a_plan_goes_load_by_load() -> None:
    candidates = tuple(Candidate(name=name, base_url="http://h/v1", model="m") for name in "AB")
    plan = Plan(id="b", folder=Path(), candidates=candidates, requests=RequestSet.named("short", 2), seed=0,
                levels=(1.0, 2.5), max_tokens=(64, 128), rounds=3)  # fmt: skip
    steps = list(plan.steps())
    assert len(steps) == 2 * 2 * 2 * 3
    assert [step.group for step in steps[:6]] == list("ABBAAB")
    assert [(step.max_tokens, step.level) for step in steps[::6]] == [(64, 1.0), (64, 2.5), (128, 1.0), (128, 2.5)]
    assert len({step.name for step in steps}) == len(steps)
    assert Step("A", 2.5, 64, 1).name == "A-l2p5-m64-r1"
