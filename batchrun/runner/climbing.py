"""This process's part in a job's adaptive concurrency: it reports what it sees, and keeps to what was decided."""

import asyncio
import time
from dataclasses import replace

from batchrun.core.climb import Climb
from batchrun.ledger.climbs import Report, report_round
from batchrun.ledger.jobs import Job
from batchrun.ledger.ledger import Ledger
from batchrun.runner.perform import Performer


class Climbing:
    """Reports the rounds of one job. To be used on the performer's event loop."""

    def __init__(self, ledger: Ledger, performer: Performer, *, worker_id: int, least_settle_s: float = 0.0) -> None:
        """Begin.

        Args:
            least_settle_s: how long a new limit takes until it is in force everywhere.
        """
        self._ledger, self._performer, self._worker_id = ledger, performer, worker_id
        self._least_settle_s = least_settle_s

    async def report(self, job: Job) -> Job:
        """Report what was seen since the last time; return the job with the limit that holds now.

        Raises:
            LedgerFault: the report cannot be written, and is forgotten.
        """
        if job.climb is None:
            return job
        now, performer = time.monotonic(), self._performer
        performer.gauge.tick(now, in_use=performer.in_use, is_open=not performer.lanes.is_held(now))
        if (seen := performer.gauge.take()) is not None:
            report = Report(performer.gauge.round_no, seen)
            climb = await asyncio.to_thread(self._write, job.id, report)
            job = job if climb is None else replace(job, concurrency=climb.limit, climb=climb)
        if job.climb is not None:
            settle_s = max(job.climb.latency_s, self._least_settle_s)
            performer.gauge.begin(job.climb.round_no, time.monotonic(), settle_s=settle_s)
        return job

    def _write(self, job_id: int, report: Report) -> Climb | None:
        with self._ledger.write() as connection:
            return report_round(connection, job_id, worker_id=self._worker_id, report=report, now=time.time())
