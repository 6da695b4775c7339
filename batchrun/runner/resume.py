"""Going on: what a person may decide about a stopped job before it is performed again."""

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from batchrun.core.concurrency import Concurrency
from batchrun.core.states import ItemState, JobState
from batchrun.errors import IllegalMove
from batchrun.ledger import jobs as job_moves
from batchrun.ledger.consents import reopen_cancelled
from batchrun.ledger.jobs import Job
from batchrun.ledger.ledger import Ledger
from batchrun.ledger.reports import count_items
from batchrun.runner.pricing import refuse_unbounded, reprice
from batchrun.runner.purged import SEND, refuse_purged
from batchrun.runner.ranking import rerank
from batchrun.runner.standing import Standing

Gate = Literal["stop", "again", "past"]


def spoken_for(job: Job, setting: str | None) -> str | None:
    """Return the environment's on_unknown where neither the spec nor a flag had a word on it; else None."""
    return None if job.spec.get("on_unknown_is_said", True) else setting


def change_of_mind(
    ledger: Ledger,
    *,
    on_unknown: str | None = None,
    concurrency: Concurrency | None = None,
    retry_times: int | None = None,
    max_cost_pusd: int | None = None,
    rpm: int | None = None,
    tpm: int | None = None,
    spec_of: Callable[[Job], Mapping[str, Any]] | None = None,
    cancelled: bool = False,
    gate: Gate = "again",
) -> Callable[[Job], None]:
    """Make the step that opens a stopped job again.

    Args:
        on_unknown, concurrency, retry_times, max_cost_pusd: changed where given.
        rpm, tpm: the same; 0 lifts the limit.
        spec_of: makes the job's new spec of its old one; of what is the job's identity nothing differs.
        cancelled: cancelled items go back to pending.
        gate: what a trial that did not pass means now: the job stays stopped, its trial items are judged again, or
            the full run follows all the same.

    Raises (from the step):
        IllegalMove: the job is in a state from which nothing goes on, or what is to be sent again was purged.
        UsageFault: a limit on the cost, and items that nothing bounds.
    """

    def step(job: Job) -> None:
        now = time.time()
        _refuse_half_registered(job)
        if job.is_purged:
            if _would_send(ledger, job, on_unknown=on_unknown, cancelled=cancelled):
                refuse_purged(job, SEND)
            return
        spec = None if spec_of is None else spec_of(job)
        if spec is not None:
            reprice(ledger, job, spec)
            rerank(ledger, job, spec)
        with ledger.write() as connection:
            if max_cost_pusd is not None and (spec or job.spec)["price"] is not None:
                refuse_unbounded(connection, job)
            job_moves.change_settings(
                connection,
                job.id,
                now=now,
                on_unknown=on_unknown,
                concurrency=concurrency,
                retry_times=retry_times,
                max_cost_pusd=max_cost_pusd,
                rpm=rpm,
                tpm=tpm,
                spec=None if spec is None else json.dumps(spec),
            )
            is_gated = job.reason == "trial_gate"
            if job.state is JobState.PAUSED and not (is_gated and gate == "stop"):
                if job.reason in ("trial_only", "declined") or (is_gated and gate == "past"):
                    verdict = job.trial_verdict or "passed"
                    job_moves.set_phase(connection, job.id, phase="full", verdict=verdict, now=now)
                job_moves.move_job(connection, job.id, "resume", now=now)
            may_reopen = cancelled and job.was_cancelled and job.state is not JobState.CANCELLING
            if may_reopen and job_moves.move_job(connection, job.id, "reopen", now=now):
                reopen_cancelled(connection, job.id, now=now)

    return step


@dataclass(frozen=True, slots=True)
class ResumePlan:
    """What a resume would find and do; each count is of items."""

    to_send: int
    to_send_again: int  # of those in doubt, at the most: each may be billed a second time
    in_doubt: int  # that stay so
    unsettled: int  # in flight: of a living process they finish, of a dead one: adopted, in doubt, or never sent
    kept: int  # answers


def plan_resume(
    ledger: Ledger, standing: Standing, *, on_unknown: str | None = None, cancelled: bool = False
) -> ResumePlan:
    """Say what a resume would do. Writes nothing.

    Raises:
        IllegalMove: the job is in a state from which nothing goes on, or what is to be sent again was purged.
    """
    job, counts = standing.job, standing.counts
    _refuse_half_registered(job)
    if job.is_purged and _would_send(ledger, job, on_unknown=on_unknown, cancelled=cancelled):
        refuse_purged(job, SEND)
    is_over = job.was_cancelled and not cancelled
    again = 0 if is_over or (on_unknown or job.on_unknown) != "retry" else counts[ItemState.IN_DOUBT]
    reopened = counts[ItemState.CANCELLED] if cancelled and job.was_cancelled else 0
    return ResumePlan(
        to_send=(0 if is_over else counts[ItemState.PENDING]) + reopened,
        to_send_again=again,
        in_doubt=counts[ItemState.IN_DOUBT] - again,
        unsettled=counts[ItemState.RUNNING],
        kept=counts[ItemState.COMPLETED],
    )


def _refuse_half_registered(job: Job) -> None:
    if job.state is JobState.FAILED or job.state is JobState.VALIDATING:
        raise IllegalMove(
            f"job {job.task_id!r} was never completely registered",
            hint="submit its spec again: batchrun submit SPEC",
        )


def _would_send(ledger: Ledger, job: Job, *, on_unknown: str | None, cancelled: bool) -> bool:
    """Say whether anything of an ended job would be sent again."""
    with ledger.read() as connection:
        counts = count_items(connection, job.id)
    sends_doubts = (on_unknown or job.on_unknown) == "retry" and not job.was_cancelled
    return bool((cancelled and counts[ItemState.CANCELLED]) or (sends_doubts and counts[ItemState.IN_DOUBT]))
