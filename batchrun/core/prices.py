"""Money: prices per token and what an attempt costs, exactly, in picodollars (1 USD = 10**12 pUSD)."""

import re
from decimal import ROUND_CEILING, Decimal
from math import isfinite

from pydantic import BaseModel, ConfigDict, Field, field_validator

from batchrun.core.outcome import Usage

PUSD = 10**12
MOST_PUSD = 4 * 10**18  # 4 million USD: what one sum can be in a ledger of 64-bit integers
_AMOUNT = re.compile(r"[0-9]+(\.[0-9]+)?")  # Decimal itself would take " 1_0 ", "1e3" and the digits of any script
_PER_TOKEN = Decimal(PUSD) / 1_000_000


class Price(BaseModel):
    """What the endpoint charges, in USD per million tokens."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    input_per_1m_usd: Decimal = Field(ge=0, le=10_000, description="USD per million prompt tokens")
    output_per_1m_usd: Decimal = Field(ge=0, le=10_000, description="USD per million completion tokens")

    @field_validator("*", mode="before")
    @classmethod
    def _exact(cls, value: object) -> object:
        return exact_amount(value)


def exact_amount(value: object) -> object:
    """Turn a JSON number or a string of digits into a Decimal of just these; leave anything else to the check."""
    if isinstance(value, str):
        return Decimal(value) if _AMOUNT.fullmatch(value) else value
    if isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value):
        return Decimal(str(value))
    return value


def cost_pusd(price: Price | None, *, prompt_tokens: int | None, completion_tokens: int | None) -> int | None:
    """Return what these tokens cost, rounded up to a picodollar; None when the price or a count is unknown."""
    if price is None or prompt_tokens is None or completion_tokens is None:
        return None
    exact = (price.input_per_1m_usd * prompt_tokens + price.output_per_1m_usd * completion_tokens) * _PER_TOKEN
    return min(int(exact.to_integral_value(ROUND_CEILING)), MOST_PUSD)


def usage_cost_pusd(price: Price | None, usage: Usage) -> int | None:
    """Return what a reported usage costs; None when it is not known."""
    return cost_pusd(price, prompt_tokens=usage.prompt_tokens, completion_tokens=usage.completion_tokens)


def worst_cost_pusd(price: Price | None, *, body_bytes: int, max_output_tokens: int) -> int | None:
    """Return the most that one attempt can cost.

    A token is at least one byte of the request's body for the byte-level vocabularies in use, so the body's length
    bounds the prompt's tokens.
    """
    return cost_pusd(price, prompt_tokens=body_bytes, completion_tokens=max_output_tokens)


def to_pusd(amount_usd: Decimal | str | None) -> int | None:
    """Return an amount of USD in picodollars, rounded down; None of None."""
    return None if amount_usd is None else int(Decimal(amount_usd) * PUSD)


def usd(pusd: int) -> str:
    """Write picodollars as a decimal string of USD without needless zeros, at least two places."""
    sign, whole, rest = "-" if pusd < 0 else "", *divmod(abs(pusd), PUSD)
    places = f"{rest:012d}".rstrip("0").ljust(2, "0")
    return f"{sign}{whole}.{places}"
