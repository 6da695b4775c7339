"""Where a request's time goes: the layers between the moment that it could be sent and its last byte.

What the client sees is the first token and the end. What lies before the first token is told apart only by a server
that publishes how long its requests waited and were prefilled; the rest of it is the way there and back.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean

from batchrun.core.measuring.document import Series
from batchrun.core.measuring.server_metrics import grown
from batchrun.core.measuring.timings import Measured

QUEUE = "our queue"
SERVER_QUEUE = "server's queue"
PREFILL = "prefill"
WAY = "way to the first token"
DECODE = "decode"
WHOLE = "request, undivided"
TAIL = "after the last token"

MEANINGS = {
    QUEUE: "from the moment that the request could be sent until it was: a claim to write down, no slot, no rate left",
    SERVER_QUEUE: "waiting inside the server, as it says itself",
    PREFILL: "the server reads the prompt, as it says itself",
    WAY: "connection, network and the server's front, and whatever of queue and prefill the server does not tell",
    DECODE: "from the first token to the last",
    WHOLE: "from the send to the last byte: without streaming the first token is not seen",
    TAIL: "from the last token to the last byte",
}


@dataclass(frozen=True, slots=True)
class Layer:
    """One layer of the time of an answered request, on average."""

    name: str
    mean_s: float
    share: float  # of all layers together


def layers_of(requests: Sequence[Measured], observations: Mapping[str, Series] | None = None) -> tuple[Layer, ...]:
    """Divide the mean time of the answered requests into its layers; none where nothing was answered."""
    answered = [one for one in requests if one.is_answered and one.sent_s is not None]
    if not answered:
        return ()
    found: dict[str, float] = {QUEUE: _mean([one.queue_s for one in answered])}
    streamed = [one for one in answered if one.ttft_s is not None and one.e2el_s is not None]
    if len(streamed) == len(answered):
        first_s = _mean([one.ttft_s for one in answered])
        whole_s = _mean([one.e2el_s for one in answered])
        found |= _before_first_token(first_s, observations or {})
        found[DECODE] = whole_s - first_s
        found[TAIL] = _mean([one.ended_s - (one.sent_s or 0.0) for one in answered]) - whole_s
    else:
        found[WHOLE] = _mean([one.e2el_s for one in answered])
    total_s = sum(found.values())
    return tuple(
        Layer(name, mean_s, mean_s / total_s if total_s else 0.0) for name, mean_s in found.items() if mean_s > 0
    )


def _before_first_token(first_s: float, observations: Mapping[str, Series]) -> dict[str, float]:
    """Divide the time to the first token by what the server told of all its requests in that time."""
    queue_s, prefill_s = (told_mean(observations, name) or 0.0 for name in ("queue", "prefill"))
    told_s = queue_s + prefill_s
    if told_s > first_s > 0:  # it served others too, or its clock runs otherwise: keep the proportion
        queue_s, prefill_s = (part * first_s / told_s for part in (queue_s, prefill_s))
    return {SERVER_QUEUE: queue_s, PREFILL: prefill_s, WAY: max(0.0, first_s - queue_s - prefill_s)}


def told_mean(observations: Mapping[str, Series], name: str) -> float | None:
    """Return the mean seconds a request that the server tells of a stage ("queue", "prefill", "decode")."""
    seconds, count = (growth(observations, f"server.{name}_{part}") for part in ("s", "count"))
    return seconds / count if seconds is not None and count else None


def growth(observations: Mapping[str, Series], name: str) -> float | None:
    """Return by how much a counter grew over the run; None where it was not seen twice."""
    known = known_values(observations, name)
    if len(known) < 2:
        return None
    return sum(grown(before, after) for before, after in pairwise(known))


def known_values(observations: Mapping[str, Series], name: str) -> list[float]:
    """Return the values of a series that could be read."""
    return [value for value in observations[name].values if value is not None] if name in observations else []


def _mean(values: Sequence[float | None]) -> float:
    known = [value for value in values if value is not None]
    return fmean(known) if known else 0.0
