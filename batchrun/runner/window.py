"""Keeps a window of a shared job's hints with its workers. The ledger is the backlog."""

import asyncio
import time
from collections.abc import Callable
from typing import Protocol

from batchrun.errors import LedgerFault
from batchrun.ledger.backlog import START, Place, claimable
from batchrun.ledger.leases import total_load
from batchrun.ledger.ledger import Ledger
from batchrun.runner.feed import in_packets
from batchrun.runner.intake import HINTS_PER_SLOT

BUSY_S = 0.01
CALM_S = 0.25
ROUND_S = 1.0  # so often the whole job is looked through for items that can be claimed again
LOST_S = 5.0  # a hint that is neither in the broker nor followed by a claim for so long is taken for lost
STALE_S = 30.0  # the same, wherever it may be


class Broker(Protocol):
    """Carries hints to all workers; may lose, delay and repeat them, and may be away."""

    def send(self, job_id: int, item_ids: list[int]) -> None:
        """Put one hint on the queue: some items of a job."""
        ...

    def backlog(self) -> int | None:
        """Return how many hints wait; None where the broker is away."""
        ...


class Window:
    """Hints at the job's claimable items, a window of them at a time, while this worker holds the job.

    An item that was hinted at and can still be claimed is on its way, in the broker or with a worker: what is on its
    way is never more than the window, and is hinted at again only when it seems lost. What is hinted at twice all the
    same finds nothing to claim.
    """

    is_exhausted = False  # there is always one more round

    def __init__(
        self,
        ledger: Ledger,
        job_id: int,
        broker: Broker,
        *,
        is_mine: Callable[[], bool],
        trial_only: bool,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Make a window.

        Args:
            is_mine: this worker is the one that does the job's chores.
        """
        self._ledger, self._job_id, self._broker = ledger, job_id, broker
        self._is_mine, self._trial_only, self._clock = is_mine, trial_only, clock
        self._on_their_way: dict[Place, float] = {}  # when each was hinted at, in the order of claims
        self._next_round = self._looked = clock()

    async def run(self) -> None:
        """Top up until cancelled."""
        while True:
            pause_s = CALM_S
            if self._is_mine():
                try:
                    pause_s = await asyncio.to_thread(self.top_up)
                except LedgerFault:
                    pause_s = CALM_S
            await asyncio.sleep(pause_s)

    def top_up(self) -> float:
        """Send what is missing in the window; return how long that will do, in seconds."""
        waiting = self._broker.backlog()
        if waiting is None:
            return CALM_S
        now = self._clock()
        with self._ledger.read() as connection:
            # What the workers have room for: what is beyond that would go from one to the other.
            size = HINTS_PER_SLOT * total_load(connection, self._job_id).wants
        places = self.read(after=self._begin(now), limit=size)
        patience_s = STALE_S if waiting else LOST_S
        known = {one: at for one in places if (at := self._on_their_way.get(one)) is not None and now - at < patience_s}
        fresh = [one.item_id for one in places if one not in known]
        for packet in in_packets(fresh, size):
            self._broker.send(self._job_id, packet)
        self._on_their_way = {one: known.get(one, now) for one in places}
        since_s, self._looked = now - self._looked, now
        # Half a window later, at the pace at which they are taken now.
        return min(CALM_S, max(BUSY_S, since_s * size / 2 / len(fresh))) if fresh else CALM_S

    def _begin(self, now: float) -> Place:
        """Return the place behind which is looked: what stands before it could not be claimed a moment ago."""
        if now >= self._next_round or not self._on_their_way:
            self._next_round = now + ROUND_S
            return START
        first = next(iter(self._on_their_way))
        return first._replace(item_id=first.item_id - 1)

    def first(self, limit: int) -> list[int]:
        """Return the first claimable items of the ledger, in the job's order."""
        return [place.item_id for place in self.read(after=START, limit=limit)]

    def read(self, *, after: Place, limit: int) -> list[Place]:
        """Return the next claimable items of the ledger and their places."""
        with self._ledger.read() as connection:
            return claimable(
                connection, self._job_id, after=after, limit=limit, trial_only=self._trial_only, now=time.time()
            )

    def forget_outstanding(self) -> None:
        """Do nothing: what was lost is found out by itself."""
