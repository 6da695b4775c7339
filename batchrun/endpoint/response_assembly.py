"""The events of a streamed answer of /v1/responses: the last one carries the whole answer, as it is asked for whole.

Source: OpenAI's reference of streaming events of the Responses API.
"""

from typing import Any

from pydantic_core import to_json

from batchrun.endpoint.assembly import Grown

_ENDS = frozenset({"response.completed", "response.incomplete", "response.failed", "response.cancelled"})


class ResponseAssembly:
    """An answer whose pieces are looked at for their times, and whose whole comes at the end."""

    def __init__(self) -> None:
        self.error: dict[str, Any] | None = None  # an event that says that something went wrong
        self.grown: Grown | None = None  # never: each event has a number of its own
        self._whole: dict[str, Any] | None = None

    def add(self, event: dict[str, Any]) -> bool:
        """Take the next event; True where something generated is in it: text, reasoning, or arguments of a call."""
        kind, whole = event.get("type"), event.get("response")
        if kind in _ENDS and isinstance(whole, dict):
            self._whole = whole
        elif kind == "error" or (kind is None and event.get("error")):
            inner = event.get("error")
            told = {name: event[name] for name in ("code", "message", "param") if name in event}
            self.error = {"error": inner if isinstance(inner, dict) else told}
        return isinstance(kind, str) and kind.endswith(".delta") and bool(event.get("delta"))

    @property
    def is_finished(self) -> bool:
        """True once the whole answer has come."""
        return self._whole is not None

    def whole(self) -> bytes:
        """Return the answer's JSON; of a stream that brought an error, the error's."""
        return to_json(self._whole if self.error is None else self.error)
