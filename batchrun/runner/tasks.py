"""Coroutines under way on one event loop, none of which may fail unheard."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from batchrun.core.breaker import Trip


class Tasks:
    """What a performer has under way: requests, and what follows them."""

    def __init__(self, trip: Callable[[Trip], None]) -> None:
        """Make an empty set; `trip` hears of one that failed: that is a fault of ours."""
        self._loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Task[None]] = set()
        self._trip = trip

    def __bool__(self) -> bool:
        return bool(self._tasks)

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Start one."""
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    async def finish(self) -> None:
        """Wait until all have ended, those that are started meanwhile among them."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    def _ended(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._trip(Trip("unexpected", f"unexpected {type(error).__name__}: {error}", 1))
