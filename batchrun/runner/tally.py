"""What this process has done so far: live counts, rates and latencies for those who watch. The ledger is the truth."""

from collections import deque
from dataclasses import dataclass, field

from batchrun.core.outcome import Evidence
from batchrun.core.states import AttemptState, ItemState
from batchrun.core.stats import percentile

WINDOW_S = 10.0


@dataclass
class Tally:
    """Counts since this process began to work on the job. Times are monotonic seconds."""

    began: float
    moved: dict[ItemState, int] = field(default_factory=dict)
    answers: int = 0
    retries: int = 0
    completion_tokens: int = 0
    in_flight: int = 0
    last_failure: str | None = None
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
            self.completion_tokens += tokens
            if evidence.timing is not None:
                self.latencies_s.append(evidence.timing.duration_s)
            self._count(now, tokens)
        elif evidence.message:
            self.last_failure = f"{custom_id}: {evidence.message}"

    def _count(self, now: float, tokens: int) -> None:
        second = float(int(now))
        if self._recent and self._recent[-1][0] == second:
            _, items, before = self._recent[-1]
            self._recent[-1] = (second, items + 1, before + tokens)
        else:
            self._recent.append((second, 1, tokens))
        while self._recent and self._recent[0][0] < now - WINDOW_S - 1:
            self._recent.popleft()

    def rates(self, now: float) -> tuple[float | None, float | None]:
        """Return (items/s, output tokens/s) over the last ten seconds; None before anything was answered."""
        recent = [entry for entry in self._recent if entry[0] >= now - WINDOW_S]
        if not recent:
            return None, None
        span_s = max(1.0, min(WINDOW_S, now - max(self.began, recent[0][0])))
        return sum(entry[1] for entry in recent) / span_s, sum(entry[2] for entry in recent) / span_s

    def latency(self, p: float) -> float | None:
        """Return the p-th percentile of the latest answers' durations, in seconds."""
        return percentile(list(self.latencies_s), p)
