"""Amounts of money on the command line."""

from decimal import Decimal
from typing import Any

import click


class Money(click.ParamType[Decimal]):
    """A positive amount of USD, within what a ledger can hold."""

    name = "usd"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Decimal:
        from batchrun.core.prices import exact_amount

        amount = exact_amount(str(value).removeprefix("$"))
        if not isinstance(amount, Decimal):
            self.fail(f"{value!r} is not an amount of money, such as 2.50", param, ctx)
        if not 0 < amount <= 1_000_000:
            self.fail(f"{value!r} must be above 0 and at most 1,000,000", param, ctx)
        return amount
