"""Seeded faults: which arrival of which body goes wrong, and how."""

from enum import StrEnum

from batchrun.mock.config import RATES, MockConfig
from batchrun.mock.dice import to_share


class Fault(StrEnum):
    """What goes wrong with one request."""

    ERROR = "error"  # 500 and a JSON error, no work done
    UNAVAILABLE = "unavailable"  # 503 and a JSON error, no work done
    RATE_LIMIT = "rate_limit"  # 429 with Retry-After, no work done
    HANG = "hang"  # work done, no answer ever
    RESET = "reset"  # work done, then RST
    CUT = "cut"  # 200, body shorter than announced, then closed
    BAD_JSON = "bad_json"  # 200, complete, but HTML
    DRIP = "drip"  # 200, complete, but slow


REFUSALS = frozenset({Fault.ERROR, Fault.UNAVAILABLE, Fault.RATE_LIMIT})
"""Faults that are told at once, take no slot and cost nothing."""


class FaultTable:
    """Look up the fault of one arrival."""

    def __init__(self, config: MockConfig) -> None:
        self._limit = config.faults_per_item
        self._steps = _add_up(config)
        self.is_empty = not self._steps or self._limit == 0  # True: no arrival is ever faulty

    def choose(self, number: int, arrival_no: int) -> Fault | None:
        """Return the fault that a 32-bit number stands for, or None; `arrival_no` counts one body's arrivals."""
        if self._limit is not None and arrival_no > self._limit:
            return None
        share = to_share(number)
        return next((fault for bound, fault in self._steps if share < bound), None)


def _add_up(config: MockConfig) -> list[tuple[float, Fault]]:
    steps: list[tuple[float, Fault]] = []
    bound = 0.0
    for name in RATES:
        rate: float = getattr(config, name)
        bound += rate
        if rate > 0.0:
            steps.append((bound, Fault(name.removesuffix("_rate"))))
    return steps
