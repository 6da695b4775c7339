"""How many requests may be in flight at once: a number that stays, or a range in which the job finds its own."""

import re
from dataclasses import dataclass

MOST = 10_000
AUTO_MOST = 512  # with the usual 1,024 open files it leaves enough for everything else
FIRST = 8  # where a range begins to be climbed, if it lies in it
_NUMBER = r"(?:[1-9][0-9]{0,3}|10000)"
WRITTEN = re.compile(rf"(?:auto|{_NUMBER}-{_NUMBER})\Z")
ALLOWED = f'an integer from 1 to {MOST:,}, "auto", or a range such as "4-64"'


@dataclass(frozen=True, slots=True)
class Concurrency:
    """What a spec or a flag allows; where both bounds are one number, that one stays."""

    low: int
    high: int

    @classmethod
    def of(cls, value: object) -> "Concurrency":
        """Read what stands in a spec: 8, "auto" or "4-64".

        Raises:
            ValueError: it is none of these.
        """
        if isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= MOST:
            return cls(value, value)
        if not isinstance(value, str) or not WRITTEN.match(value):
            raise ValueError(f"must be {ALLOWED}")
        if value == "auto":
            return AUTO
        low, high = map(int, value.split("-"))
        if low >= high:
            raise ValueError(f"must be {ALLOWED}, the smaller number first")
        return cls(low, high)

    @property
    def is_fixed(self) -> bool:
        return self.low == self.high

    @property
    def first(self) -> int:
        """Where it begins when nothing is known of the endpoint."""
        return min(max(FIRST, self.low), self.high)

    @property
    def written(self) -> int | str:
        """As it stands in a spec."""
        if self.is_fixed:
            return self.low
        return "auto" if self == AUTO else f"{self.low}-{self.high}"

    def __str__(self) -> str:
        return f"{self.low:,}" if self.is_fixed else str(self.written)


AUTO = Concurrency(1, AUTO_MOST)
