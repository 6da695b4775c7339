"""Slots: so many requests are served at once, the others wait first in, first out; a gate can hold them all."""

from asyncio import AbstractEventLoop
from collections import OrderedDict
from typing import Protocol

from batchrun.mock.capacity import Capacity


class Guest(Protocol):
    """Who wants a slot."""

    def start(self) -> None:
        """Begin to be served; called once, unless the guest has left before."""


class Slots:
    """Serve guests at once while slots are free, then in the order in which they came."""

    def __init__(self, capacity: Capacity, loop: AbstractEventLoop) -> None:
        self.capacity = capacity
        self._admitted = 0  # since the start
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
        return min(len(self._running) / (self.capacity.slots or 256), 1.0)

    @property
    def stretch(self) -> float:
        """How many times as long a request takes that begins now."""
        return self.capacity.stretch(len(self._running))

    @property
    def has_room(self) -> bool:
        has_slot = self.capacity.slots is None or len(self._running) < self.capacity.slots
        return has_slot and (self.capacity.admits is None or self._admitted < self.capacity.admits)

    def resize(self, capacity: Capacity) -> None:
        """Have another capacity from now on; who is being served stays."""
        self.capacity = capacity
        while self._waiting and self.has_room:
            self._admit_next()

    def enter(self, guest: Guest) -> None:
        """Start the guest now, or when its turn comes."""
        if self.has_room:
            self._admit(guest)
            guest.start()
        else:
            self._waiting[guest] = None

    def leave(self, guest: Guest) -> None:
        """Give back the guest's slot, or its place in the queue; a guest who has neither is no error."""
        if guest in self._running:
            self._running.remove(guest)
            if self._waiting and self.has_room:
                self._admit_next()
        else:
            self._waiting.pop(guest, None)

    def _admit(self, guest: Guest) -> None:
        self._running.add(guest)
        self._admitted += 1

    def _admit_next(self) -> None:
        guest, _ = self._waiting.popitem(last=False)
        self._admit(guest)
        # Not called from here: a queue of instant answers would nest as deep as it is long.
        self._loop.call_soon(self._start, guest)

    def _start(self, guest: Guest) -> None:
        if guest in self._running:
            guest.start()
