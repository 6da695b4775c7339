"""Keeps a window of a shared job's hints in the broker, for all of its workers. The ledger is the backlog."""

import asyncio
import time
from collections.abc import Callable
from typing import Protocol

from batchrun.errors import LedgerFault
from batchrun.ledger.ledger import Ledger
from batchrun.ledger.reports import claimable_ids
from batchrun.runner.feed import HINTS_PER_SLOT

SMALLEST = 32
BUSY_S = 0.01
CALM_S = 0.25


class Broker(Protocol):
    """Carries hints to all workers; may lose, delay and repeat them, and may be away."""

    def send(self, job_id: int, item_ids: list[int]) -> None: ...

    def backlog(self) -> int | None:
        """Return how many hints wait; None where the broker is away."""
        ...


class Window:
    """Tops the broker's queue up, again and again through the job's claimable items, while this worker holds the job.

    What was lost, evicted or flushed is hinted at again on the next round; what is hinted at twice finds nothing to
    claim the second time.
    """

    is_exhausted = False  # there is always one more round

    def __init__(
        self,
        ledger: Ledger,
        job_id: int,
        broker: Broker,
        *,
        slots: Callable[[], int],
        all_slots: Callable[[], int],
        is_mine: Callable[[], bool],
        trial_only: bool,
    ) -> None:
        """Make a window.

        Args:
            slots: the job's concurrency now.
            all_slots: the same of all jobs whose hints lie in this queue.
            is_mine: this worker is the one that does the job's chores.
        """
        self._ledger, self._job_id, self._broker = ledger, job_id, broker
        self._slots, self._all_slots, self._is_mine, self._trial_only = slots, all_slots, is_mine, trial_only
        self._cursor = -1

    async def run(self) -> None:
        """Top up until cancelled."""
        while True:
            pause_s = CALM_S
            if self._is_mine():
                try:
                    pause_s = await asyncio.to_thread(self._top_up)
                except LedgerFault:
                    pause_s = CALM_S
            await asyncio.sleep(pause_s)

    def _top_up(self) -> float:
        """Send what is missing in the window; return how long that will do, in seconds."""
        mine, whole = (max(SMALLEST, HINTS_PER_SLOT * count) for count in (self._slots(), self._all_slots()))
        waiting = self._broker.backlog()
        if waiting is None:
            return CALM_S
        if waiting > whole // 2:
            return BUSY_S
        room = min(mine, whole - waiting)
        ids = self.read(after=self._cursor, limit=room)
        if ids:
            self._broker.send(self._job_id, ids)
        is_round_over = len(ids) < room
        self._cursor = -1 if is_round_over else ids[-1]
        return CALM_S if is_round_over else BUSY_S

    def read(self, *, after: int, limit: int) -> list[int]:
        """Return claimable items from the ledger, by id."""
        with self._ledger.read() as connection:
            return claimable_ids(
                connection, self._job_id, after=after, limit=limit, trial_only=self._trial_only, now=time.time()
            )

    def forget_outstanding(self) -> None:
        """Do nothing: what is outstanding is counted in the broker."""
