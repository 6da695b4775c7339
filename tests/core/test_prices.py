"""Exact money, and percentiles."""

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchrun.core.outcome import Usage
from batchrun.core.prices import PUSD, Cost, Price, cost_of, to_pusd, usd, worst_cost_pusd
from batchrun.core.stats import mean, percentile

PRICE = Price(input_per_1m_usd=Decimal("0.15"), output_per_1m_usd=Decimal("0.6"))


def test_a_cost_is_exact() -> None:
    assert cost_of(PRICE, Usage(1_000_000, 0)) == Cost(150_000_000_000)
    assert cost_of(PRICE, Usage(1_000, 500)) == Cost(450_000_000)
    cheap = Price(input_per_1m_usd=Decimal("0.0375"), output_per_1m_usd=Decimal(0))
    assert cost_of(cheap, Usage(1, 0)) == Cost(37_500)


@pytest.mark.parametrize(
    ("price", "usage"),
    [
        (PRICE, Usage(10, None)),
        (PRICE, Usage(None, 10)),
        (None, Usage(10, 10)),
        (PRICE, Usage(10, 5, cached_tokens=11)),
    ],
    ids=["no answer's", "no prompt's", "no price", "more of the prompt cached than there is"],
)
def test_what_is_not_known_costs_none_never_nothing(price: Price | None, usage: Usage) -> None:
    assert cost_of(price, usage) is None


@pytest.mark.parametrize(
    ("more", "usage", "cost"),
    [
        ({}, Usage(1_000, 100, cached_tokens=800), Cost(90_000_000, 120_000_000)),
        ({"cached_input_per_1m_usd": "0.075"}, Usage(1_000, 100, cached_tokens=800), Cost(150_000_000)),
        ({"cached_input_per_1m_usd": 0}, Usage(1_000, 100, cached_tokens=800), Cost(90_000_000)),
        ({}, Usage(1_000, 100, cache_write_tokens=400), Cost(210_000_000, 60_000_000)),
        ({"cache_write_per_1m_usd": "0.1875"}, Usage(1_000, 100, cache_write_tokens=400), Cost(225_000_000)),
        ({}, Usage(1_000, 100, unnamed_tokens=50), Cost(210_000_000, 30_000_000)),
        ({"per_request_usd": "0.005"}, Usage(1_000, 100), Cost(5_210_000_000)),
    ],
)
def test_what_has_no_price_of_its_own_leaves_a_range(more: dict[str, object], usage: Usage, cost: Cost) -> None:
    assert cost_of(Price.model_validate(PRICE.model_dump() | more), usage) == cost


AMOUNTS = st.decimals(0, 100, places=4)


@given(AMOUNTS, AMOUNTS, st.none() | AMOUNTS, st.none() | AMOUNTS, AMOUNTS, st.data())
def test_the_worst_case_is_never_below_the_cost(
    fresh: Decimal, output: Decimal, cached: Decimal | None, write: Decimal | None, fee: Decimal, data: st.DataObject
) -> None:
    price = Price(
        input_per_1m_usd=fresh,
        output_per_1m_usd=output,
        cached_input_per_1m_usd=cached,
        cache_write_per_1m_usd=write,
        per_request_usd=fee,
    )
    prompt, answer = data.draw(st.integers(0, 10_000)), data.draw(st.integers(0, 10_000))
    read = data.draw(st.integers(0, prompt))
    written = 0 if write is None else data.draw(st.integers(0, prompt - read))
    cost = cost_of(price, Usage(prompt, answer, cached_tokens=read, cache_write_tokens=written))
    worst = worst_cost_pusd(price, prompt_tokens=prompt + data.draw(st.integers(0, 9)), max_output_tokens=answer)
    assert cost is not None
    assert worst is not None
    assert worst + 1 >= cost.certain_pusd + cost.open_pusd  # each is rounded up to a picodollar


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
