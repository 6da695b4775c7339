"""Going on: what a person may decide about a stopped job before it is performed again."""

import time
from collections.abc import Callable

from batchrun.core.states import JobState
from batchrun.errors import IllegalMove
from batchrun.ledger import jobs as job_moves
from batchrun.ledger.consents import reopen_cancelled
from batchrun.ledger.jobs import Job
from batchrun.ledger.ledger import Ledger


def change_of_mind(
    ledger: Ledger,
    *,
    on_unknown: str | None = None,
    concurrency: int | None = None,
    max_cost_pusd: int | None = None,
    cancelled: bool = False,
    past_gate: bool = True,
) -> Callable[[Job], None]:
    """Make the step that opens a stopped job again.

    Args:
        on_unknown, concurrency, max_cost_pusd: changed where given.
        cancelled: cancelled items go back to pending.
        past_gate: a trial that did not pass, or was not followed by the full run, is no obstacle any more.

    Raises (from the step):
        IllegalMove: the job is in a state from which nothing goes on.
    """

    def step(job: Job) -> None:
        now = time.time()
        if job.state is JobState.FAILED or job.state is JobState.VALIDATING:
            raise IllegalMove(f"job {job.task_id!r} was never completely registered", hint="batchrun submit it again")
        with ledger.write() as connection:
            job_moves.change_settings(
                connection,
                job.id,
                now=now,
                on_unknown=on_unknown,
                concurrency=concurrency,
                max_cost_pusd=max_cost_pusd,
            )
            if job.state is JobState.PAUSED and (past_gate or job.reason not in ("trial_gate", "declined")):
                if job.reason in ("trial_gate", "trial_only", "declined"):
                    verdict = job.trial_verdict or "passed"
                    job_moves.set_phase(connection, job.id, phase="full", verdict=verdict, now=now)
                job_moves.move_job(connection, job.id, "resume", now=now)
            if cancelled and job.was_cancelled and job.state is not JobState.CANCELLING:
                if job_moves.move_job(connection, job.id, "reopen", now=now):
                    reopen_cancelled(connection, job.id, now=now)

    return step
