"""What a session does beside its work: small ledger writes and short tasks, whose failure is not the run's."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from batchrun.errors import LedgerFault
from batchrun.ledger.ledger import Ledger

LAST_S = 5.0  # for what is still under way at the end
Step = Callable[..., object]  # takes a connection


class Aside:
    """Runs things aside. To be used on one event loop."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._tasks: set[asyncio.Task[None]] = set()
        self.trouble: str | None = None  # why the last write was not made

    async def write(self, step: Step) -> None:
        """Make a small ledger write, in a thread."""
        try:
            await asyncio.to_thread(self._write, step)
        except LedgerFault as error:
            self.trouble = error.message

    def begin_write(self, step: Step) -> None:
        """Begin one, and wait for nothing."""
        self.run(self.write(step))

    def run(self, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        """Begin something that ends by itself."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def finish(self) -> None:
        """Wait a little for what has begun."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=LAST_S)

    def _write(self, step: Step) -> None:
        with self._ledger.write() as connection:
            step(connection)
