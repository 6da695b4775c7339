"""Which of several endpoints gets the next request, and which is left alone for a while. All of it as values.

The next request goes where it is likely to be answered first: to the endpoint whose requests take the least time,
multiplied by how many it has (and one more), divided by its weight. An endpoint that becomes slower by its load so gets
less of it, and nobody has to be told how fast each one is.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from math import log

from batchrun.core.outcome import Evidence, Scope
from batchrun.core.states import AttemptState

FAILURES = 3  # in a row, after which an endpoint is left alone for a while
FIRST_COOLING_S = 5.0
LONGEST_COOLING_S = 160.0
SMOOTHING = 0.2  # share of the newest latency in the smoothed one
SLOWER = 2.0  # times slower than another: worth a thought whether to wait for that one instead
DETOUR = 1.5  # a preferred endpoint may cost so many times as much as the cheapest
# What says of an endpoint that it is not well. A refused request can be the request's own fault.
_FAILURES = frozenset(
    {"server_error", "gateway_error", "overloaded", "timeout", "connection_lost", "cut_body"}
    | {"html", "bad_json", "no_choices", "error_in_answer"}
)


@dataclass(frozen=True, slots=True)
class Load:
    """How an endpoint that takes requests stands at a moment."""

    name: str
    in_hand: int  # requests that it has, or that are claimed for it
    room: int  # how many more it may have
    weight: float = 1.0
    latency_s: float | None = None  # how long a request takes there at present; None: nothing is known yet

    @property
    def capacity(self) -> int:
        return self.in_hand + max(0, self.room)


def choose(loads: Sequence[Load], *, waiting: int | None = None, affinity: bytes | None = None) -> int | None:
    """Return the place in `loads` of the endpoint that gets the next request; None: it had better wait.

    Args:
        loads: all endpoints that take requests now; those without room are looked at for their speed.
        waiting: how many requests are still to be sent, this one included; None: many.
        affinity: requests with the same key go to the same endpoint while that one is not much busier than the others:
            what they have in common may be in its cache.
    """
    usual_s = min((one.latency_s for one in loads if one.latency_s is not None), default=1.0)

    def cost(at: int) -> float:
        one = loads[at]
        latency_s = usual_s if one.latency_s is None else one.latency_s
        return latency_s * (one.in_hand + 1) / one.weight

    able = [at for at, one in enumerate(loads) if one.room > 0 and not _is_too_slow(at, loads, waiting)]
    if not able:
        return None
    best = min(able, key=cost)
    if affinity is not None:
        home = max(range(len(loads)), key=lambda at: _score(loads[at], affinity))
        if home in able and cost(home) <= DETOUR * cost(best):
            return home
    return best


def assign(
    loads: Sequence[Load], affinities: Sequence[bytes | None], *, waiting: int | None = None
) -> list[int | None]:
    """Choose for several requests, one after the other, each with its affinity."""
    now, chosen = list(loads), list[int | None]()
    for number, affinity in enumerate(affinities):
        left = None if waiting is None else max(1, waiting - number)
        at = choose(now, waiting=left, affinity=affinity)
        chosen.append(at)
        if at is not None:
            now[at] = replace(now[at], in_hand=now[at].in_hand + 1, room=now[at].room - 1)
    return chosen


def _is_too_slow(at: int, loads: Sequence[Load], waiting: int | None) -> bool:
    """Say whether the others will have done all that waits, this request included, before this endpoint does one."""
    slow_s = loads[at].latency_s
    if waiting is None or slow_s is None:
        return False
    faster = [
        (one.capacity, one.latency_s)
        for one in loads
        if one.latency_s is not None and 0 < one.latency_s * SLOWER < slow_s and one.capacity
    ]
    if not faster:
        return False
    rate = sum(capacity / latency_s for capacity, latency_s in faster)
    return slow_s > waiting / rate + min(latency_s for _, latency_s in faster)


def _score(load: Load, affinity: bytes) -> float:
    """Rank an endpoint for a key: the highest is its home, and each endpoint is home to its weight's share of keys.

    Weighted rendezvous hashing (Schindelhauer and Schomaker, SPAA 2005): who leaves or comes moves only its own keys.
    """
    drawn = int.from_bytes(blake2b(load.name.encode() + b"\n" + affinity, digest_size=8).digest())
    return -load.weight / log((drawn + 1) / (2**64 + 1))


@dataclass
class Health:
    """What an endpoint's latest requests say about it."""

    latency_s: float | None = None  # smoothed
    failures: int = 0  # in a row
    coolings: int = 0  # since the last answer
    is_on_trial: bool = False  # after a cooling: it gets one request at a time until one is answered

    def saw(self, evidence: Evidence) -> float | None:
        """Take note of what a request came to; return for how long to leave the endpoint alone, in seconds."""
        if evidence.outcome is AttemptState.ANSWERED:
            self._note_latency(evidence)
            self.failures = self.coolings = 0
            self.is_on_trial = False
        elif evidence.cause in _FAILURES and evidence.scope is Scope.ITEM:
            self.failures += 1
            if self.failures >= FAILURES or self.is_on_trial:
                return self._cool()
        return None

    def _cool(self) -> float:
        wait_s = min(FIRST_COOLING_S * 2**self.coolings, LONGEST_COOLING_S)
        self.coolings += 1
        self.failures = 0
        self.is_on_trial = True
        return float(wait_s)

    def _note_latency(self, evidence: Evidence) -> None:
        if evidence.timing is None:
            return
        newest_s = evidence.timing.duration_s
        self.latency_s = (
            newest_s if self.latency_s is None else self.latency_s + SMOOTHING * (newest_s - self.latency_s)
        )
