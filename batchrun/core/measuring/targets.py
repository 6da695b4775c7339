"""Targets for single requests, in vLLM's syntax (`--goodput ttft:2000 tpot:100 e2el:30000`), and how many meet them."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite

from batchrun.core.measuring.timings import Measured

NAMES = ("ttft", "tpot", "e2el")


@dataclass(frozen=True, slots=True)
class Targets:
    """The most milliseconds that each latency of a good request may take; None: no target for it."""

    ttft: float | None = None
    tpot: float | None = None
    e2el: float | None = None

    @classmethod
    def parse(cls, texts: Iterable[str]) -> "Targets":
        """Read "ttft:2000 tpot:100", in one text or several.

        Raises:
            ValueError: in words for the user.
        """
        found: dict[str, float] = {}
        for text in (word for part in texts for word in part.replace(",", " ").split()):
            name, colon, number = text.partition(":")
            if not colon or name not in NAMES:
                raise ValueError(f"{text!r} is no target: write NAME:MILLISECONDS, with a name of {', '.join(NAMES)}")
            if name in found:
                raise ValueError(f"{name!r} has two targets")
            found[name] = _milliseconds(text, number)
        return cls(**found)

    @property
    def by_name(self) -> Mapping[str, float]:
        """Return the targets there are, in milliseconds."""
        pairs = ((name, getattr(self, name)) for name in NAMES)
        return {name: value for name, value in pairs if value is not None}

    def is_met(self, one: Measured) -> bool:
        """Say whether a request is good. A failure never is; a single token has no TPOT to be missed, as in vLLM.

        A latency that is not known (no usage, no stream) is a miss: nobody has shown that it was met.
        """
        if not one.is_answered:
            return False
        taken = {"ttft": one.ttft_s, "tpot": one.tpot_s, "e2el": one.e2el_s}
        if taken["tpot"] is None and one.output_tokens is not None and one.output_tokens < 2:
            taken["tpot"] = 0.0
        return all((value := taken[name]) is not None and value * 1000 <= most for name, most in self.by_name.items())

    def attainment(self, requests: Sequence[Measured]) -> float | None:
        """Return the share (0..1) of all requests that are good; None of none, or without a target."""
        if not requests or not self.by_name:
            return None
        return sum(map(self.is_met, requests)) / len(requests)


def _milliseconds(text: str, number: str) -> float:
    try:
        value = float(number)
    except ValueError:
        value = -1.0
    if not isfinite(value) or value < 0:
        raise ValueError(f"{text!r} is no target: the milliseconds must be a number, 0 or more")
    return value
