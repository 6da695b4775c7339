"""How long the rest may take: a range, from the slowest and the fastest stretches of the work so far."""

from collections import deque
from dataclasses import dataclass, field

from batchrun.core.stats import percentile

STRETCH_S = 3.0
KEPT = 40  # stretches: at least the last two minutes
NEEDED = 3


@dataclass
class Forecast:
    """Measures the work in stretches. Tell it how much is done as often as you like; times are monotonic seconds."""

    _paces: deque[float] = field(default_factory=lambda: deque(maxlen=KEPT))  # items per second, a stretch each
    _began: tuple[float, int] | None = None  # the stretch under way: since when, and what was done then

    def saw(self, now: float, done: int, *, wave: int = 1) -> None:
        """Note how many items are done.

        Args:
            wave: items that make a stretch at least. Requests that left together are answered together: a stretch
                shorter than one such wave says little.
        """
        if self._began is None or done < self._began[1]:
            self._began = (now, done)
            return
        elapsed_s, more = now - self._began[0], done - self._began[1]
        if elapsed_s >= STRETCH_S and more >= wave:
            self._paces.append(more / elapsed_s)
            self._began = (now, done)

    def rest(self) -> None:
        """Drop the stretch under way: the work waits for something else than itself."""
        self._began = None

    def left_s(self, left: int, *, last_s: float | None) -> tuple[float, float] | None:
        """Return how long `left` items may take, in seconds; None before three stretches were measured.

        Nine stretches of ten were at least as fast as the upper bound takes them, and one of ten as fast as the lower.

        Args:
            last_s: how long a slow request takes: the last one begins when nearly everything else has ended.
        """
        if left <= 0 or len(self._paces) < NEEDED:
            return None
        slow, fast = percentile(self._paces, 10), percentile(self._paces, 90)
        if not slow or not fast:
            return None
        return left / fast, left / slow + (last_s or 0.0)
