"""Playback: pieces of a body sent one by one, on time."""

from asyncio import AbstractEventLoop, TimerHandle
from collections.abc import Callable

from batchrun.mock.plan import Stream


class Playback:
    """Send the pieces of a stream at even intervals, the first at once; late ones go out together."""

    def __init__(
        self,
        loop: AbstractEventLoop,
        stream: Stream,
        *,
        interval_s: float,
        send: Callable[[bytes], None],
        on_end: Callable[[], None],
    ) -> None:
        self._loop = loop
        self._stream = stream
        self._interval_s = interval_s
        self._send = send
        self._on_end = on_end
        self._began_at = 0.0
        self._no = 0  # of the next piece
        self._timer: TimerHandle | None = None

    def play(self, head: bytes) -> None:
        """Send the head with the first piece, and see to the others."""
        self._began_at = self._loop.time()
        self._send_due(head, self._began_at)

    def stop(self) -> None:
        """Send nothing any more, and do not call `on_end`."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _send_due(self, head: bytes, due_at: float) -> None:
        now = max(self._loop.time(), due_at)  # a timer may be a tick early
        parts = [head]
        while self._no < self._stream.count and (due_at := self._began_at + self._no * self._interval_s) <= now:
            parts.append(next(self._stream.pieces))
            self._no += 1
        self._send(b"".join(parts))
        if self._no < self._stream.count:
            self._timer = self._loop.call_at(due_at, self._send_due, b"", due_at)
        else:
            self._timer = None
            self._on_end()
