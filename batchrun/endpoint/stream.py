"""A streamed answer as it comes: server-sent events, each stamped when its end was read, and put together at the end.

Token chunks are counted as vLLM's benchmark does: every chunk with choices, from the first with anything generated.
"""

from itertools import pairwise
from time import monotonic
from typing import Any

from pydantic_core import from_json

from batchrun.core.measuring.trace import Trace
from batchrun.endpoint.assembly import Assembly

MEDIA_TYPE = "text/event-stream"
_DONE = b"[DONE]"


class Stream:
    """One streamed answer. `feed` takes what the network brings, in order."""

    __slots__ = ("_assembly", "_began_s", "_data", "_first_chunk_s", "_is_done", "_left", "_tokens_s")

    def __init__(self, began_s: float) -> None:
        """Begin, at the monotonic second in which the request was handed over."""
        self._began_s = began_s
        self._left = b""  # of a line whose end has not come
        self._data: list[bytes] = []  # of the event that is being read
        self._assembly = Assembly()
        self._first_chunk_s: float | None = None
        self._tokens_s: list[float] = []  # when token chunks came, after the send
        self._is_done = False

    def feed(self, data: bytes) -> None:
        """Take the next bytes, now."""
        now_s = monotonic() - self._began_s
        *lines, self._left = (self._left + data).split(b"\n")
        for line in lines:
            line = line.removesuffix(b"\r")
            if line.startswith(b"data:"):
                self._data.append(line[5:].strip())
            elif not line and self._data:
                self._end_event(now_s)

    @property
    def is_whole(self) -> bool:
        """True where the stream said that it is over, or every choice how it ended, or an error why it broke off."""
        return self._is_done or self._assembly.is_finished or self._assembly.error is not None

    def finish(self) -> None:
        """Take a last event whose empty line never came."""
        self.feed(b"\n\n")

    def body(self) -> bytes:
        """Return the whole answer's JSON."""
        return self._assembly.whole()

    def trace(self) -> Trace | None:
        """Return when its pieces came; None where none did."""
        if self._first_chunk_s is None:
            return None
        times = self._tokens_s
        gaps = tuple(after - before for before, after in pairwise(times))
        return Trace(self._began_s, self._first_chunk_s, times[0] if times else None, gaps)

    def _end_event(self, now_s: float) -> None:
        text, self._data = b"\n".join(self._data), []
        if self._first_chunk_s is None:
            self._first_chunk_s = now_s
        if text == _DONE:
            self._is_done = True
            return
        try:
            chunk: Any = from_json(text)
        except ValueError:
            return  # of no use: what comes to be whole without it is judged as it is
        if isinstance(chunk, dict) and (self._assembly.add(chunk) or (self._tokens_s and chunk.get("choices"))):
            self._tokens_s.append(now_s)
