"""A job's adaptive concurrency in the ledger: all workers add what they see, and one decision holds for all of them."""

import json
from dataclasses import asdict, dataclass
from typing import Any

from sqlalchemy import Connection, select, update

from batchrun.core.climb import Climb, climb
from batchrun.core.concurrency import Concurrency
from batchrun.core.gauge import Seen
from batchrun.ledger.events import record_event
from batchrun.ledger.guards import is_alive, lock_jobs
from batchrun.ledger.schema import jobs

LIMIT_EVENT = "limit"


@dataclass(frozen=True, slots=True)
class Report:
    """What a worker has seen of a round since its last report."""

    round_no: int
    seen: Seen


def allowing(allowed: Concurrency, *, now: int | None = None) -> dict[str, Any]:
    """Return a job's columns where so much is allowed; `now` is the limit it has had until here."""
    if allowed.is_fixed:
        return {"concurrency": allowed.low, "climb": None}
    begun = Climb.within(allowed, now=now)
    return {"concurrency": begun.limit, "climb": _written(begun, Seen())}


def read_climb(text: str | None) -> Climb | None:
    """Read a job's column; None where its concurrency is fixed."""
    return None if text is None else Climb(**json.loads(text)["climb"])


def _written(now: Climb, seen: Seen) -> str:
    return json.dumps({"climb": asdict(now), "seen": asdict(seen)})


def report_round(connection: Connection, job_id: int, *, worker_id: int, report: Report, now: float) -> Climb | None:
    """Add what a worker has seen to its round, and decide where that is enough; return how the climb stands.

    A report of a round that is over says nothing any more, and a worker that was declared dead says nothing at all.
    None: the job's concurrency is fixed.
    """
    lock_jobs(connection, [job_id])  # one report after the other, so one decision a round
    text = connection.execute(select(jobs.c.climb).where(jobs.c.id == job_id)).scalar_one()
    standing = read_climb(text)
    if standing is None or report.round_no != standing.round_no:
        return standing
    if not connection.execute(select(is_alive(worker_id))).scalar():
        return standing
    seen = Seen(**json.loads(text)["seen"])
    seen.add(report.seen)
    after, change = climb(standing, seen) or (standing, None)
    if after is not standing:
        seen = Seen()
    values = {"climb": _written(after, seen), "concurrency": after.limit}
    connection.execute(update(jobs).where(jobs.c.id == job_id).values(values))
    if change is not None:
        record_event(connection, job_id, LIMIT_EVENT, at=now, detail=asdict(change))
    return after
