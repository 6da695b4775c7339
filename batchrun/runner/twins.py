"""Items that ask the same, where one answer is to do for all: served, held back, or let through to ask."""

import asyncio
import time
from collections.abc import Callable, Sequence

from batchrun.core.answer_check import AnswerCheck
from batchrun.ledger.backlog import claimable, place_of
from batchrun.ledger.cache import Accounts, Ask, Asking, answers_of, copy_answers, look_up
from batchrun.ledger.claims import Claim
from batchrun.ledger.ledger import Ledger

MOST_HELD = 2_000  # beyond that nothing is taken in until some are let go
MOST_SIFTED = 500  # at once, while nearly all have their answer
AGAIN_S = 1.0  # between two looks at those whose request another process has out


class Twins:
    """The cache of one performer. To be used on its event loop."""

    def __init__(
        self,
        ledger: Ledger,
        *,
        job_id: int,
        worker_id: int,
        accounts: Accounts,
        check: AnswerCheck | None,
        sweep: Callable[[], object],
    ) -> None:
        """Make it.

        Args:
            check: what the job asks of answers; one that was good enough for another job may not be for this.
            sweep: finds workers that have died with a request out, so that nobody waits for them.
        """
        self._ledger, self._job_id, self._worker_id = ledger, job_id, worker_id
        self._accounts, self._check, self._sweep = accounts, check, sweep
        self._held: dict[int, list[int]] = {}  # by ask: items that wait for whoever asks it
        self._asks: dict[int, int] = {}  # of items that were let through, or are out
        self._misfits: set[int] = set()  # attempts whose answers are there, and will not do for this job
        self.held = 0
        self.appetite = 0  # how many may be sifted at once beyond what can be sent

    @property
    def is_full(self) -> bool:
        return self.held >= MOST_HELD

    @property
    def asking(self) -> Asking:
        """What a claim of what was let through has to know."""
        return Asking(self._accounts, self._misfits)

    async def sift(self, item_ids: Sequence[int]) -> tuple[list[int], list[int]]:
        """Return which of these items are to be claimed, and which were completed by an answer that was there.

        Raises:
            LedgerFault: the ledger could not be read or written.
        """
        found = await asyncio.to_thread(self._look_up, item_ids)
        hits = [one for one in found if self._is_hit(one)]
        if waiting := [item_id for ask in {one.ask for one in hits} for item_id in self._release(ask)]:
            hits += filter(self._is_hit, await asyncio.to_thread(self._look_up, waiting))
        if self.appetite and item_ids:  # hints come a few at a time: what follows is looked up without them
            known = {one.item_id for one in hits}
            ahead = await asyncio.to_thread(self._look_ahead, item_ids[-1])
            hits += [one for one in ahead if self._is_hit(one) and one.item_id not in known]
        served = await asyncio.to_thread(self._serve, hits) if hits else []
        left: dict[int, int] = {}
        for one in found:
            if self._is_hit(one):
                continue  # served; or it moved meanwhile, and is nobody's business here
            if one.is_out or one.ask in left.values():
                self._held.setdefault(one.ask, []).append(one.item_id)
                self.held += 1
            else:
                left[one.item_id] = one.ask
        self._asks |= left
        if found:
            self.appetite = MOST_SIFTED if 2 * len(served) > len(found) else 0
        return list(left), served

    def _is_hit(self, one: Ask) -> bool:
        return one.source is not None and one.source not in self._misfits

    def claimed(self, item_ids: Sequence[int], claims: Sequence[Claim]) -> None:
        """Take note of which of those that were let through were claimed: for the others nobody waits."""
        out = {claim.item_id for claim in claims}
        for item_id in item_ids:
            if item_id not in out and (ask := self._asks.pop(item_id, None)) is not None:
                self._release(ask)  # the ledger knows them

    def put_back(self, item_ids: Sequence[int]) -> None:
        """Take it that these, which were let through, come again: who waits for them goes on waiting."""
        for item_id in item_ids:
            self._asks.pop(item_id, None)

    def settled(self, item_id: int) -> list[int]:
        """Return the items that have waited for this one: it is not out any more, whatever came of it."""
        ask = self._asks.pop(item_id, None)
        return [] if ask is None else self._release(ask)

    async def look_again(self) -> list[int]:
        """Return all that wait: whoever asks for them may be in another process, and may have died."""
        await asyncio.to_thread(self._sweep)
        return [item_id for ask in list(self._held) for item_id in self._release(ask)]

    def forget(self) -> None:
        """Wait for nothing any more: the ledger knows it all."""
        self._held.clear()
        self.held = 0

    def _release(self, ask: int) -> list[int]:
        waiting = self._held.pop(ask, [])
        self.held -= len(waiting)
        return waiting

    def _look_up(self, item_ids: Sequence[int]) -> list[Ask]:
        with self._ledger.read() as connection:
            return look_up(connection, item_ids, self._accounts)

    def _look_ahead(self, after: int) -> list[Ask]:
        with self._ledger.read() as connection:
            places = claimable(
                connection,
                self._job_id,
                after=place_of(connection, after),
                limit=MOST_SIFTED,
                trial_only=False,
                now=time.time(),
            )
            return look_up(connection, [place.item_id for place in places], self._accounts)

    def _serve(self, hits: Sequence[Ask]) -> list[int]:
        """Complete these items by the answers that are there, where they will do; return which moved."""
        if self._check is not None:
            with self._ledger.read() as connection:
                found = answers_of(connection, {one.source for one in hits if one.source is not None})
            self._misfits |= {source for source, raw in found.items() if self._check(raw) is not None}
        fitting = [one for one in hits if self._is_hit(one)]
        with self._ledger.write() as connection:
            return copy_answers(connection, self._job_id, fitting, worker_id=self._worker_id, now=time.time())
