"""Places for requests in flight: a semaphore whose size may change while it is used."""

import asyncio
from collections import deque
from types import TracebackType


class Slots:
    """At most `size` holders at once. After it was made smaller nobody enters until enough have left."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.in_use = 0
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def __aenter__(self) -> None:
        if self.in_use < self.size and not self._waiting:
            self.in_use += 1
            return
        place = asyncio.get_running_loop().create_future()
        self._waiting.append(place)
        try:
            await place
        except asyncio.CancelledError:
            if place.done() and not place.cancelled():
                self._leave()  # the slot came together with the end
            else:
                self._waiting.remove(place)
            raise

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._leave()

    def resize(self, size: int) -> None:
        """Change how many may be inside; those that are stay."""
        self.size = size
        self._let_in()

    def _leave(self) -> None:
        self.in_use -= 1
        self._let_in()

    def _let_in(self) -> None:
        while self._waiting and self.in_use < self.size:
            place = self._waiting.popleft()
            if not place.done():
                self.in_use += 1
                place.set_result(None)
