"""When no request reaches the endpoint: send nothing, look for it, and go on by itself when it is back."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

from batchrun.core.breaker import Trip
from batchrun.core.outcome import Evidence
from batchrun.ledger.jobs import move_job
from batchrun.runner.ends import Waits
from batchrun.runner.means import Endpoint
from batchrun.runner.perform import Performer

ENDPOINT_DOWN = "endpoint_down"
Write = Callable[[Callable[[Any], object]], Awaitable[None]]  # a small ledger write whose failure is not the run's


class Outage:
    """Watches over one endpoint. A pause it made it lifts itself, and no other."""

    def __init__(self, performer: Performer, endpoint: Endpoint, *, write: Write, limit_s: float, waits: Waits) -> None:
        """Make a watch.

        Args:
            limit_s: how long an endpoint that had been reached may be away before the job stops.
        """
        self._performer = performer
        self._endpoint = endpoint
        self._write = write
        self._limit_s = limit_s
        self._waits = waits
        self._probing: asyncio.Task[None] | None = None
        self.note: str | None = None  # what is waited for

    @property
    def is_probing(self) -> bool:
        return self._probing is not None and not self._probing.done()

    def begin(self, evidence: Evidence, trip: Callable[[Trip], None]) -> None:
        """Start to look for the endpoint; nothing when that is under way."""
        if not self.is_probing:
            self._performer.block()
            self._probing = asyncio.create_task(self._await_return(evidence, trip))

    def cancel(self) -> None:
        """Look no further."""
        if self._probing is not None:
            self._probing.cancel()

    async def _await_return(self, evidence: Evidence, trip: Callable[[Trip], None]) -> None:
        """Probe until the endpoint answers anything; a job that never reached it stops soon."""
        was_reached = self._performer.has_reached
        limit_s = self._limit_s if was_reached else self._waits.never_reached_s
        clock = asyncio.get_running_loop().time
        began = clock() - (evidence.timing.duration_s if evidence.timing else 0.0)
        message = evidence.message or "the endpoint cannot be reached"
        self.note = f"endpoint down: {message}; going on when it is back, stopping after {_minutes(limit_s)}"
        if was_reached:
            await self._write(lambda connection: self._pause(connection, message))
        while clock() - began <= limit_s:
            if await self._endpoint.is_reachable():
                break
            await asyncio.sleep(self._waits.probe_s)
        else:
            trip(Trip(ENDPOINT_DOWN if was_reached else "unreachable", message, 5))
            return
        if was_reached:
            await self.lift()
        self.note = None
        self._performer.unblock()

    def _pause(self, connection: Any, message: str) -> None:
        job_id = self._performer.job_id
        move_job(connection, job_id, "pause", now=time.time(), reason=ENDPOINT_DOWN, message=message)

    async def lift(self) -> None:
        """Lift the pause that an outage made."""
        job_id = self._performer.job_id
        await self._write(
            lambda connection: move_job(connection, job_id, "resume", now=time.time(), only_reason=ENDPOINT_DOWN)
        )


def _minutes(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} minutes"
