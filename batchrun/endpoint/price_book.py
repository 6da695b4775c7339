"""Published prices, out of the package genai-prices: what a provider asks for a model's tokens.

The package's figures are inside it: nothing is fetched. It is loaded only where a spec asks for it (about a second).
"""

from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import TYPE_CHECKING

from pydantic import ValidationError

from batchrun.core.prices import Price
from batchrun.errors import UsageFault

if TYPE_CHECKING:
    from genai_prices.types import ModelInfo, ModelPrice, Provider

NAME = "genai-prices"
WRITE_IT = 'write "price" into the spec'
# Paid beside the tokens of text, or in their place, for what is no text or for tools of the provider's own. A job that
# asks with text alone pays none of it.
_BESIDE_TEXT = ("audio", "image", "video", "document", "search")
_OF_TEXT = {"input_mtok", "output_mtok", "cache_read_mtok", "requests_kcount"}
_CACHE_WRITES = {"cache_write_mtok", "cache_write_5m_mtok", "cache_write_1h_mtok"}


class NoPrice(Exception):
    """The book has no price for this model, or none that can be reckoned with. Nothing was sent."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a price is wanted for."""

    model: str
    address: str  # of the endpoint; tells the provider where none is named
    provider: str | None  # as the user names it
    longest_bytes: int  # of any request's body: no prompt has more tokens
    answers_with_text: bool  # False: embeddings, which have no output
    asks_with_text: bool = True  # and with nothing else


def look_up(wanted: Wanted, *, on: datetime) -> Price:
    """Return the price of a model on a day, with its source: the package, its version, the day, whose price it is.

    Raises:
        NoPrice: the book does not know it, or its price is no single one per token.
        UsageFault: the package is not installed.
    """
    try:
        from genai_prices import __version__
        from genai_prices.data_snapshot import get_snapshot
    except ModuleNotFoundError:
        raise UsageFault(
            "'price_from' needs the package genai-prices, which is not installed",
            hint=f"install the extra: pip install '.[prices]'; or {WRITE_IT}",
        ) from None
    address = None if wanted.provider else wanted.address
    try:
        provider = get_snapshot().find_provider(None, wanted.provider, address)
    except LookupError:
        raise NoPrice(_no_provider(wanted)) from None
    model = provider.find_model(wanted.model, all_providers=get_snapshot().providers)
    if model is None:
        raise NoPrice(f"{NAME} {__version__} knows no model {wanted.model!r} of {provider.name}")
    source = f"{NAME} {__version__} for {on:%Y-%m-%d}: {provider.id}, {model.id}"
    return _price(wanted, provider, model, on=on, source=source[:300])


def _no_provider(wanted: Wanted) -> str:
    if wanted.provider is not None:
        return f"{NAME} knows no provider {wanted.provider!r}"
    return f"{NAME} knows no provider at {wanted.address}"


def _price(wanted: Wanted, provider: "Provider", model: "ModelInfo", *, on: datetime, source: str) -> Price:
    from genai_prices.types import TimeOfDateConstraint

    whose = f"{model.id} of {provider.name}"
    if isinstance(model.prices, list) and any(isinstance(one.constraint, TimeOfDateConstraint) for one in model.prices):
        raise NoPrice(f"the price of {whose} changes with the time of day")
    found = model.get_prices(on)
    if odd := [name for name, amount in vars(found).items() if amount is not None and not _is_known(name, wanted)]:
        raise NoPrice(f"{whose} has prices of its own for {', '.join(sorted(odd))}")
    amounts = {name: _flat(getattr(found, name), wanted, whose) for name in _OF_TEXT}
    read, written = amounts["cache_read_mtok"], _cache_write(found, wanted, whose)
    fresh, output = amounts["input_mtok"], amounts["output_mtok"]
    if fresh is None:
        raise NoPrice(f"{whose} is not charged by tokens of text")
    if output is None and wanted.answers_with_text:
        raise NoPrice(f"no price is known of what {whose} answers")
    try:
        return Price(
            input_per_1m_usd=fresh,
            output_per_1m_usd=output or Decimal(0),
            cached_input_per_1m_usd=read,
            cache_write_per_1m_usd=written,
            per_request_usd=(amounts["requests_kcount"] or Decimal(0)) / 1_000,
            source=source,
        )
    except ValidationError:
        raise NoPrice(f"the price of {whose} is outside of what can be reckoned with: {found}") from None


def _is_known(name: str, wanted: Wanted) -> bool:
    """Say whether a price is reckoned with, or is of what these requests do not ask for."""
    return name in _OF_TEXT | _CACHE_WRITES or (wanted.asks_with_text and any(word in name for word in _BESIDE_TEXT))


def _flat(amount: object, wanted: Wanted, whose: str) -> Decimal | None:
    """Return an amount that does not depend on the prompt's length; where it does, that of prompts of this job."""
    if amount is None or isinstance(amount, Decimal):
        return amount
    tiers = getattr(amount, "tiers", None)
    if tiers and wanted.longest_bytes > (start := min(tier.start for tier in tiers)):
        raise NoPrice(
            f"{whose} asks more for prompts of over {start:,} tokens, and the longest request has "
            f"{wanted.longest_bytes:,} bytes: which price holds cannot be told"
        )
    base: Decimal = amount.base  # type: ignore[attr-defined]
    return base


def _cache_write(found: "ModelPrice", wanted: Wanted, whose: str) -> Decimal | None:
    """Return the price of tokens written into a cache; None where it depends on how long they are to stay there.

    Without it such tokens leave a range open (`core.prices.cost_of`), in which both prices lie.
    """
    amounts = {_flat(getattr(found, name), wanted, whose) for name in _CACHE_WRITES} - {None}
    return amounts.pop() if len(amounts) == 1 else None
