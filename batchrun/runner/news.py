"""What is told of the endpoints while a job runs: once for each thing, in words, and in the job's events."""

import asyncio
import time
from collections.abc import Callable
from functools import partial

from batchrun.core.outcome import Evidence
from batchrun.ledger.events import record_event
from batchrun.ledger.jobs import Job
from batchrun.runner.aside import Aside
from batchrun.runner.lane import Lane

_SAID = {
    "endpoint_out": "going on without {}",
    "endpoint_cooling": "going on without {} for a while",
    "endpoint_away": "going on without {}, and looking for it",
    "endpoint_back": "going on with {}",
}


class News:
    """Tells of one job. To be used on one event loop."""

    def __init__(self, job: Job, *, say: Callable[[str], None], aside: Aside, is_free: bool) -> None:
        """Make one that has told nothing.

        Args:
            is_free: a request costs nothing where the job is performed.
        """
        self._job, self._say, self._aside = job, say, aside
        self._is_free = is_free
        self._has_told_of_doubts = self._has_told_of_throttling = False
        self._untold: list[tuple[str, float, dict[str, str]]] = []  # events, when they were, of what
        self._telling = asyncio.Lock()
        self.note: str | None = None  # why nothing seems to happen, as far as an endpoint said

    def throttled(self, evidence: Evidence, wait_s: float, *, is_held: bool) -> None:
        """Note a pause that was asked for, and tell once why nothing seems to happen where the job is held back."""
        self.note = f"{evidence.message} (a pause of {wait_s:.1f} s)"
        if is_held and not self._has_told_of_throttling:
            self._has_told_of_throttling = True
            self._say(f"waiting, and going on by itself: {evidence.message}")

    def cooling(self, lane: Lane, evidence: Evidence, wait_s: float) -> None:
        """Tell why an endpoint gets nothing for a while."""
        self.note = f"{lane.address} is left alone for {wait_s:.0f} s: {evidence.message}"
        self.tell("endpoint_cooling", lane, f"{evidence.message} (for {wait_s:.0f} s)")

    def doubted(self, lane: Lane, evidence: Evidence) -> None:
        """Tell once how doubts can be avoided where a second request costs nothing."""
        if not self._is_free or self._has_told_of_doubts:
            return
        self._has_told_of_doubts = True
        self._say(
            f"an item is in doubt ({evidence.message}); if requests cost nothing at {lane.address}, "
            f"this sends such items again by itself: batchrun resume {self._job.task_id} --on-unknown retry"
        )

    def tell(self, event: str, lane: Lane, why: str) -> None:
        """Tell of one of several endpoints, and write it down."""
        self._say(f"{_SAID[event].format(lane.address)}: {why}")
        self._untold.append((event, time.time(), {"endpoint": lane.address, "why": why}))
        self._aside.run(self._write_told())

    async def _write_told(self) -> None:
        """Write down what was told, in that order."""
        async with self._telling:
            told, self._untold = self._untold, []
            for event, at, detail in told:
                await self._aside.write(partial(record_event, job_id=self._job.id, kind=event, at=at, detail=detail))
