"""A job with adaptive concurrency against a model of an endpoint, on a clock of its own."""

import heapq
import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from math import exp

from batchrun.core.climb import Change, Climb, climb
from batchrun.core.concurrency import Concurrency
from batchrun.core.gauge import Gauge, Seen
from batchrun.core.outcome import Charge, Evidence, Scope, Timing, Usage
from batchrun.core.pace import Pace
from batchrun.core.states import AttemptState

TICK_S = 0.5
RETRY_AFTER_S = 1.0


@dataclass
class Model:
    """An endpoint: so many are served at once, the others wait, or are refused."""

    latency_s: float = 1.0
    sigma: float = 0.0  # of the lognormal factor on each answer's length
    slots: int = 10_000
    refuse_above: int | None = None
    drag: float = 0.0  # how much slower each further request in a batch makes all of them
    error_share: float = 0.0

    def best(self, most: int) -> float:
        """Return the answers a second of the best fixed concurrency up to `most`."""
        most = min(most, self.slots, self.refuse_above or most)
        return most / (self.latency_s * exp(self.sigma**2 / 2) * (1 + self.drag * most))


@dataclass
class Crowd:
    """Runs the two together. What happened is in `ends`: (time, kind) of each request."""

    model: Model
    bounds: Concurrency = field(default_factory=lambda: Concurrency.of("auto"))
    seed: int = 0
    now: float = 0.0
    ends: list[tuple[float, str]] = field(default_factory=list)
    changes: list[tuple[float, Change]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.chance = random.Random(self.seed)
        self.climb = Climb.within(self.bounds)
        self.gauge, self.seen, self.pace = Gauge(), Seen(), Pace(self.climb.limit)
        self.in_flight = self.served = self._number = 0
        self._queue: deque[tuple[float, float, int]] = deque()
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._next_send = 0.0
        self.gauge.begin(1, 0.0, settle_s=0.0)
        self._at(TICK_S, self._tick)
        self._at(0.0, self._send_all)

    def run(self, until: float) -> None:
        """Let time pass."""
        while self._events[0][0] <= until:
            self.now, _, act = heapq.heappop(self._events)
            act()

    def rate(self, kind: str, since: float) -> float:
        """Return the ends of one kind a second from `since` until now."""
        return sum(1 for at, what in self.ends if what == kind and at >= since) / (self.now - since)

    def _at(self, when: float, act: Callable[[], None]) -> None:
        self._number += 1
        heapq.heappush(self._events, (when, self._number, act))

    # -- the job ------------------------------------------------------------------------------------------------------

    def _tick(self) -> None:
        self._at(self.now + TICK_S, self._tick)
        self.gauge.tick(self.now, in_use=self.in_flight, is_open=not self.pace.is_held(self.now))
        if (seen := self.gauge.take()) is not None:
            self.seen.add(seen)
        step = climb(self.climb, self.seen)
        if step is None:
            return
        before, self.climb = self.climb, step[0]
        self.seen = Seen()
        if step[1] is not None:
            self.changes.append((self.now, step[1]))
            assert (step[1].before, step[1].after) == (before.limit, self.climb.limit)
        assert self.bounds.low <= self.climb.limit <= self.bounds.high
        self.gauge.begin(self.climb.round_no, self.now, settle_s=self.climb.latency_s)
        self.pace.resize(self.climb.limit)
        self._send_all()

    def _send_all(self) -> None:
        if self.pace.is_held(self.now):
            self._at(self.pace.held_until, self._send_all)
            return
        while self.in_flight < self.climb.limit and not self.pace.is_held(self.now):
            if self.now < self._next_send:
                self._at(self._next_send, self._send_all)
                return
            self._next_send = self.now + self.pace.admit(chance=self.chance.random())
            self._send()

    def _send(self) -> None:
        self.in_flight += 1
        if self.model.refuse_above is not None and self.in_flight > self.model.refuse_above:
            self._at(self.now + 0.002, lambda sent=self.now: self._end(sent, "throttled"))  # type: ignore[misc]
        elif self.chance.random() < self.model.error_share:
            self._at(self.now + 0.002, lambda sent=self.now: self._end(sent, "failed"))  # type: ignore[misc]
        else:
            factor = self.chance.lognormvariate(0.0, self.model.sigma)
            self._queue.append((self.now, factor * self.model.latency_s, round(100 * factor)))
            self._serve()

    # -- the endpoint -------------------------------------------------------------------------------------------------

    def _serve(self) -> None:
        while self._queue and self.served < self.model.slots:
            self.served += 1
            sent, takes_s, tokens = self._queue.popleft()
            takes_s *= 1 + self.model.drag * self.served
            self._at(self.now + takes_s, lambda sent=sent, tokens=tokens: self._answer(sent, tokens))  # type: ignore[misc]

    def _answer(self, sent: float, tokens: int) -> None:
        self.served -= 1
        self._serve()
        self._end(sent, "answered", tokens)

    def _end(self, sent: float, kind: str, tokens: int = 0) -> None:
        self.in_flight -= 1
        self.ends.append((self.now, kind))
        timing = Timing(sent, None, self.now, self.now - sent)
        self.gauge.saw(self.now, _EVIDENCE[kind](timing, tokens))
        if kind == "throttled":
            self.pace.hold(self.now, asked_s=RETRY_AFTER_S, chance=self.chance.random())
        self._send_all()


_EVIDENCE: dict[str, Callable[[Timing, int], Evidence]] = {
    "answered": lambda timing, tokens: Evidence(
        AttemptState.ANSWERED, None, None, Charge.CERTAIN, timing, usage=Usage(10, tokens)
    ),
    "throttled": lambda timing, tokens: Evidence(
        AttemptState.REFUSED, "rate_limited", "slow down", Charge.NONE, timing, Scope.THROTTLE
    ),
    "failed": lambda timing, tokens: Evidence(AttemptState.REFUSED, "server_error", "engine", Charge.NONE, timing),
}
