"""When requests arrive where nobody waits for answers: Poisson, bursts, and a wave like a day's."""

import re
from dataclasses import dataclass
from math import cos, pi
from random import Random
from typing import Literal

from batchrun.core.measuring.document import Arrivals
from batchrun.errors import UsageFault

Kind = Literal["closed", "poisson", "gamma", "wave"]
BURSTINESS = 0.25  # of gamma arrivals: the gaps vary twice as much as Poisson's
WAVE_S = 60.0  # one "day"
TROUGH = 0.2  # of the mean rate; the peak is at 1.8 of it
MOST_IN_FLIGHT = 256
_KIND = re.compile(r"(closed|poisson|gamma|wave)(?::([0-9.]+))?$")


@dataclass(frozen=True, slots=True)
class Pattern:
    """A pattern of arrivals without its rate."""

    kind: Kind = "closed"
    burstiness: float = BURSTINESS  # shape of gamma's gaps, as vLLM's: 1 is Poisson, less comes in bursts
    wave_s: float = WAVE_S

    @classmethod
    def parse(cls, text: str) -> "Pattern":
        """Read "poisson", "gamma:0.5" (burstiness), "wave:120" (seconds of one day).

        Raises:
            UsageFault: it is something else.
        """
        found = _KIND.match(text)
        try:
            amount = float(found[2]) if found and found[2] else None
        except ValueError:
            found, amount = None, None
        if found is None or amount == 0 or (amount is not None and found[1] in ("closed", "poisson")):
            raise UsageFault(
                f"there are no arrivals {text!r}", hint="closed, poisson, gamma[:BURSTINESS] or wave[:SECONDS]"
            )
        kind: Kind = found[1]  # type: ignore[assignment]
        if kind == "gamma" and amount is not None:
            return cls(kind, burstiness=amount)
        return cls(kind, wave_s=amount) if kind == "wave" and amount is not None else cls(kind)

    @property
    def is_closed(self) -> bool:
        """True where the next request leaves when an answer has come, and not before."""
        return self.kind == "closed"

    def schedule(self, count: int, rate: float, *, seed: int) -> tuple[float, ...]:
        """Return when each of `count` requests is due, in seconds from the first: `rate` a second on the average."""
        dice = Random(f"{seed} arrivals {self.kind}")
        if self.kind == "wave":
            return self._wave(count, rate, dice)
        shape = self.burstiness if self.kind == "gamma" else 1.0
        at_s, due = 0.0, []
        for _ in range(count):
            due.append(at_s)
            at_s += dice.gammavariate(shape, 1.0 / (rate * shape))
        return tuple(due)

    def described(self, levels: tuple[float, ...], most_in_flight: int) -> Arrivals:
        """Return it as a result document keeps it."""
        return Arrivals(
            kind=self.kind,
            levels=levels,
            burstiness={"gamma": self.burstiness, "poisson": 1.0}.get(self.kind),
            wave_s=self.wave_s if self.kind == "wave" else None,
            most_in_flight=None if self.is_closed else most_in_flight,
        )

    def _wave(self, count: int, rate: float, dice: Random) -> tuple[float, ...]:
        """Thin a Poisson stream at the peak's rate (Lewis and Shedler, 1979): it begins in the trough."""
        swing = 1.0 - TROUGH
        at_s, due = 0.0, [0.0]
        while len(due) < count:
            at_s += dice.expovariate(rate * (1 + swing))
            if dice.random() * (1 + swing) < 1 - swing * cos(2 * pi * at_s / self.wave_s):
                due.append(at_s)
        return tuple(due)
