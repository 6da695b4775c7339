"""Exact money, percentiles, and which items are tried first."""

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchrun.core.outcome import Usage
from batchrun.core.prices import PUSD, Price, cost_pusd, to_pusd, usage_cost_pusd, usd, worst_cost_pusd
from batchrun.core.sample import choose
from batchrun.core.stats import mean, percentile

PRICE = Price(input_per_1m_usd=Decimal("0.15"), output_per_1m_usd=Decimal("0.6"))


def test_a_cost_is_exact() -> None:
    assert cost_pusd(PRICE, prompt_tokens=1_000_000, completion_tokens=0) == 150_000_000_000
    assert usd(cost_pusd(PRICE, prompt_tokens=1_000, completion_tokens=500) or 0) == "0.00045"
    cheap = Price(input_per_1m_usd=Decimal("0.0375"), output_per_1m_usd=Decimal(0))
    assert cost_pusd(cheap, prompt_tokens=1, completion_tokens=0) == 37_500


def test_what_is_not_known_costs_none_never_nothing() -> None:
    assert usage_cost_pusd(PRICE, Usage(10, None)) is None
    assert usage_cost_pusd(None, Usage(10, 10)) is None


@given(st.integers(0, 10_000), st.integers(0, 10_000), st.integers(0, 10_000))
def test_the_worst_case_is_never_below_the_cost(prompt: int, answer: int, slack: int) -> None:
    cost = cost_pusd(PRICE, prompt_tokens=prompt, completion_tokens=answer)
    worst = worst_cost_pusd(PRICE, body_bytes=prompt + slack, max_output_tokens=answer)
    assert cost is not None
    assert worst is not None
    assert worst >= cost


@pytest.mark.parametrize(
    ("pusd", "text"),
    [(0, "0.00"), (PUSD, "1.00"), (1, "0.000000000001"), (-PUSD // 2, "-0.50"), (2_090_000_000_000, "2.09")],
)
def test_money_is_written_without_needless_zeros(pusd: int, text: str) -> None:
    assert usd(pusd) == text
    assert to_pusd(text) == pusd


@given(st.lists(st.floats(0, 1e6), min_size=1), st.floats(0, 100))
def test_a_percentile_lies_between_the_extremes(values: list[float], p: float) -> None:
    found = percentile(values, p)
    assert found is not None
    assert min(values) <= found <= max(values)


def test_percentiles_interpolate_linearly() -> None:
    assert percentile([1.0, 2.0, 3.0, 4.0], 50) == 2.5
    assert percentile([10.0, 20.0], 95) == pytest.approx(19.5)
    assert percentile([], 50) is None
    assert mean([]) is None


@given(st.integers(0, 3_000), st.integers(0, 60), st.sampled_from(["mixed", "head", "random"]), st.integers(0, 99))
def test_a_sample_has_its_size_and_can_be_repeated(total: int, size: int, method: str, seed: int) -> None:
    chosen = choose(total, size=size, method=method, seed=seed)
    assert len(chosen) == min(total, size)
    assert all(0 <= position < total for position in chosen)
    assert chosen == choose(total, size=size, method=method, seed=seed)


def test_a_mixed_sample_has_the_head_and_some_from_anywhere() -> None:
    chosen = choose(100_000, size=10, method="mixed", seed=0)
    assert {0, 1, 2} <= chosen
    assert max(chosen) > 10_000
    assert chosen != choose(100_000, size=10, method="mixed", seed=1)
