"""Published prices: found for the right provider and model, and said to be unknown where one figure does not hold."""

import sys
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal

import pytest

genai_prices = pytest.importorskip("genai_prices")

from genai_prices.data_snapshot import DataSnapshot, set_custom_snapshot  # noqa: E402
from genai_prices.types import (  # noqa: E402
    ClauseEquals,
    ConditionalPrice,
    ModelInfo,
    ModelPrice,
    Provider,
    StartDateConstraint,
    Tier,
    TieredPrices,
    TimeOfDateConstraint,
)

from batchrun.endpoint.price_book import NoPrice, Wanted, look_up  # noqa: E402
from batchrun.errors import UsageFault  # noqa: E402

ON = datetime(2026, 11, 30, 12, tzinfo=UTC)
NEXT_YEAR = datetime(2027, 2, 1, tzinfo=UTC)
HERE = Wanted("m", "https://api.acme.example/v1", None, longest_bytes=100_000, answers_with_text=True)


def usd(**amounts: str) -> ModelPrice:
    return ModelPrice(**{name: Decimal(amount) for name, amount in amounts.items()})


PLAIN = usd(input_mtok="1", output_mtok="2.5")
TIERED = TieredPrices(base=Decimal(1), tiers=[Tier(start=200_000, price=Decimal(2))])


@pytest.fixture
def book(request: pytest.FixtureRequest) -> Iterator[Provider]:
    """A book of one provider with one model, at the price that the test names."""
    prices = request.param
    models = [ModelInfo(id="acme-m", match=ClauseEquals(equals="m"), prices=prices)]
    provider = Provider(id="acme", name="Acme", api_pattern=r"https://api\.acme\.example", models=models)
    set_custom_snapshot(DataSnapshot([provider], from_auto_update=False))
    yield provider
    set_custom_snapshot(None)


def of(*prices: object) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("book", prices, indirect=True)


@of(PLAIN)
@pytest.mark.usefixtures("book")
def test_a_price_says_of_which_day_and_whose_it_is() -> None:
    price = look_up(HERE, on=ON)
    assert (price.input_per_1m_usd, price.output_per_1m_usd) == (Decimal(1), Decimal("2.5"))
    assert price.source == f"genai-prices {genai_prices.__version__} for 2026-11-30: acme, acme-m"
    assert look_up(replace(HERE, address="http://127.0.0.1:4000/v1", provider="acme"), on=ON) == price


@of(usd(input_mtok="1", output_mtok="2", cache_read_mtok="0.1", cache_write_mtok="1.25", requests_kcount="5"))
@pytest.mark.usefixtures("book")
def test_caches_and_requests_have_their_prices_too() -> None:
    price = look_up(HERE, on=ON)
    assert price.cached_input_per_1m_usd == Decimal("0.1")
    assert price.cache_write_per_1m_usd == Decimal("1.25")
    assert price.per_request_usd == Decimal("0.005")


@of(usd(input_mtok="1", output_mtok="2", cache_write_mtok="1.25", cache_write_1h_mtok="2"))
@pytest.mark.usefixtures("book")
def test_a_cache_write_that_costs_by_its_stay_leaves_a_range_open() -> None:
    assert look_up(HERE, on=ON).cache_write_per_1m_usd is None


@of(
    [
        ConditionalPrice(prices=PLAIN),
        ConditionalPrice(constraint=StartDateConstraint(NEXT_YEAR.date()), prices=usd(input_mtok="3", output_mtok="3")),
    ]
)
@pytest.mark.usefixtures("book")
def test_the_price_is_that_of_the_day() -> None:
    assert look_up(HERE, on=ON).input_per_1m_usd == Decimal(1)
    assert look_up(HERE, on=NEXT_YEAR).input_per_1m_usd == Decimal(3)


@of(ModelPrice(input_mtok=TIERED, output_mtok=Decimal(2)))
@pytest.mark.usefixtures("book")
def test_a_price_that_grows_with_the_prompt_holds_where_no_prompt_can_be_so_long() -> None:
    assert look_up(replace(HERE, longest_bytes=200_000), on=ON).input_per_1m_usd == Decimal(1)
    with pytest.raises(NoPrice, match=r"over 200,000 tokens, and the longest request has 200,001 bytes"):
        look_up(replace(HERE, longest_bytes=200_001), on=ON)


@of(usd(input_mtok="0.02"))
@pytest.mark.usefixtures("book")
def test_what_answers_with_numbers_needs_no_price_of_its_answers() -> None:
    assert look_up(replace(HERE, answers_with_text=False), on=ON).output_per_1m_usd == 0
    with pytest.raises(NoPrice, match="no price is known of what acme-m of Acme answers"):
        look_up(HERE, on=ON)


@of(
    [ConditionalPrice(prices=PLAIN, constraint=TimeOfDateConstraint(ON.timetz(), ON.timetz()))],
    usd(input_mtok="1", output_mtok="2", output_reasoning_mtok="3"),
    usd(input_audio_hours="1"),
    usd(input_mtok="10001", output_mtok="2"),
)
@pytest.mark.usefixtures("book")
def test_a_price_that_is_no_single_one_a_token_is_not_made_into_one() -> None:
    with pytest.raises(NoPrice):
        look_up(HERE, on=ON)


@of(usd(input_mtok="1", output_mtok="2", input_audio_mtok="10", web_searches_kcount="5"))
@pytest.mark.usefixtures("book")
def test_what_sound_costs_is_of_no_matter_to_text_and_makes_the_price_unknown_where_there_is_sound() -> None:
    assert look_up(HERE, on=ON).input_per_1m_usd == 1
    with pytest.raises(NoPrice, match="input_audio_mtok, web_searches_kcount"):
        look_up(replace(HERE, asks_with_text=False), on=ON)


@of(PLAIN)
@pytest.mark.usefixtures("book")
def test_who_or_what_is_not_in_the_book_is_named() -> None:
    for one, said in (
        (replace(HERE, model="m2"), "knows no model 'm2' of Acme"),
        (replace(HERE, address="http://127.0.0.1:8000/v1"), "knows no provider at http://127.0.0.1:8000/v1"),
        (replace(HERE, provider="nobody"), "knows no provider 'nobody'"),
    ):
        with pytest.raises(NoPrice, match=said):
            look_up(one, on=ON)


def test_without_the_package_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "genai_prices", None)
    with pytest.raises(UsageFault, match="not installed") as caught:
        look_up(HERE, on=ON)
    assert "[prices]" in str(caught.value.hint)


def test_the_package_itself_is_read_as_it_is_today() -> None:
    price = look_up(Wanted("gpt-4o-mini", "https://api.openai.com/v1", None, 1_000, True), on=ON)
    assert (price.input_per_1m_usd, price.output_per_1m_usd) == (Decimal("0.15"), Decimal("0.6"))
    assert price.cached_input_per_1m_usd == Decimal("0.075")
