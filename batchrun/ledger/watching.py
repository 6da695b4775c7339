"""What those who watch a job ask the ledger every second: cheap, however many items the job has. Reading only."""

from operator import attrgetter
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, select

from batchrun.core.outcome import RELEASED
from batchrun.core.states import AttemptState, ItemState
from batchrun.ledger.jobs import Job
from batchrun.ledger.leases import Load, total_load
from batchrun.ledger.liveness import holds_lock
from batchrun.ledger.reports import heartbeat
from batchrun.ledger.schema import FENCE_BITS, attempts, items

_LOOKED_AT = 50


def work_on(connection: Connection, job: Job) -> Load | None:
    """Return what is done of a job by its holder, or by all workers of a shared one, as their last signs of life say.

    None: its holder is dead, or it has none. A shared job has no worker at the moment where `wants` is 0.
    """
    if job.is_shared:
        return total_load(connection, job.id)
    beat = heartbeat(connection, job.holder) if job.holder is not None else None
    if beat is None or holds_lock(Path(beat["folder"]), beat["incarnation"]) is False:
        return None
    return Load(job.concurrency, beat["in_flight"] or 0, beat["items_per_s"], beat["tokens_per_s"])


def last_failure(connection: Connection, job_id: int) -> dict[str, Any] | None:
    """Return the job's latest request without an answer: `custom_id, cause, message, to` (its item now), `at` (UTC).

    Keys are in item order, and items are sent nearly so: the latest of each kind is among those with the highest keys.
    A failure of an item far back, sent again, may be passed over for a while: whoever watches can live with that.
    """
    found = []
    for state in filter(attrgetter("is_setback"), AttemptState):
        latest = (
            select(attempts.c.key, attempts.c.cause, attempts.c.message, attempts.c.ended_at)
            .where(attempts.c.job_id == job_id, attempts.c.state == state, attempts.c.cause != RELEASED)
            .order_by(attempts.c.key.desc())
            .limit(_LOOKED_AT)
        )
        found += [row for row in connection.execute(latest) if row.ended_at is not None and row.message]
    if not found:
        return None
    last = max(found, key=lambda row: row.ended_at)
    of_item = select(items.c.custom_id, items.c.state).where(items.c.id == last.key >> FENCE_BITS)
    item = connection.execute(of_item).one()
    return {
        "custom_id": item.custom_id,
        "cause": last.cause,
        "message": last.message,
        "to": ItemState(item.state),
        "at": last.ended_at,
    }
