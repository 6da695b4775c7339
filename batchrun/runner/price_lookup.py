"""Prices that a spec asks to be looked up: found before anything is written or sent, and kept in it as if written."""

import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from batchrun.core.bounds import beyond_text
from batchrun.core.line import EMBEDDINGS
from batchrun.core.prices import Price
from batchrun.endpoint.price_book import WRITE_IT, NoPrice, Wanted, look_up
from batchrun.errors import BadInput, Fault
from batchrun.files.inputs import InputItem, read_items
from batchrun.runner.check import Checked


def with_prices(checked: Checked, addresses: Sequence[str], *, where: str, on: datetime) -> Checked:
    """Return the same with a price for each endpoint that has none, if the spec says where prices are from.

    Args:
        addresses: of the endpoints, in the order of the spec.
        where: what to call the spec in messages.
        on: the day whose prices are meant.

    Raises:
        BadInput: a price is not known, or the lines ask for models of different prices: naming each.
        UsageFault: the package that has the prices is not installed.
    """
    spec = checked.spec
    if spec.price_from is None or spec.dearest is not None:
        return checked
    asked = _Asked(checked)
    prices: list[Price | None] = [one.price or spec.price for one in spec.endpoints] or [spec.price]
    faults: list[Fault] = []
    for place, (price, address) in enumerate(zip(prices, addresses, strict=True)):
        try:
            own = spec.endpoints[place].model if spec.endpoints else None
            prices[place] = price or asked.price(address, spec.price_from, on, own=own)
        except NoPrice as error:
            faults.append(Fault(f"{where}: 'price_from'", str(error), f"{WRITE_IT}, or take price_from out"))
    if faults:
        raise BadInput(faults)
    if not spec.endpoints:
        return replace(checked, spec=spec.model_copy(update={"price": prices[0]}))
    priced = tuple(one.model_copy(update={"price": price}) for one, price in zip(spec.endpoints, prices, strict=True))
    return replace(checked, spec=spec.model_copy(update={"endpoints": priced}))


class _Asked:
    """What the requests of an input ask for, read once."""

    def __init__(self, checked: Checked) -> None:
        self._model = checked.spec.model
        self._models: dict[str, None] = {}
        self._longest_bytes = 0
        self._answers_with_text = False
        self._asks_with_text = True
        self._tiers: set[str] = set()
        for item in read_items(checked.input, checked.defaults, checked.survey):
            if isinstance(item, InputItem):
                self._models[item.request.model] = None
                self._longest_bytes = max(self._longest_bytes, len(item.request.body))
                self._answers_with_text |= item.request.path != EMBEDDINGS
                self._asks_with_text &= beyond_text(item.request.body) is None
                self._tiers |= _tiers(item.request.body)

    def price(self, address: str, price_from: str, on: datetime, *, own: str | None) -> Price:
        """Return the one price that all these requests have at an address.

        Args:
            own: the name that the job's model has there, where it is another.

        Raises:
            NoPrice: it is not known, or there are several.
        """
        if self._tiers:
            raise NoPrice(f"requests of service_tier {', '.join(sorted(self._tiers))} have a price of their own")
        provider = price_from.partition(":")[2] or None
        found: dict[str, Price] = {}
        for asked in self._models:
            model = own or asked if asked == self._model else asked
            wanted = Wanted(
                model, address, provider, self._longest_bytes, self._answers_with_text, self._asks_with_text
            )
            found[model] = look_up(wanted, on=on)
        amounts = {price.model_copy(update={"source": None}) for price in found.values()}
        if len(amounts) > 1:
            raise NoPrice(f"the lines ask for models of different prices: {', '.join(sorted(found))}")
        return next(iter(found.values()))


def _tiers(body: bytes) -> set[str]:
    """Return the service tier that a request asks for, where it is not the usual one."""
    if b'"service_tier"' not in body:
        return set()
    tier = json.loads(body).get("service_tier")
    return set() if tier in (None, "default") else {str(tier)}
