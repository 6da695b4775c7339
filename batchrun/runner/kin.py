"""What items have in common with others, where their job sends what begins alike together, and to several endpoints."""

import asyncio
from collections import deque
from collections.abc import Sequence

from batchrun.core.order import affinities
from batchrun.errors import LedgerFault
from batchrun.ledger.backlog import ranks_of
from batchrun.ledger.ledger import Ledger

REMEMBERED = 256  # items that went before: the last of its kind is known by them


class Kin:
    """The affinities of one job's items. To be used on one event loop."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._seen = deque[int](maxlen=REMEMBERED)

    async def affinities(self, item_ids: Sequence[int]) -> list[bytes | None]:
        """Return the affinity of each item, None where it has none, or where the ledger cannot be asked now."""
        try:
            ranks = await asyncio.to_thread(self._read, item_ids)
        except LedgerFault:
            return [None] * len(item_ids)
        found = affinities(ranks, seen=self._seen)
        self._seen.extend(ranks)
        return found

    def _read(self, item_ids: Sequence[int]) -> list[int]:
        with self._ledger.read() as connection:
            return ranks_of(connection, item_ids)
