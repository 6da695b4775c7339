"""Where hints arrive: from the queue's thread, held back when there are enough, and from this process itself."""

import asyncio
import threading
from collections import OrderedDict, deque

HINTS_PER_SLOT = 2  # so many wait for a slot: the next one is there while the queue is asked
FULL_S = 0.05  # how long an offer waits for room: the queue's thread has other jobs' hints to hand over


class Intake:
    """Hints that wait for a claim. `offer` may be called from any thread, everything else from the event loop."""

    def __init__(self, *, room: int, wake: asyncio.Event) -> None:
        """Make an empty intake.

        Args:
            room: offered items that may wait.
            wake: set whenever something came.
        """
        self._loop = asyncio.get_running_loop()
        self._ids: OrderedDict[int, bool] = OrderedDict()  # each once, and whether it was offered
        self._arrived: deque[list[int]] = deque()  # offered, and not seen by the event loop yet
        self._room = room
        self._held = 0  # offered, and not taken yet
        self._has_room = threading.Condition()
        self._wake = wake
        self._is_woken = False
        self._is_closed = False
        self.consumed = 0  # offered items that wait no longer, for the feed's window
        self.has_consumed = asyncio.Event()

    def __bool__(self) -> bool:
        return bool(self._ids or self._arrived)

    @property
    def is_ready(self) -> bool:
        """True when something can be taken now."""
        return bool(self._ids)

    def offer(self, item_ids: list[int]) -> list[int]:
        """Take a hint from another thread; return the items that there is no room for, after a short wait for some."""
        item_ids = [one for one in item_ids if one not in self._ids]
        if not item_ids:
            return []
        with self._has_room:
            self._has_room.wait_for(lambda: self._is_closed or self._held < self._room, FULL_S)
            if self._is_closed:
                return []
            count = max(0, self._room - self._held)
            taken, left = item_ids[:count], item_ids[count:]
            self._held += len(taken)
        if taken:
            self._arrived.append(taken)
            if not self._is_woken:
                self._is_woken = True
                self._loop.call_soon_threadsafe(self._take_arrived)
        return left

    def _take_arrived(self) -> None:
        self._is_woken = False
        known = 0
        while self._arrived:
            for item_id in self._arrived.popleft():
                if item_id in self._ids or self._is_closed:
                    known += 1
                else:
                    self._ids[item_id] = True
        self._let_in(known)
        self._wake.set()

    def put(self, item_id: int, *, first: bool = False) -> None:
        """Take a hint from this process; `first` where the item was promised its turn."""
        if self._is_closed:
            return
        self._ids.setdefault(item_id, False)
        if first:
            self._ids.move_to_end(item_id, last=False)
        self._wake.set()

    def put_back(self, item_ids: list[int]) -> None:
        """Take back what was taken and had better wait: it is the first again, and nobody is woken for it."""
        if self._is_closed:
            return
        for item_id in reversed(item_ids):
            self._ids.setdefault(item_id, False)
            self._ids.move_to_end(item_id, last=False)

    def take(self, count: int) -> list[int]:
        """Return up to `count` hints, the oldest first."""
        taken = [self._ids.popitem(last=False) for _ in range(min(count, len(self._ids)))]
        self._let_in(sum(was_offered for _, was_offered in taken))
        return [item_id for item_id, _ in taken]

    def resize(self, room: int) -> None:
        """Let so many offered items wait from now on."""
        with self._has_room:
            self._room = room
            self._has_room.notify_all()

    def _let_in(self, count: int) -> None:
        """Note that so many offered items wait no longer."""
        with self._has_room:
            self._held -= count
            self._has_room.notify_all()
        self.consumed += count
        self.has_consumed.set()

    def forget(self) -> None:
        """Forget what waits: the ledger knows it, and others may take it."""
        self.take(len(self._ids))

    def close(self) -> None:
        """Forget what waits, and take nothing more: the ledger knows it."""
        self._is_closed = True
        self.forget()
