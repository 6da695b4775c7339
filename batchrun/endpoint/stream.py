"""A streamed answer as it comes: server-sent events, each stamped when its end was read, and put together at the end.

Token chunks are counted as vLLM's benchmark does: every chunk with choices, from the first with anything generated; of
/v1/responses every event that brings a piece (`response.output_text.delta` and its like).
While the answer comes, its events are only told apart and stamped, so that the loop is free for the stamps of others;
what they say is read later, many at once.
"""

from itertools import pairwise
from time import monotonic
from typing import Any

from pydantic_core import from_json

from batchrun.core.line import CHAT, RESPONSES
from batchrun.core.measuring.trace import Trace
from batchrun.endpoint.alike import Alike
from batchrun.endpoint.assembly import Assembly
from batchrun.endpoint.response_assembly import ResponseAssembly

MEDIA_TYPE = "text/event-stream"
READ_AT_ONCE = 64  # events: a fraction of a millisecond in which no other answer can be stamped
_DONE = b"[DONE]"


class Stream:
    """One streamed answer. `feed` takes what the network brings, in order."""

    __slots__ = (
        *("_alike", "_assembly", "_began_s", "_data", "_events", "_events_s", "_first_chunk_s", "_is_done", "_left"),
        "_tokens_s",
    )

    def __init__(self, began_s: float, *, path: str = CHAT) -> None:
        """Begin, at the monotonic second in which the request to `path` was handed over."""
        self._began_s = began_s
        self._left = b""  # of a line whose end has not come
        self._data: list[bytes] = []  # of the event that is being read
        self._events: list[bytes] = []  # whose end has come, and that have not been read
        self._events_s: list[float] = []  # when each of them came, after the send
        self._assembly: Assembly | ResponseAssembly = ResponseAssembly() if path == RESPONSES else Assembly()
        self._alike = Alike()
        self._first_chunk_s: float | None = None
        self._tokens_s: list[float] = []  # when token chunks came, after the send
        self._is_done = False

    def feed(self, data: bytes) -> None:
        """Take the next bytes, now."""
        now_s = monotonic() - self._began_s
        if not self._left and not self._data and (events := _whole_events(data)):
            if self._first_chunk_s is None:
                self._first_chunk_s = now_s
            self._events += events
            self._events_s += [now_s] * len(events)
        else:
            self._feed_lines(data, now_s)
        if len(self._events) >= READ_AT_ONCE:
            self._read_events()

    def _feed_lines(self, data: bytes, now_s: float) -> None:
        *lines, self._left = (self._left + data).split(b"\n")
        for line in lines:
            if line.startswith(b"data:"):
                self._data.append(line[5:])
            elif self._data and not line.rstrip(b"\r"):
                self._end_event(now_s)

    @property
    def is_whole(self) -> bool:
        """True where the stream said that it is over, or every choice how it ended, or an error why it broke off."""
        self._read_events()
        return self._is_done or self._assembly.is_finished or self._assembly.error is not None

    def finish(self) -> None:
        """Take a last event whose empty line never came."""
        self.feed(b"\n\n")

    def body(self) -> bytes:
        """Return the whole answer's JSON."""
        self._read_events()
        return self._assembly.whole()

    def trace(self) -> Trace | None:
        """Return when its pieces came; None where none did."""
        if self._first_chunk_s is None:
            return None
        self._read_events()
        times = self._tokens_s
        gaps = tuple(after - before for before, after in pairwise(times))
        return Trace(self._began_s, self._first_chunk_s, times[0] if times else None, gaps)

    def _end_event(self, now_s: float) -> None:
        data, self._data = self._data, []
        text = data[0].strip() if len(data) == 1 else b"\n".join([line.strip() for line in data])
        if self._first_chunk_s is None:
            self._first_chunk_s = now_s
        if text == _DONE:
            self._is_done = True
            return
        self._events.append(text)
        self._events_s.append(now_s)

    def _read_events(self) -> None:
        """Put together what the events say that came since the last time."""
        events, times_s = self._events, self._events_s
        if not events:
            return
        self._events, self._events_s = [], []
        take, read, tokens_s = self._alike.take, self._read_event, self._tokens_s
        for event, at_s in zip(events, times_s, strict=True):
            if take(event) or read(event):
                tokens_s.append(at_s)

    def _read_event(self, event: bytes) -> bool:
        """Read one event's JSON; True where it is a token chunk."""
        try:
            chunk: Any = from_json(event)
        except ValueError:
            return False  # of no use: what comes to be whole without it is judged as it is
        if not isinstance(chunk, dict):
            return False
        is_found = self._assembly.add(chunk)
        if (grown := self._assembly.grown) is not None:
            self._alike.learn(event, grown)
        return bool(is_found or (self._tokens_s and chunk.get("choices")))


def _whole_events(data: bytes) -> list[bytes] | None:
    """Return what nearly every read is, whole events of one line each; None where it is anything else."""
    if not (data.startswith(b"data:") and data.endswith(b"\n\n")) or b"\r" in data or _DONE in data:
        return None
    events = data[5:-2].split(b"\n\ndata:")
    return events if data.count(b"\n") == 2 * len(events) else None
