"""How many requests at once, on the command line."""

from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from batchrun.core.concurrency import Concurrency


class AtOnce(click.ParamType["Concurrency"]):
    """A number, "auto", or a range."""

    name = "n|auto|n-n"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> "Concurrency":
        from batchrun.core.concurrency import Concurrency

        if isinstance(value, Concurrency):
            return value
        text = str(value).replace(",", "").replace("_", "")
        try:
            return Concurrency.of(int(text) if text.isascii() and text.isdecimal() else text)
        except ValueError as error:
            self.fail(f"{value!r} {error}", param, ctx)
