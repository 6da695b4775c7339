"""Prices that come later than the job: the limit on its cost must know what each request can cost before it is set."""

from collections.abc import Mapping
from typing import Any

from batchrun.core.bounds import most_pusd
from batchrun.core.prices import Price
from batchrun.core.request import most_output_tokens
from batchrun.errors import UsageFault
from batchrun.ledger.jobs import Job
from batchrun.ledger.ledger import Ledger
from batchrun.ledger.unsent import count_unbounded, requests_left, write_worst


def reprice(ledger: Ledger, job: Job, spec: Mapping[str, Any]) -> None:
    """Price the items that may yet be sent by a new spec, where what bounds their cost is not what the job's says.

    Done before the spec is the job's: a limit that comes with the prices never meets an item without its most.
    """
    told = ("price", "max_prompt_tokens")
    if all(spec.get(key) == job.spec.get(key) for key in told):
        return
    price = None if spec["price"] is None else Price.model_validate(spec["price"])
    for chunk in requests_left(ledger, job.id):
        write_worst(
            ledger,
            [
                (
                    item_id,
                    most_pusd(
                        price,
                        body=body,
                        max_output_tokens=most_output_tokens(path, body),
                        max_prompt_tokens=spec.get("max_prompt_tokens"),
                    ),
                )
                for item_id, path, body in chunk
            ],
        )


def refuse_unbounded(connection: Any, job: Job) -> None:
    """Refuse a limit on the cost of a job with items of which nothing tells how much they can cost.

    Raises:
        UsageFault: saying how many.
    """
    if count := count_unbounded(connection, job.id):
        what = "item asks" if count == 1 else "items ask"
        raise UsageFault(
            f"{count:,} {what} for more than text, and nothing tells how many tokens that may be: the cost of "
            f"{job.task_id!r} cannot be limited",
            hint="add max_prompt_tokens to its spec (the model's context, say), and submit it again",
        )
