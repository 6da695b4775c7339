"""An event loop in simulated time: hours pass at once, and a machine that stands still for a moment changes nothing."""

import asyncio
import selectors


class _NoWaiting(selectors.SelectSelector):
    """Tells how long it would have waited, and does not wait."""

    waited_s = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if not ready and timeout:
            self.waited_s += timeout
        return ready


class SimulatedLoop(asyncio.SelectorEventLoop):
    """An event loop whose clock moves only, and at once, when everybody waits.

    What another thread does takes no time by it: begin no timer before that has ended.
    """

    def __init__(self) -> None:
        self._no_waiting = _NoWaiting()
        super().__init__(self._no_waiting)

    def time(self) -> float:
        return self._no_waiting.waited_s
