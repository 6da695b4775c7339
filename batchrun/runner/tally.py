"""What this process has done so far: live counts, rates and latencies for those who watch. The ledger is the truth."""

import math
from collections import deque
from dataclasses import dataclass, field

from batchrun.core.outcome import Evidence
from batchrun.core.states import AttemptState, ItemState
from batchrun.core.stats import percentile

WINDOW_S = 10.0


@dataclass(frozen=True, slots=True)
class Failure:
    """A request that brought no answer, and what became of its item."""

    custom_id: str
    cause: str | None
    message: str
    to: ItemState
    at: float  # seconds on the clock of whoever tells it


@dataclass
class Tally:
    """Counts since this process began to work on the job. Times are monotonic seconds."""

    began: float
    moved: dict[ItemState, int] = field(default_factory=dict)
    answers: int = 0
    retries: int = 0
    completion_tokens: int = 0
    in_flight: int = 0
    last_failure: Failure | None = None
    last_answer_at: float | None = None
    completed: list[int] = field(default_factory=list)  # items newly completed, for the partial output
    latencies_s: deque[float] = field(default_factory=lambda: deque(maxlen=2_000))
    _recent: deque[tuple[float, int, int]] = field(default_factory=deque)  # second, items, tokens

    def saw(self, now: float, evidence: Evidence, to: ItemState, *, custom_id: str) -> None:
        """Count one settled attempt."""
        if to is ItemState.PENDING:
            self.retries += 1
        else:
            self.moved[to] = self.moved.get(to, 0) + 1
        tokens = evidence.usage.completion_tokens or 0
        if evidence.outcome is AttemptState.ANSWERED:
            self.answers += 1
            self.last_answer_at = now
            self.completion_tokens += tokens
            if evidence.timing is not None:
                self.latencies_s.append(evidence.timing.duration_s)
            self._count(now, tokens)
        if evidence.message:
            self.last_failure = Failure(custom_id, evidence.cause, evidence.message, to, now)

    def copied(self, now: float, count: int) -> None:
        """Count items that were completed by an answer that was there."""
        if count:
            self.moved[ItemState.COMPLETED] = self.moved.get(ItemState.COMPLETED, 0) + count
            self.last_answer_at = now
            for _ in range(count):
                self._count(now, 0)

    def _count(self, now: float, tokens: int) -> None:
        second = float(int(now))
        if self._recent and self._recent[-1][0] == second:
            _, items, before = self._recent[-1]
            self._recent[-1] = (second, items + 1, before + tokens)
        else:
            self._recent.append((second, 1, tokens))
        while self._recent and self._recent[0][0] < now - WINDOW_S - 1:
            self._recent.popleft()

    def take_completed(self) -> list[int]:
        """Return the items that were completed since this was asked last."""
        fresh, self.completed = self.completed, []
        return fresh

    def measure_anew(self, now: float) -> None:
        """Forget the rates so far: what comes now is another kind of work."""
        self._recent.clear()
        self.began = now

    def rates(self, now: float) -> tuple[float | None, float | None]:
        """Return (items/s, output tokens/s) over the last ten seconds; None while nothing was answered in them."""
        recent = [entry for entry in self._recent if entry[0] >= now - WINDOW_S]
        if not recent:
            return None, None
        # The window begins with a whole second: what came earlier in that second is counted too.
        span_s = max(1.0, now - max(self.began, math.ceil(now - WINDOW_S)))
        return sum(entry[1] for entry in recent) / span_s, sum(entry[2] for entry in recent) / span_s

    def silent_s(self, now: float) -> float:
        """Return for how long no answer has come."""
        return now - max(self.began, self.last_answer_at or 0.0)

    def latencies(self) -> tuple[float | None, float | None]:
        """Return p50 and p95 of the latest answers' durations, in seconds."""
        ordered = sorted(self.latencies_s)
        return percentile(ordered, 50), percentile(ordered, 95)
