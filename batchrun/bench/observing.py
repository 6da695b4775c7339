"""An observer beside a run: once a second it looks at the server, the GPUs and the client itself.

It is there to explain figures, not to change them: one small request a second on a connection of its own, never two at
once, and none any more where the server has no such page.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Self

from batchrun.bench.gpus import Gpus
from batchrun.core.measuring.document import Observation, Series
from batchrun.core.measuring.observed import ClientLoad, client_load, kind_of
from batchrun.core.measuring.server_metrics import read_metrics
from batchrun.core.outcome import Break, Reply

INTERVAL_S = 1.0
TICK_S = 0.02  # how often the client's lag is looked at
TRIES = 3  # looks at a page without any figure before it is left alone
LARGEST_BYTES = 8_000_000

Points = list[tuple[float, float]]
Look = Callable[[], Awaitable[Reply | Break]]


@dataclass
class Observations:
    """What was seen: per series its points, seconds since the beginning and value."""

    began_at: float  # UTC unix seconds
    series: dict[str, Points] = field(default_factory=dict)
    server: str | None = None  # which server's page it was
    gpu_names: tuple[str, ...] = ()
    throttle_reasons: tuple[str, ...] = ()
    missed_looks: int = 0  # at a page that had answered before

    @property
    def client(self) -> ClientLoad:
        """How busy the client was."""
        cpu, lag = (self.series.get(name, []) for name in ("client.cpu_share", "client.loop_lag_s"))
        return client_load([value for _, value in cpu], [value for _, value in lag])

    @property
    def warnings(self) -> tuple[str, ...]:
        """Say what makes the run's figures doubtful."""
        found = [self.client.words] if self.client.is_saturated else []
        if self.throttle_reasons:
            found.append(f"a GPU was held back: {', '.join(self.throttle_reasons)}")
        return tuple(found)

    def observation(self) -> Observation:
        """Return it as a result document keeps it."""
        series = {
            name: Series(
                kind.unit if (kind := kind_of(name)) else "",
                tuple(round(at_s, 3) for at_s, _ in points),
                tuple(round(value, 6) for _, value in points),
            )
            for name, points in self.series.items()
        }
        return Observation(series, self.warnings)


class Observer:
    """Look at a run from beside it, from entering the context until leaving it.

    Args:
        look: asks the server for its page; None: it is not asked.
        gpus: the GPUs of the machine on which the server runs; None: they are not read.
    """

    def __init__(self, *, look: Look | None = None, gpus: Gpus | None = None, interval_s: float = INTERVAL_S) -> None:
        self._look = look
        self._gpus = gpus
        self._interval_s = interval_s
        self._tasks: list[asyncio.Task[None]] = []
        self._began = 0.0
        self._lag_s = 0.0  # the longest since it was last noted
        self._tries = 0
        self.seen = Observations(0.0)

    async def __aenter__(self) -> Self:
        self.seen = Observations(time.time(), gpu_names=self._gpus.names if self._gpus else ())
        self._began = time.monotonic()
        await self._look_at_others()
        loops = (self._watch_lag(), self._watch_client(), self._watch_others())
        self._tasks = [asyncio.create_task(loop) for loop in loops]
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._look_at_others()  # what counters have grown to by the end

    def _note(self, name: str, value: float) -> None:
        self.seen.series.setdefault(name, []).append((time.monotonic() - self._began, value))

    async def _watch_lag(self) -> None:
        """Sleep, and see how much later than due it woke up: what every request of this loop suffers too."""
        while True:
            before = time.monotonic()
            await asyncio.sleep(TICK_S)
            self._lag_s = max(self._lag_s, time.monotonic() - before - TICK_S)

    async def _watch_client(self) -> None:
        while True:
            wall, cpu = time.monotonic(), time.process_time()
            await asyncio.sleep(self._interval_s)
            self._note("client.cpu_share", (time.process_time() - cpu) / (time.monotonic() - wall))
            self._note("client.loop_lag_s", self._lag_s)
            self._lag_s = 0.0

    async def _watch_others(self) -> None:
        while True:
            began = time.monotonic()
            await asyncio.sleep(self._interval_s)
            await self._look_at_others()
            # A look that took long is followed by a pause as long: it must not become a load of its own.
            took_s = time.monotonic() - began - self._interval_s
            await asyncio.sleep(max(0.0, took_s - self._interval_s))

    async def _look_at_others(self) -> None:
        await asyncio.gather(self._look_at_server(), self._look_at_gpus())

    async def _look_at_server(self) -> None:
        if self._look is None or (self.seen.server is None and self._tries >= TRIES):
            return
        self._tries += 1
        reply = await self._look()
        is_page = isinstance(reply, Reply) and reply.status == 200 and len(reply.body) <= LARGEST_BYTES
        figures = read_metrics(reply.body) if isinstance(reply, Reply) and is_page else None
        if figures is None:
            self.seen.missed_looks += self.seen.server is not None
            return
        self.seen.server = figures.server
        for name, value in figures.values.items():
            self._note(f"server.{name}", value)

    async def _look_at_gpus(self) -> None:
        if self._gpus is None:
            return
        figures = {}
        with suppress(Exception):  # a driver that gives up must not end a measurement
            figures = await asyncio.to_thread(self._gpus.read)
        for name, value in figures.items():
            self._note(name, value)
        self.seen.throttle_reasons = tuple(sorted(self._gpus.reasons))
