"""One item with its whole history."""

from typing import Any

from batchrun.errors import UsageFault
from batchrun.ledger import jobs as job_moves
from batchrun.ledger.ledger import Ledger
from batchrun.ledger.reports import item_history


def show_item(ledger: Ledger, task_id: str, custom_id: str) -> dict[str, Any]:
    """Return one item: its row, its request, and every attempt in order, each with its public id.

    Raises:
        JobNotFound, UsageFault: there is no such job or item.
    """
    with ledger.read() as connection:
        job = job_moves.find_job(connection, task_id)
        shown = item_history(connection, job.id, custom_id)
    if shown is None:
        raise UsageFault(f"job {task_id!r} has no item {custom_id!r}", hint=f"batchrun failures {task_id} --items")
    for attempt in shown["attempts"]:
        attempt["attempt_id"] = ledger.attempt_id(attempt["key"])
        attempt["raw"] = None if attempt["raw"] is None else bytes(attempt["raw"])
    shown["body"] = None if shown["body"] is None else bytes(shown["body"])
    return shown
