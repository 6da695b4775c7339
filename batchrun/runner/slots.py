"""Places for requests in flight: a semaphore whose size may change while it is used."""

import asyncio
from collections import deque


class Slots:
    """At most `size` inside at once. After it was made smaller nobody enters until enough have left."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.in_use = 0
        self._waiting: deque[asyncio.Future[bool]] = deque()

    async def enter(self) -> bool:
        """Wait for a place; False when whoever waits was sent away. Who is inside calls `leave` once."""
        if self.in_use < self.size and not self._waiting:
            self.in_use += 1
            return True
        place: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._waiting.append(place)
        try:
            return await place
        except asyncio.CancelledError:
            if not place.done() or place.cancelled():
                self._waiting.remove(place)
            elif place.result():
                self.leave()  # the slot came together with the end
            raise

    def resize(self, size: int) -> None:
        """Change how many may be inside; those that are stay."""
        self.size = size
        self._let_in()

    def send_away(self) -> None:
        """Let nobody wait any longer: what they waited with is no longer theirs."""
        while self._waiting:
            place = self._waiting.popleft()
            if not place.done():
                place.set_result(False)

    def leave(self) -> None:
        """Give a place back."""
        self.in_use -= 1
        self._let_in()

    def _let_in(self) -> None:
        while self._waiting and self.in_use < self.size:
            place = self._waiting.popleft()
            if not place.done():
                self.in_use += 1
                place.set_result(True)
