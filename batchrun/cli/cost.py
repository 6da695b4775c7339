"""`batchrun cost`."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import click

from batchrun.cli.context import JOB, Context
from batchrun.cli.context import command as make_command
from batchrun.cli.say import dollars, emit, put
from batchrun.core.printable import clip, columns_taken, one_line
from batchrun.core.wording import several

if TYPE_CHECKING:
    from batchrun.core.prices import Price
    from batchrun.core.states import AttemptState
    from batchrun.ledger.receipt import Bill
    from batchrun.runner.receipt import Receipt

OUTCOMES = {"intent": "under way", "answered": "answered"}
LABEL_COLUMNS = 44


@make_command("batchrun cost batch-001")
@click.argument("job", type=JOB, required=False)
def command(context: Context, job: str | None) -> int:
    """Show what a job cost: for certain, at most on top, by cause and by endpoint. Without a name: the latest job.

    What the endpoints billed lies between the certain sum and both together. Requests that failed and were billed all
    the same are counted; so is what may have been billed.
    """
    from batchrun.runner.receipt import read_receipt
    from batchrun.runner.standing import latest_job

    with context.ledger() as ledger:
        receipt = read_receipt(ledger, job or latest_job(ledger))
    if context.json:
        emit("receipt", _json(receipt))
        return 0
    for line in receipt_text(receipt):
        put(line)
    return 0


def receipt_text(receipt: "Receipt") -> Iterator[str]:
    """Write a receipt for people."""
    total, name = receipt.total, receipt.job.task_id
    yield f"{name}: {_sum(receipt)}"
    yield f"  price     {price_text(receipt)}"
    if (limit := receipt.limit_pusd) is not None:
        left = max(0, limit - total.certain_pusd - total.possible_pusd)
        yield f"  limit     {dollars(limit)}, of which {dollars(left)} can still be spent"
    if not total.requests:
        return
    yield f"  requests  {total.requests:,}, {total.certain_requests:,} billed, {total.possible_requests:,} possibly"
    yield f"  tokens    {_tokens(total)}"
    if total.reported_requests:
        yield f"  reported  {dollars(total.reported_pusd)} for {several(total.reported_requests, 'request')}, {_THEIRS}"
    causes = [(_label(outcome, cause), bill) for (outcome, cause), bill in receipt.by_cause.items()]
    endpoints = [(one_line(address), bill) for address, bill in receipt.by_endpoint.items()]
    width = min(LABEL_COLUMNS, max(columns_taken(label) for label, _ in [("by endpoint", total), *causes, *endpoints]))
    for title, rows in (("by cause", causes), ("by endpoint", endpoints)):
        yield from _table(title, rows, width=width, is_priced=receipt.price is not None)
    if receipt.has_several_prices:
        yield "  prices"
        for address, price in receipt.prices.items():
            said = "not known" if price is None else f"{rates_text(price)} ({price.source or 'from the spec'})"
            yield f"    {one_line(address)}  {one_line(said)}"


_THEIRS = "by what the endpoint says of itself"


def _sum(receipt: "Receipt") -> str:
    total = receipt.total
    if not total.requests:
        return "nothing was sent yet"
    if receipt.price is None:
        billed = total.certain_requests + total.possible_requests
        return f"cost unknown: {several(billed, 'request')} billed, or possibly, and no price is known"
    words = f"{dollars(total.certain_pusd)} for certain"
    if total.possible_pusd:
        words += f", at most {dollars(total.possible_pusd)} on top"
    if unbounded := _unbounded(receipt, total):
        words += f", and {several(unbounded, 'request')} whose cost nothing bounds"
    return words


def _unbounded(receipt: "Receipt", bill: "Bill") -> int:
    return 0 if receipt.price is not None and receipt.price.is_free else bill.unbounded


def price_text(receipt: "Receipt") -> str:
    """Say what is charged, and where that is known from."""
    price = receipt.price
    if price is None:
        return 'not known: add "price" to the spec, and submit it again'
    words, source = rates_text(price), one_line(price.source or "from the spec")
    if receipt.has_several_prices:
        return f"at most {words} ({source}; each request costs what its own endpoint asks)"
    return f"{words} ({source})"


def rates_text(price: "Price") -> str:
    """Say what a million tokens cost, and a request."""
    from batchrun.core.prices import amount_text

    rates = [
        (price.input_per_1m_usd, "in"),
        (price.output_per_1m_usd, "out"),
        (price.cached_input_per_1m_usd, "in from a cache"),
        (price.cache_write_per_1m_usd, "in into a cache"),
    ]
    words = ", ".join(f"${amount_text(rate)} {kind}" for rate, kind in rates if rate is not None) + ", a million tokens"
    return words + (f"; ${amount_text(price.per_request_usd)} a request" if price.per_request_usd else "")


def _tokens(bill: "Bill") -> str:
    cached = f" ({bill.cached_tokens:,} from a cache)" if bill.cached_tokens else ""
    reasoning = f" ({bill.reasoning_tokens:,} of reasoning)" if bill.reasoning_tokens else ""
    blind = f"; {several(bill.without_usage, 'request')} without a count" if bill.without_usage else ""
    return f"{bill.prompt_tokens:,} in{cached}, {bill.completion_tokens:,} out{reasoning}{blind}"


def _label(outcome: "AttemptState", cause: str | None) -> str:
    return one_line(cause or OUTCOMES.get(outcome.value, outcome.value.replace("_", " ")))


def _table(title: str, rows: "Sequence[tuple[str, Bill]]", *, width: int, is_priced: bool) -> Iterator[str]:
    heads = [f"{'requests':>10}", f"{'billed':>10}", f"{'possibly':>10}"]
    heads += [f"{'certain':>13}", f"{'at most on top':>16}"] if is_priced else []
    yield f"  {title:<{width}}{''.join(heads)}"
    for label, bill in rows:
        label = clip(label, width)
        counts = f"{bill.requests:>10,}{_count(bill.certain_requests):>10}{_count(bill.possible_requests):>10}"
        money = f"{_money(bill.certain_pusd):>13}{_top(bill):>16}" if is_priced else ""
        yield f"  {label}{' ' * (width - columns_taken(label))}{counts}{money}"


def _count(count: int) -> str:
    return f"{count:,}" if count else "-"


def _money(pusd: int) -> str:
    return dollars(pusd) if pusd else "-"


def _top(bill: "Bill") -> str:
    return "unknown" if bill.unbounded else _money(bill.possible_pusd)


# -- for scripts ------------------------------------------------------------------------------------------------------


def _json(receipt: "Receipt") -> dict[str, Any]:
    from batchrun.core.prices import usd

    price, limit = receipt.price, receipt.limit_pusd
    return {
        "job_id": receipt.job.task_id,
        "price": None if price is None else price.model_dump(mode="json") | {"source": price.source or "spec"},
        "max_cost_usd": None if limit is None else usd(limit),
        "total": _bill_json(receipt, receipt.total),
        "by_cause": [
            {"outcome": outcome.value, "cause": cause, "bill": _bill_json(receipt, bill)}
            for (outcome, cause), bill in receipt.by_cause.items()
        ],
        "by_endpoint": [
            {"endpoint": endpoint, "bill": _bill_json(receipt, bill)} for endpoint, bill in receipt.by_endpoint.items()
        ],
    }


def _bill_json(receipt: "Receipt", bill: "Bill") -> dict[str, Any]:
    from batchrun.core.prices import usd

    is_priced = receipt.price is not None
    unbounded = _unbounded(receipt, bill)
    return {
        "requests": bill.requests,
        "certain_requests": bill.certain_requests,
        "possible_requests": bill.possible_requests,
        "certain_usd": usd(bill.certain_pusd) if is_priced else None,
        "possible_usd": usd(bill.possible_pusd) if is_priced and not unbounded else None,
        "unpriced_requests": unbounded,
        "requests_without_usage": bill.without_usage,
        "reported_usd": usd(bill.reported_pusd) if bill.reported_requests else None,
        "reported_requests": bill.reported_requests,
        "prompt_tokens": bill.prompt_tokens,
        "completion_tokens": bill.completion_tokens,
        "cached_tokens": bill.cached_tokens,
        "reasoning_tokens": bill.reasoning_tokens,
    }
