"""What is said of a cost where no price is known, or was known only later: never 0, and never silence."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from batchrun.cli.cost import receipt_text
from batchrun.cli.standing import money_text, standing_json
from batchrun.ledger.ledger import Ledger
from batchrun.runner.receipt import read_receipt
from batchrun.runner.standing import Standing, read_standing
from tests.ledger.desk import ANSWERED, ANSWERED_BLIND, UNKNOWN, Desk, line
from tests.runner.jobs import a_job

PRICE = {"input_per_1m_usd": "1", "output_per_1m_usd": "2"}
FAR, NEAR = "https://api.example.com/v1", "http://127.0.0.1:8000/v1"


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    """A job with an answer, an answer without usage and a doubt, none of which had a price when it was sent."""
    ledger = Ledger(f"sqlite:///{tmp_path}/ledger.db", folder=tmp_path)
    opened = Desk.open(ledger, [line(number, worst_pusd=None) for number in range(3)])
    opened.force_job(spec=json.dumps(a_job().spec))
    for claimed, what in zip(opened.claim(), [replace(ANSWERED, cost_pusd=None), ANSWERED_BLIND, UNKNOWN], strict=True):
        opened.settle(claimed, what)
    yield opened
    ledger.close()


def standing(desk: Desk, *, price: dict[str, str] | None, address: str) -> Standing:
    found = read_standing(desk.ledger, desk.job.task_id)
    spec = {**a_job().spec, "price": price, "resolved_base_url": address}
    return replace(found, job=replace(found.job, spec=spec))


def test_a_cost_that_nobody_can_know_is_said_to_be_unknown(desk: Desk) -> None:
    far, near = (standing(desk, price=None, address=address) for address in (FAR, NEAR))
    assert money_text(far)[-1] == "  cost      unknown: the spec has no price"
    assert not any("cost" in text for text in money_text(near)), "one's own machine"
    billing = standing_json(far)["billing"]
    assert (billing["certain_usd"], billing["possible_usd"]) == (None, None)


def test_a_price_that_came_later_does_not_hide_what_was_sent_without(desk: Desk) -> None:
    late = standing(desk, price=PRICE, address=FAR)
    assert money_text(late)[-1] == "  cost      $0.00 certain, and 3 requests whose cost nothing bounds"
    billing = standing_json(late)["billing"]
    assert (billing["certain_usd"], billing["possible_usd"]) == ("0.00", None)


def test_a_receipt_without_a_price_counts_and_sums_up_nothing(desk: Desk) -> None:
    receipt = read_receipt(desk.ledger, desk.job.task_id)
    first, price, *rest = receipt_text(receipt)
    assert first.endswith(": cost unknown: 3 requests billed, or possibly, and no price is known")
    assert price == '  price     not known: add "price" to the spec, and submit it again'
    assert not any("$" in text for text in rest)
