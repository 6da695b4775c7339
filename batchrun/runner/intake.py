"""Where hints arrive: from the queue's thread, held back when there are enough, and from this process itself."""

import asyncio
import threading
from collections import deque


class Intake:
    """Hints that wait for a claim. `offer` may be called from any thread, everything else from the event loop."""

    def __init__(self, *, room: int, wake: asyncio.Event) -> None:
        """Make an empty intake.

        Args:
            room: offers that may wait before the offering thread does.
            wake: set whenever something came.
        """
        self._loop = asyncio.get_running_loop()
        self._ids: deque[int] = deque()
        self._arrived: deque[int] = deque()  # offered, and not seen by the event loop yet
        self._room = threading.BoundedSemaphore(room)
        self._wake = wake
        self._is_woken = False
        self._is_closed = False
        self.consumed = 0  # offers taken, for the feed's window
        self.has_consumed = asyncio.Event()

    def __bool__(self) -> bool:
        return bool(self._ids or self._arrived)

    @property
    def is_ready(self) -> bool:
        """True when something can be taken now."""
        return bool(self._ids)

    def offer(self, item_id: int) -> None:
        """Take a hint from another thread; waits while there are enough (back-pressure)."""
        while not self._is_closed and not self._room.acquire(timeout=0.5):
            pass
        if self._is_closed:
            return
        self._arrived.append(item_id)
        if not self._is_woken:
            self._is_woken = True
            self._loop.call_soon_threadsafe(self._take_arrived)

    def _take_arrived(self) -> None:
        self._is_woken = False
        while self._arrived:
            item_id = self._arrived.popleft()
            self._room.release()
            self.consumed += 1
            if not self._is_closed:
                self._ids.append(item_id)
        self.has_consumed.set()
        self._wake.set()

    def put(self, item_id: int, *, first: bool = False) -> None:
        """Take a hint from this process; `first` where the item was promised its turn."""
        if self._is_closed:
            return
        if first:
            self._ids.appendleft(item_id)
        else:
            self._ids.append(item_id)
        self._wake.set()

    def take(self, count: int) -> list[int]:
        """Return up to `count` different hints, the oldest first."""
        return list(dict.fromkeys(self._ids.popleft() for _ in range(min(count, len(self._ids)))))

    def forget(self) -> None:
        """Forget what waits: the ledger knows it, and others may take it."""
        self._ids.clear()

    def close(self) -> None:
        """Forget what waits, and take nothing more: the ledger knows it."""
        self._is_closed = True
        self._ids.clear()
