"""Money: prices per token and what an attempt costs, exactly, in picodollars (1 USD = 10**12 pUSD)."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import ROUND_CEILING, Decimal
from math import isfinite

from pydantic import BaseModel, ConfigDict, Field, field_validator

from batchrun.core.outcome import Usage

PUSD = 10**12
MOST_PUSD = 4 * 10**18  # 4 million USD: what one sum can be in a ledger of 64-bit integers
_AMOUNT = re.compile(r"[0-9]+(\.[0-9]+)?")  # Decimal itself would take " 1_0 ", "1e3" and the digits of any script
_PER_TOKEN = Decimal(PUSD) / 1_000_000


AMOUNTS = (
    "input_per_1m_usd",
    "output_per_1m_usd",
    "cached_input_per_1m_usd",
    "cache_write_per_1m_usd",
    "per_request_usd",
)


class Price(BaseModel):
    """What the endpoint charges, in USD per million tokens. What is None is not known."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    input_per_1m_usd: Decimal = Field(ge=0, le=10_000, description="USD per million prompt tokens")
    output_per_1m_usd: Decimal = Field(ge=0, le=10_000, description="USD per million completion tokens")
    cached_input_per_1m_usd: Decimal | None = Field(
        default=None, ge=0, le=10_000, description="USD per million prompt tokens read from the provider's cache"
    )
    cache_write_per_1m_usd: Decimal | None = Field(
        default=None, ge=0, le=10_000, description="USD per million prompt tokens written into the provider's cache"
    )
    per_request_usd: Decimal = Field(default=Decimal(0), ge=0, le=10_000, description="USD per request, beside tokens")
    source: str | None = Field(default=None, min_length=1, max_length=300, description="where these amounts are from")

    @property
    def is_free(self) -> bool:
        """True where nothing of a request costs anything."""
        return not any(
            (self.input_per_1m_usd, self.output_per_1m_usd, self.cache_write_per_1m_usd, self.per_request_usd)
        )

    @field_validator(*AMOUNTS, mode="before")
    @classmethod
    def _exact(cls, value: object) -> object:
        return exact_amount(value)


def dearest(prices: Sequence[Price | None]) -> Price | None:
    """Return a price that none of these is above; None where one of them is not known.

    Amounts that only some of them know stand as they know them; a source that all of them share stands too.
    """
    if not prices or any(price is None for price in prices):
        return None
    columns = {name: [getattr(price, name) for price in prices] for name in AMOUNTS}
    known = {name: [amount for amount in amounts if amount is not None] for name, amounts in columns.items()}
    sources = {price.source for price in prices if price is not None}
    source = sources.pop() if len(sources) == 1 else None
    return Price(**{name: max(amounts) for name, amounts in known.items() if amounts}, source=source)


def exact_amount(value: object) -> object:
    """Turn a JSON number or a string of digits into a Decimal of just these; leave anything else to the check."""
    if isinstance(value, str):
        return Decimal(value) if _AMOUNT.fullmatch(value) else value
    if isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value):
        return Decimal(str(value))
    return value


@dataclass(frozen=True, slots=True)
class Cost:
    """What an attempt costs by its usage, in picodollars: so much for certain, and at most so much on top."""

    certain_pusd: int
    open_pusd: int = 0


def cost_of(price: Price | None, usage: Usage) -> Cost | None:
    """Return what a reported usage costs, rounded up to a picodollar; None where that cannot be told at all.

    A count for which there is no price leaves a range open: tokens read from a cache cost at most the price of input,
    tokens written into one at least that and at most twice as much (no provider known to us asks for more), and those
    that only the total counts may be output, or nothing.
    """
    prompt, completion = usage.prompt_tokens, usage.completion_tokens
    read, written = usage.cached_tokens or 0, usage.cache_write_tokens or 0
    if price is None or prompt is None or completion is None or read + written > prompt:
        return None
    fresh, output = price.input_per_1m_usd, price.output_per_1m_usd
    certain, on_top = fresh * (prompt - read - written) + output * completion, output * usage.unnamed_tokens
    if read:
        certain += (price.cached_input_per_1m_usd or 0) * read
        on_top += fresh * read if price.cached_input_per_1m_usd is None else 0
    if written:
        certain += (fresh if price.cache_write_per_1m_usd is None else price.cache_write_per_1m_usd) * written
        on_top += fresh * written if price.cache_write_per_1m_usd is None else 0
    return Cost(_rounded(certain * _PER_TOKEN + price.per_request_usd * PUSD), _rounded(on_top * _PER_TOKEN))


def _rounded(exact: Decimal) -> int:
    return min(int(exact.to_integral_value(ROUND_CEILING)), MOST_PUSD)


def worst_cost_pusd(price: Price, *, prompt_tokens: int, max_output_tokens: int) -> int:
    """Return the most that an attempt of at most so many tokens can cost.

    A token is at least one byte of the request's body for the byte-level vocabularies in use, so the body's length
    bounds the tokens of a prompt that is text (`core.bounds`).
    """
    dearest = max(price.input_per_1m_usd, price.cached_input_per_1m_usd or 0, price.cache_write_per_1m_usd or 0)
    of_tokens = dearest * prompt_tokens + price.output_per_1m_usd * max_output_tokens
    return _rounded(of_tokens * _PER_TOKEN + price.per_request_usd * PUSD)


def to_pusd(amount_usd: Decimal | str | None) -> int | None:
    """Return an amount of USD in picodollars, rounded down; None of None."""
    return None if amount_usd is None else int(Decimal(amount_usd) * PUSD)


def usd(pusd: int) -> str:
    """Write picodollars as a decimal string of USD without needless zeros, at least two places."""
    sign, whole, rest = "-" if pusd < 0 else "", *divmod(abs(pusd), PUSD)
    places = f"{rest:012d}".rstrip("0").ljust(2, "0")
    return f"{sign}{whole}.{places}"


def amount_text(amount: Decimal) -> str:
    """Write an amount as it was given, without an exponent or needless zeros."""
    return f"{amount.normalize():f}"
