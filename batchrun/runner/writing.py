"""Writing a job's outputs beside the event loop: how far it is can be seen, and a person can stop it."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from batchrun.core.states import ItemState
from batchrun.ledger.jobs import Job
from batchrun.runner.progress import Progress, Watcher, spent_of

Result = TypeVar("Result")
LOOK_S = 0.2


class GivenUp(Exception):
    """Writing was stopped: the files that stood there stand, and the ledger has every answer."""


@dataclass
class Writing:
    """The outputs of one job while they are written."""

    job: Job
    counts: Mapping[ItemState, int]
    lines: int  # that will stand in the files
    written: int = 0
    is_given_up: bool = False

    def wrote(self, lines: int) -> None:
        """Note how many lines are written.

        Raises:
            GivenUp: no more is wanted.
        """
        self.written = lines
        if self.is_given_up:
            raise GivenUp

    async def watched(
        self, write: Callable[[], Result], *, watch: Watcher, beat: Callable[[], Awaitable[None]]
    ) -> Result:
        """Do the writing in a thread and return what it returns; meanwhile show how far it is, and give signs of life.

        Raises:
            GivenUp: it was stopped.
        """
        task = asyncio.create_task(asyncio.to_thread(write))
        while not task.done():
            await asyncio.wait({task}, timeout=LOOK_S)
            if not task.done():
                watch(self._moment())
                await beat()
        return task.result()

    def _moment(self) -> Progress:
        return Progress(
            task_id=self.job.task_id,
            phase="finalizing",
            scope_total=self.lines,
            scope_done=self.written,
            unit="lines",
            counts=self.counts,
            concurrency=self.job.concurrency,
            spent_pusd=spent_of(self.job),
            budget_pusd=self.job.max_cost_pusd,
            note="writing the outputs",
        )
