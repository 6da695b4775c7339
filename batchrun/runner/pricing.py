"""Prices that come later than the job: the limit on its cost must know what each request can cost before it is set."""

from collections.abc import Mapping
from typing import Any

from batchrun.core.prices import Price, worst_cost_pusd
from batchrun.core.request import most_output_tokens
from batchrun.ledger.jobs import Job
from batchrun.ledger.ledger import Ledger
from batchrun.ledger.unsent import requests_left, write_worst


def reprice(ledger: Ledger, job: Job, spec: Mapping[str, Any]) -> None:
    """Price the items that may yet be sent by a new spec, where its prices are others than the job's.

    Done before the spec is the job's: a limit that comes with the prices never meets an item without its most.
    """
    if spec["price"] == job.spec["price"]:
        return
    price = None if spec["price"] is None else Price.model_validate(spec["price"])
    for chunk in requests_left(ledger, job.id):
        write_worst(
            ledger,
            [
                (
                    item_id,
                    worst_cost_pusd(price, body_bytes=len(body), max_output_tokens=most_output_tokens(path, body)),
                )
                for item_id, path, body in chunk
            ],
        )
