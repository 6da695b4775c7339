"""An order that comes later than the job: every item that may yet be sent gets its rank in the new one."""

from collections.abc import Mapping
from typing import Any

from batchrun.core.order import rank_of
from batchrun.core.request import most_output_tokens
from batchrun.ledger.jobs import Job
from batchrun.ledger.ledger import Ledger
from batchrun.ledger.unsent import requests_left, write_ranks


def rerank(ledger: Ledger, job: Job, spec: Mapping[str, Any]) -> None:
    """Rank the items that may yet be sent as a new spec says, where its order is another than the job's.

    Done before the order is the job's, so that a death in between leaves it to be done again. Whoever claims
    meanwhile goes by what each item has: every item is claimed once, whatever its rank.
    """
    order = spec["order"]
    if order == job.spec.get("order", "input"):
        return
    for chunk in requests_left(ledger, job.id):
        ranks = [
            (item_id, rank_of(order, body=body, max_output_tokens=most_output_tokens(path, body)))
            for item_id, path, body in chunk
        ]
        write_ranks(ledger, ranks)
