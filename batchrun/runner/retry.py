"""Failed items again: which ones, at what greatest cost, and the consent for exactly these."""

import time
from collections.abc import Sequence
from dataclasses import dataclass

from batchrun.core.states import ItemState
from batchrun.ledger import jobs as job_moves
from batchrun.ledger.consents import Stopped, consent, stopped_items
from batchrun.ledger.jobs import Job
from batchrun.ledger.ledger import Ledger
from batchrun.runner.purged import SEND, refuse_purged


@dataclass(frozen=True, slots=True)
class RetryPlan:
    """What would be sent again, and what would not."""

    job: Job
    chosen: Sequence[Stopped]
    permanent: int  # would fail the same way again
    in_doubt: int  # may have been billed: `reconcile` is for these

    @property
    def billed(self) -> int:
        """How many of the chosen were, or may have been, paid for already: they may be billed a second time."""
        return sum(one.may_be_billed for one in self.chosen)

    @property
    def greatest_pusd(self) -> int | None:
        """The most that one more attempt of each can cost; None when no price is known."""
        return greatest_cost(self.chosen)


def greatest_cost(chosen: Sequence[Stopped]) -> int | None:
    """Return the most that one attempt of each of these can cost, in picodollars; None when no price is known."""
    if any(one.worst_pusd is None for one in chosen):
        return None
    return sum(one.worst_pusd or 0 for one in chosen)


def plan_retry(
    ledger: Ledger,
    task_id: str,
    *,
    causes: Sequence[str] = (),
    custom_ids: Sequence[str] = (),
    include_permanent: bool = False,
) -> RetryPlan:
    """Choose the failed items to send again: those whose cause may pass, or all of them.

    Raises:
        IllegalMove: the job is purged.
    """
    with ledger.read() as connection:
        job = job_moves.find_job(connection, task_id)
        refuse_purged(job, SEND)
        failed = stopped_items(connection, job.id, state=ItemState.FAILED, causes=causes, custom_ids=custom_ids)
        in_doubt = len(stopped_items(connection, job.id, state=ItemState.IN_DOUBT))
    # Whoever names an item or a cause means it.
    named = include_permanent or bool(custom_ids) or bool(causes)
    chosen = [one for one in failed if named or not one.is_permanent]
    return RetryPlan(job, chosen, permanent=len(failed) - len(chosen), in_doubt=in_doubt)


def send_again(ledger: Ledger, job: Job, chosen: Sequence[Stopped]) -> int:
    """in_doubt or failed -> pending for exactly these, and the job open again; return how many moved."""
    now = time.time()
    with ledger.write() as connection:
        moved = consent(connection, job.id, chosen, now=now)
        if moved:
            job_moves.move_job(connection, job.id, "reopen", now=now)
    # crash point: consent-given
    return moved
