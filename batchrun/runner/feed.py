"""Keeps a window of hints on the queue. The ledger is the backlog: however large a job, only the window is queued."""

import asyncio
import time
from collections import deque
from typing import Protocol

from batchrun.errors import LedgerFault
from batchrun.ledger.backlog import START, Place, claimable
from batchrun.ledger.ledger import Ledger
from batchrun.runner.intake import HINTS_PER_SLOT
from batchrun.runner.means import Carrier
from batchrun.runner.perform import Performer

READ_AT_ONCE = 1_000
PACKETS = 16  # a window goes out in so many hints: small enough that several workers get their part
AGAIN_S = 0.5  # after the ledger could not be read


class Feeding(Protocol):
    """Where a session's hints come from, beside its own idle look into the ledger."""

    @property
    def is_exhausted(self) -> bool:
        """True when no further hint will come."""
        ...

    async def run(self) -> None: ...

    def first(self, limit: int) -> list[int]:
        """Return the first claimable items of the ledger, in the job's order."""
        ...

    def forget_outstanding(self) -> None:
        """Take what was sent and never came for lost."""
        ...


def in_packets(ids: list[int], window: int) -> list[list[int]]:
    """Divide what is sent of a window into hints."""
    size = max(1, window // PACKETS)
    return [ids[at : at + size] for at in range(0, len(ids), size)]


class Feed:
    """Reads the claimable items of one scope of a job, once through in order, and hints at them."""

    def __init__(self, ledger: Ledger, performer: Performer, carrier: Carrier, *, trial_only: bool) -> None:
        self._ledger = ledger
        self._performer = performer
        self._carrier = carrier
        self._trial_only = trial_only
        self._ids: deque[int] = deque()
        self._cursor = START
        self._sent = performer.intake.consumed
        self.is_exhausted = False

    @property
    def outstanding(self) -> int:
        """Items hinted at and not yet taken."""
        return self._sent - self._performer.intake.consumed

    async def run(self) -> None:
        """Top the window up whenever half of it is taken, until every item was hinted at."""
        while not self.is_exhausted:
            window = HINTS_PER_SLOT * self._performer.concurrency
            if self.outstanding > window // 2:
                self._performer.intake.has_consumed.clear()
                await self._performer.intake.has_consumed.wait()
                continue
            if not self._ids:
                try:
                    places = await asyncio.to_thread(self.read, after=self._cursor, limit=READ_AT_ONCE)
                except LedgerFault:
                    await asyncio.sleep(AGAIN_S)
                    continue
                if not places:
                    self.is_exhausted = True
                    return
                self._ids.extend(place.item_id for place in places)
                self._cursor = places[-1]
            count = min(len(self._ids), window - self.outstanding)
            ids = [self._ids.popleft() for _ in range(count)]
            self._sent += count
            # crash point: hint-due
            await asyncio.to_thread(self._send, ids, window)
            # crash point: hint-sent

    def _send(self, ids: list[int], window: int) -> None:
        for packet in in_packets(ids, window):
            self._carrier.send(self._performer.job_id, packet)

    def first(self, limit: int) -> list[int]:
        """Return the first claimable items of the ledger, in the job's order."""
        return [place.item_id for place in self.read(after=START, limit=limit)]

    def read(self, *, after: Place, limit: int) -> list[Place]:
        """Return the next claimable items of the ledger and their places."""
        with self._ledger.read() as connection:
            return claimable(
                connection,
                self._performer.job_id,
                after=after,
                limit=limit,
                trial_only=self._trial_only,
                now=time.time(),
            )

    def forget_outstanding(self) -> None:
        """Take what was sent and never came for lost. A late copy does no harm: it finds nothing to claim."""
        self._sent = self._performer.intake.consumed
        self._performer.intake.has_consumed.set()
