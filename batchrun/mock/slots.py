"""Slots: so many requests are served at once, the others wait first in, first out."""

from asyncio import AbstractEventLoop
from collections import OrderedDict
from typing import Protocol


class Guest(Protocol):
    """Who wants a slot."""

    def start(self) -> None:
        """Begin to be served; called once, unless the guest has left before."""


class Slots:
    """Serve guests at once while slots are free, then in the order in which they came."""

    def __init__(self, limit: int | None, loop: AbstractEventLoop) -> None:
        self._limit = limit
        self._loop = loop
        self._running: set[Guest] = set()
        self._waiting: OrderedDict[Guest, None] = OrderedDict()

    @property
    def running_count(self) -> int:
        """Requests being served."""
        return len(self._running)

    @property
    def waiting_count(self) -> int:
        """Requests waiting for a slot."""
        return len(self._waiting)

    @property
    def usage_share(self) -> float:
        """Slots taken, 0..1; without a limit, of an imagined 256."""
        return min(len(self._running) / (self._limit or 256), 1.0)

    def enter(self, guest: Guest) -> None:
        """Start the guest now, or when its turn comes."""
        if self._limit is None or len(self._running) < self._limit:
            self._running.add(guest)
            guest.start()
        else:
            self._waiting[guest] = None

    def leave(self, guest: Guest) -> None:
        """Give back the guest's slot, or its place in the queue; a guest who has neither is no error."""
        if guest in self._running:
            self._running.remove(guest)
            self._admit_next()
        else:
            self._waiting.pop(guest, None)

    def _admit_next(self) -> None:
        if self._waiting:
            guest, _ = self._waiting.popitem(last=False)
            self._running.add(guest)
            # Not called from here: a queue of instant answers would nest as deep as it is long.
            self._loop.call_soon(self._start, guest)

    def _start(self, guest: Guest) -> None:
        if guest in self._running:
            guest.start()
