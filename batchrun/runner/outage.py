"""When no request reaches an endpoint: send it nothing, look for it, and go on by itself when it is back.

A job waits only where all of its endpoints are away that are not out: then it is paused, and only for so long.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

from batchrun.core.breaker import Trip
from batchrun.core.outcome import Evidence
from batchrun.ledger.jobs import move_job
from batchrun.runner.ends import Waits
from batchrun.runner.lane import Lane
from batchrun.runner.perform import Performer

ENDPOINT_DOWN = "endpoint_down"
Write = Callable[[Callable[[Any], object]], Awaitable[None]]  # a small ledger write whose failure is not the run's
Stop = Callable[[Trip], None]
Tell = Callable[[str, Lane, str], None]  # (event, endpoint, why)


class Outage:
    """Watches over a job's endpoints. A pause it made it lifts itself, and no other."""

    def __init__(self, performer: Performer, *, write: Write, tell: Tell, limit_s: float, waits: Waits) -> None:
        """Make a watch.

        Args:
            tell: hears of one of several endpoints that goes away or comes back.
            limit_s: how long all endpoints may be away before the job stops, where any had been reached.
        """
        self._performer = performer
        self._write = write
        self._tell = tell
        self._limit_s = limit_s
        self._waits = waits
        self._probing: dict[Lane, asyncio.Task[None]] = {}
        self._messages: dict[Lane, str] = {}  # what is wrong with those that are away
        self._all_away_since: float | None = None
        self._was_reached = False  # any of them, when the last one went away
        self._has_paused = False
        self.note: str | None = None  # what is waited for

    @property
    def is_probing(self) -> bool:
        """True while the job waits for an endpoint."""
        return self._all_away_since is not None and any(not task.done() for task in self._probing.values())

    def begin(self, lane: Lane, evidence: Evidence, trip: Stop) -> None:
        """Start to look for an endpoint; nothing when that is under way."""
        if lane.out is not None or (lane in self._probing and not self._probing[lane].done()):
            return
        began = asyncio.get_running_loop().time() - (evidence.timing.duration_s if evidence.timing else 0.0)
        self._messages[lane] = evidence.message or "the endpoint cannot be reached"
        self._performer.block(lane)
        if len(self._performer.lanes) > 1:
            self._tell("endpoint_away", lane, self._messages[lane])
        self._probing[lane] = asyncio.create_task(self._await_return(lane, began, trip))

    def cancel(self) -> None:
        """Look no further."""
        for task in self._probing.values():
            task.cancel()

    async def look_whether_all_are_away(self, began: float | None = None) -> None:
        """Pause the job where no endpoint is left that can be reached; `began`: since when, on the loop's clock."""
        if self._all_away_since is not None or not self._performer.lanes.are_all_away:
            return
        self._all_away_since = asyncio.get_running_loop().time() if began is None else began
        self._was_reached = self._performer.lanes.has_reached
        limit_s, message = self._longest_s, self._message
        self.note = f"endpoint down: {message}; going on when it is back, stopping after {_minutes(limit_s)}"
        if self._was_reached:
            self._has_paused = True
            await self._write(lambda connection: self._pause(connection, message))

    @property
    def _longest_s(self) -> float:
        return self._limit_s if self._was_reached else self._waits.never_reached_s

    @property
    def _message(self) -> str:
        """Say what is wrong, of each endpoint where there are several."""
        if len(self._performer.lanes) == 1:
            return next(iter(self._messages.values()))
        wrong = self._messages | {lane: lane.out.message for lane in self._performer.lanes if lane.out is not None}
        return "; ".join(f"{lane.address}: {message}" for lane, message in wrong.items())

    def _is_past_limit(self) -> bool:
        since = self._all_away_since
        return since is not None and asyncio.get_running_loop().time() - since > self._longest_s

    async def _await_return(self, lane: Lane, began: float, trip: Stop) -> None:
        """Probe until the endpoint answers anything; a job that never reached any stops soon."""
        await self.look_whether_all_are_away(began)
        while not self._is_past_limit():
            if await lane.way.endpoint.is_reachable():
                break
            await asyncio.sleep(self._waits.probe_s)
        else:
            trip(Trip(ENDPOINT_DOWN if self._was_reached else "unreachable", self._message, 5))
            return
        self._all_away_since = None
        if self._has_paused:
            self._has_paused = False
            await self.lift()
        self.note = None
        del self._messages[lane]
        if len(self._performer.lanes) > 1:
            self._tell("endpoint_back", lane, "it can be reached again")
        self._performer.unblock(lane)

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
