"""Chunks that differ from one before in their piece of text alone: their text is found without reading JSON again.

A server writes each chunk of an answer from one pattern: the same bytes, but for the piece. What stands between the
same beginning and the same end, with neither quote nor backslash in it, is the text of the same JSON string.
"""

from typing import Any

from batchrun.endpoint.assembly import Grown

MOST_LEARNT = 8  # patterns without a single use: this server writes each chunk otherwise


class Alike:
    """The pattern of one answer's chunks, as far as it is known, and the text that they make longer."""

    __slots__ = ("_head", "_learnt", "_name", "_tail", "_whole")

    def __init__(self) -> None:
        self._head = b""  # of an event, up to and with the quote before its text; empty: there is no pattern yet
        self._tail = b""  # from the quote after it
        self._whole: dict[str, Any] = {}
        self._name = ""
        self._learnt = 0

    def learn(self, event: bytes, grown: Grown) -> None:
        """Take the pattern of an event whose JSON was read, and which did nothing but make a text longer."""
        self._head = b""
        if self._learnt >= MOST_LEARNT:
            return
        self._learnt += 1
        written = grown.text.encode("utf-8", "surrogatepass")
        for colon in (b'":"', b'": "'):
            place = b'"' + grown.name.encode() + colon + written + b'"'
            head, found, tail = event.partition(place)
            if found and place not in tail:
                self._head, self._tail = head + place[: -len(written) - 1], b'"' + tail
                self._whole, self._name = grown.whole, grown.name
                return

    def take(self, event: bytes) -> bool:
        """Add the text of an event of the pattern; False: its JSON has to be read."""
        head, tail = self._head, self._tail
        if not head or not event.startswith(head) or not event.endswith(tail) or len(event) <= len(head) + len(tail):
            return False
        written = event[len(head) : -len(tail)]
        before = self._whole[self._name]
        if b'"' in written or b"\\" in written or type(before) is not str:
            return False
        try:
            text = written.decode()
        except UnicodeDecodeError:
            return False
        if not text.isprintable():  # JSON has no control characters as they are
            return False
        self._whole[self._name] = before + text
        self._learnt = 0
        return True
