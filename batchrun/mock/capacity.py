"""How much a mock endpoint can do at once: given by its settings, and changed while it runs."""

import json
from dataclasses import asdict, dataclass, replace

from batchrun.mock.config import MockConfig


@dataclass(frozen=True, slots=True)
class Capacity:
    """What happens to many requests at once. None sets no bound."""

    slots: int | None = None  # served at once, the others wait
    knee: int | None = None  # above it all of them become slower, so that no more is done
    refuse_above: int | None = None  # above it a request is refused with 429
    slowdown: float = 1.0  # times as long as it would take
    admits: int | None = None  # a gate: so many are served since the start, the others wait until it is moved

    @classmethod
    def of(cls, config: MockConfig) -> "Capacity":
        return cls(config.slots, config.knee, config.refuse_above)

    def changed(self, body: bytes) -> "Capacity":
        """Return the capacity with what a JSON object says put over it.

        Raises:
            ValueError: naming what makes no sense.
        """
        told = json.loads(body)
        if not isinstance(told, dict) or told.keys() - set(self.__slots__):
            raise ValueError(f"a capacity is an object of {', '.join(self.__slots__)} and nothing else")
        for name, value in told.items():
            is_whole = isinstance(value, int) and not isinstance(value, bool)
            is_number = is_whole or isinstance(value, float)
            if name == "slowdown" and not (is_number and value > 0):
                raise ValueError(f"'slowdown' is {value!r}, but it must be above 0")
            least = 0 if name == "admits" else 1
            if name != "slowdown" and value is not None and not (is_whole and value >= least):
                raise ValueError(f"{name!r} is {value!r}, but it must be at least {least}, or null")
        return replace(self, **told)

    def render(self) -> bytes:
        return json.dumps(asdict(self)).encode()

    def stretch(self, running: int) -> float:
        """Return how many times as long a request takes that begins as one of `running`."""
        return self.slowdown * max(1.0, running / self.knee if self.knee else 1.0)

    def refuses(self, in_flight: int) -> bool:
        return self.refuse_above is not None and in_flight > self.refuse_above
