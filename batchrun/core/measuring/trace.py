"""When the pieces of one streamed answer came: what a measured attempt keeps beside its outcome.

The clock is the sending host's own monotonic one, so that the requests of several processes there can be laid beside
each other. Packed it takes four bytes a chunk.
"""

import struct
from dataclasses import dataclass
from itertools import accumulate, pairwise

_HEAD = struct.Struct("<dIiI")  # sent_s, first chunk, first token (-1: none), count of gaps; times in microseconds
_MOST_US = 2**31 - 1  # 35 minutes; what takes longer is written as so long


@dataclass(frozen=True, slots=True)
class Trace:
    """The times of one streamed answer."""

    sent_s: float  # monotonic clock of the host, in seconds
    first_chunk_s: float  # after the send, like all that follows
    first_token_s: float | None  # None: nothing was generated
    gaps_s: tuple[float, ...] = ()  # between token chunks, in order

    @property
    def last_token_s(self) -> float | None:
        """Return when the last token chunk came, in seconds after the send."""
        return None if self.first_token_s is None else self.first_token_s + sum(self.gaps_s)

    def pack(self) -> bytes:
        """Return it in few bytes, at the resolution of a microsecond; rounding does not add up over the gaps."""
        token_us = -1 if self.first_token_s is None else _us(self.first_token_s)
        at_us = [int(at_s * 1e6 + 0.5) for at_s in accumulate(self.gaps_s, initial=self.first_token_s or 0.0)]
        if at_us[-1] > _MOST_US:
            at_us = [min(one, _MOST_US) for one in at_us]
        gaps_us = [max(0, after - before) for before, after in pairwise(at_us)]
        head = _HEAD.pack(self.sent_s, _us(self.first_chunk_s), token_us, len(gaps_us))
        return head + struct.pack(f"<{len(gaps_us)}I", *gaps_us)

    @classmethod
    def unpack(cls, blob: bytes) -> "Trace":
        """Read what `pack` wrote.

        Raises:
            ValueError: it is something else.
        """
        try:
            sent_s, chunk_us, token_us, count = _HEAD.unpack_from(blob)
            gaps_us = struct.unpack(f"<{count}I", blob[_HEAD.size :])
        except struct.error as error:
            raise ValueError("these bytes are no trace") from error
        token_s = None if token_us < 0 else token_us / 1e6
        return cls(sent_s, chunk_us / 1e6, token_s, tuple(gap / 1e6 for gap in gaps_us))


def _us(seconds: float) -> int:
    return min(_MOST_US, max(0, int(seconds * 1e6 + 0.5)))
