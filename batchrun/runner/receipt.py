"""A job's receipt: what its requests cost, by what they came to and by endpoint.

certain <= what the endpoints billed <= certain + possible
"""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, fields
from typing import TypeVar

from batchrun.core.prices import Price
from batchrun.core.spec import prices_of
from batchrun.core.states import AttemptState
from batchrun.ledger import jobs as job_moves
from batchrun.ledger.jobs import Job
from batchrun.ledger.ledger import Ledger
from batchrun.ledger.receipt import Bill, BillLine, read_bills

Key = TypeVar("Key", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Receipt:
    """What a job cost."""

    job: Job
    price: Price | None
    total: Bill
    by_cause: dict[tuple[AttemptState, str | None], Bill]  # the dearest first
    by_endpoint: dict[str, Bill]  # the dearest first

    @property
    def has_several_prices(self) -> bool:
        """True where `price` is the most that an endpoint asks, and another one asks less."""
        prices = list(self.prices.values())
        return any(price != prices[0] for price in prices)

    @property
    def prices(self) -> dict[str, Price | None]:
        """What each of several endpoints asks, by its name."""
        found = prices_of(self.job.spec)
        return {name: None if price is None else Price.model_validate(price) for name, price in found.items()}

    @property
    def limit_pusd(self) -> int | None:
        return self.job.max_cost_pusd


def read_receipt(ledger: Ledger, task_id: str) -> Receipt:
    """Add up what the ledger knows of a job's requests.

    Raises:
        JobNotFound: there is no such job.
    """
    with ledger.read() as connection:
        job = job_moves.find_job(connection, task_id)
        lines = read_bills(connection, job.id)
    price = None if job.spec["price"] is None else Price.model_validate(job.spec["price"])
    return Receipt(
        job=job,
        price=price,
        total=add_up([line.bill for line in lines]),
        by_cause=_grouped(lines, lambda line: (line.outcome, line.cause)),
        by_endpoint=_grouped(lines, lambda line: line.endpoint),
    )


def add_up(bills: Sequence[Bill]) -> Bill:
    """Add bills up, figure by figure."""
    return Bill(**{field.name: sum(getattr(bill, field.name) for bill in bills) for field in fields(Bill)})


def _grouped(lines: Sequence[BillLine], key_of: Callable[[BillLine], Key]) -> dict[Key, Bill]:
    grouped: dict[Key, list[Bill]] = {}
    for line in lines:
        grouped.setdefault(key_of(line), []).append(line.bill)
    added = {key: add_up(bills) for key, bills in grouped.items()}
    return dict(sorted(added.items(), key=_dearness))


def _dearness(entry: tuple[Hashable, Bill]) -> tuple[int, int, int, str]:
    bill = entry[1]
    return -bill.certain_pusd, -bill.possible_pusd, -bill.requests, str(entry[0])
