"""How long an answer takes: time to the first token and between tokens, with a lognormal spread."""

import math
from dataclasses import dataclass

from batchrun.mock.config import MockConfig
from batchrun.mock.dice import to_normal


@dataclass(frozen=True, slots=True)
class Pace:
    """The speed of one answer, counted from the moment it has its slot."""

    ttft_s: float  # to the first token
    itl_s: float  # between two tokens

    def after(self, wait_s: float) -> "Pace":
        """Return the same pace, begun so much later."""
        return self if wait_s == 0.0 else Pace(self.ttft_s + wait_s, self.itl_s)

    def compute_e2el_s(self, token_count: int) -> float:
        """Return the time to the last token."""
        return self.ttft_s + self.itl_s * max(token_count - 1, 0)


class Clockwork:
    """Give each request its pace."""

    def __init__(self, config: MockConfig) -> None:
        self._sigma = config.latency_sigma
        if config.latency_ms is None:
            self._median = Pace(config.ttft_ms / 1000.0, config.itl_ms / 1000.0)
        else:
            self._median = Pace(config.latency_ms / 1000.0, 0.0)
        self.is_even = self._sigma == 0.0 or self._median == Pace(0.0, 0.0)  # True: all requests have one pace

    def draw(self, throw: tuple[int, ...]) -> Pace:
        """Spread the median pace by the numbers 1 to 4 of a throw (number 0 is the fault's)."""
        if self.is_even:
            return self._median
        return Pace(
            self._median.ttft_s * math.exp(self._sigma * to_normal(throw[1], throw[2])),
            self._median.itl_s * math.exp(self._sigma * to_normal(throw[3], throw[4])),
        )
