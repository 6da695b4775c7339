"""Requests and tokens a minute: every send waits here for its permit, and no more is claimed than may soon leave."""

import asyncio
from collections import deque
from collections.abc import Callable

from batchrun.core.rate import ASK_AGAIN_S, Limits, Permit, RateWindows, Reason

AT_ONCE = 64  # permits asked for in one question
LEAST_AHEAD = 2


class TooLarge(Exception):
    """The item alone needs more tokens than a whole minute has: no waiting helps."""


class Turnstile:
    """One job's limits in this process. To be used on one event loop; without limits it costs nothing."""

    def __init__(self, windows: RateWindows, *, limits: Limits, wake: Callable[[], object]) -> None:
        """Make a turnstile; `wake` is called when there is room for more claims."""
        self.limits = limits
        self.note: str | None = None  # what is waited for
        self._windows = windows
        self._wake = wake
        self._waiting: deque[tuple[int, asyncio.Future[Permit | None]]] = deque()
        self._serving: asyncio.Task[None] | None = None
        self._is_opened = False
        self._granted_at: deque[float] = deque()

    @property
    def is_open(self) -> bool:
        """True where there is no limit."""
        return self.limits.rpm is None and self.limits.tpm is None

    @property
    def room(self) -> int:
        """Claims that are worth making now: what has left during the last second will be about what leaves next."""
        now = asyncio.get_running_loop().time()
        while self._granted_at and self._granted_at[0] < now - 1.0:
            self._granted_at.popleft()
        return max(LEAST_AHEAD, len(self._granted_at)) - len(self._waiting)

    async def open(self, is_rested: Callable[[], bool]) -> None:
        """Begin the windows, where there are limits, before anything is claimed; once.

        Args:
            is_rested: the ledger knows of no request sent within the last window: nothing is to be waited for.
        """
        if not self.is_open and not self._is_opened:
            self._is_opened = True
            await self._windows.take(self.limits, [], is_fresh=await asyncio.to_thread(is_rested))

    async def pass_through(self, tokens: int) -> Permit | None:
        """Wait for a permit to start one request; None where no limit holds, or nobody may wait any more.

        Raises:
            TooLarge: it can never leave.
        """
        if self.is_open:
            return None
        place: asyncio.Future[Permit | None] = asyncio.get_running_loop().create_future()
        self._waiting.append((tokens, place))
        if self._serving is None or self._serving.done():
            self._serving = asyncio.create_task(self._serve())
            self._serving.add_done_callback(self._ended)
        return await place

    def used(self, permit: Permit, tokens: int) -> None:
        """Note what a request really used."""
        self._windows.correct(permit, tokens)

    def unused(self, permit: Permit) -> None:
        """Give back a permit under which nothing was sent."""
        self._windows.give_back([permit])

    async def follow(self, limits: Limits) -> None:
        """Keep to these limits from now on, and tell what is noted: others may wait for it.

        A limit that was set while the job ran holds from then on: what left before was under none.
        """
        is_first = self.is_open and not self._is_opened
        self.limits = limits
        if self.is_open:
            self._free()
            return
        self._is_opened = True
        await self._windows.take(limits, [], is_fresh=is_first)

    def let_go(self) -> None:
        """Let nobody wait any longer: nothing more will be sent."""
        if self._serving is not None:
            self._serving.cancel()
        self._free()

    def _free(self) -> None:
        """Let everybody through who waits; what they do then is theirs to know."""
        while self._waiting:
            _, place = self._waiting.popleft()
            if not place.done():
                place.set_result(None)
        self.note = None
        self._wake()

    async def close(self) -> None:
        """Tell what is noted, and let go of the windows."""
        await self._windows.close()

    def _ended(self, serving: "asyncio.Task[None]") -> None:
        """Hand a fault of ours to whoever waits: nobody else would hear of it."""
        if serving.cancelled() or (error := serving.exception()) is None:
            return
        while self._waiting:
            _, place = self._waiting.popleft()
            if not place.done():
                place.set_exception(error)

    async def _serve(self) -> None:
        while self._waiting:
            batch = [tokens for tokens, _ in self._waiting][:AT_ONCE]
            grant = await self._windows.take(self.limits, batch)
            self.note = None if self.is_open else grant.message
            for permit in grant.permits:
                self._hand_out(permit)
            if grant.permits:
                self._wake()
            if grant.reason is Reason.TOO_LARGE and self._waiting:
                _, place = self._waiting.popleft()
                if not place.done():
                    place.set_exception(TooLarge(grant.message or "it needs more tokens than a minute has"))
            elif grant.reason is not None:
                await asyncio.sleep(min(grant.wait_s or ASK_AGAIN_S, ASK_AGAIN_S))

    def _hand_out(self, permit: Permit) -> None:
        place = self._waiting.popleft()[1] if self._waiting else None
        if place is None or place.done():
            self.unused(permit)  # who waited has given up, or needs none any more
        else:
            place.set_result(permit)
            self._granted_at.append(asyncio.get_running_loop().time())
