"""What the requests of one round show of their endpoint: how quickly it works, and whether it refuses."""

from dataclasses import astuple, dataclass

from batchrun.core.outcome import Evidence, Scope
from batchrun.core.states import AttemptState

# Beside the tokens of its answer a request costs its endpoint about as much as so many: the prompt, and the way.
OWN_WORK_TOKENS = 16.0
_FAILURES = frozenset({"server_error", "gateway_error", "timeout", "connection_lost", "cut_body"})


@dataclass(slots=True)
class Seen:
    """What was seen of a round, by one process or by all of them together."""

    answers: int = 0
    work: float = 0.0  # of these answers, in tokens
    busy_s: float = 0.0  # how long they took, added up
    failed: int = 0  # 5xx, timeouts, lost connections
    throttled: int = 0  # 429, and what says as much
    used_s: float = 0.0  # slots in use, times how long
    open_s: float = 0.0  # how long requests could start

    def add(self, other: "Seen") -> None:
        """Take in what another process has seen of the same round."""
        for name, more in zip(self.__slots__, astuple(other), strict=True):
            if name != "open_s":
                setattr(self, name, getattr(self, name) + more)
        self.open_s = max(self.open_s, other.open_s)

    @property
    def is_empty(self) -> bool:
        """True where it says nothing about any request."""
        return not (self.answers or self.failed or self.throttled)

    @property
    def speed(self) -> float | None:
        """Work that a request gets done in a second of its time: what becomes less when the endpoint queues."""
        return self.work / self.busy_s if self.answers and self.busy_s > 0 else None

    @property
    def latency_s(self) -> float:
        return self.busy_s / self.answers if self.answers else 0.0


class Gauge:
    """Reads one process's part of each round. Times are monotonic seconds, and arguments.

    A new limit takes about one latency to be felt: what is sent earlier in its round does not count, but for refusals.
    """

    def __init__(self) -> None:
        self.round_no = 0
        self._began = self._settled = self._ticked = 0.0
        self._open_s = 0.0
        self._seen = Seen()

    def begin(self, round_no: int, now: float, *, settle_s: float) -> None:
        """Begin a round; the one that is under way goes on."""
        if round_no != self.round_no:
            self.round_no = round_no
            self._began, self._settled, self._ticked = now, now + settle_s, now + settle_s
            self._seen, self._open_s = Seen(), 0.0

    def saw(self, now: float, evidence: Evidence) -> None:
        """Take note of what a request came to, in the moment in which that is known."""
        if evidence.timing is None:
            return
        sent, seen = now - evidence.timing.duration_s, self._seen
        if evidence.scope is Scope.THROTTLE:
            seen.throttled += sent >= self._began
        elif sent < self._settled:
            return
        elif evidence.outcome is AttemptState.ANSWERED:
            seen.answers += 1
            seen.work += OWN_WORK_TOKENS + (evidence.usage.completion_tokens or 0)
            seen.busy_s += evidence.timing.duration_s
        elif evidence.cause in _FAILURES:
            seen.failed += 1

    def tick(self, now: float, *, in_use: int, is_open: bool) -> None:
        """Take note of how many slots are in use; regularly.

        Args:
            is_open: requests may start: nobody has asked for a pause.
        """
        passed_s, self._ticked = max(0.0, now - self._ticked), max(now, self._ticked)
        if is_open:
            self._open_s += passed_s
            self._seen.used_s += passed_s * in_use

    def take(self) -> Seen | None:
        """Return what was seen since it was taken last; `open_s` is of the whole round.

        None while no request has come to anything: what is known of the slots stays here until then.
        """
        if self._seen.is_empty:
            return None
        seen, self._seen = self._seen, Seen()
        seen.open_s = self._open_s
        return seen
