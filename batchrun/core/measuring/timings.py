"""One measured request, and the latencies that follow from it, by the definitions of vLLM's and MLPerf's benchmarks.

A *token chunk* is an event of the answer's stream that carries choices, from the first one with anything generated in
it. A first chunk that only says the role is none (vLLM's own chat client counts it as one; on vLLM's server it comes
together with the first token).
"""

from dataclasses import dataclass
from typing import Final

from batchrun.core.states import AttemptState

DEFINITIONS: Final = {
    "TTFT": "time to first token: from the request's send to the first chunk with anything generated in it; "
    "a chunk that only says the role is none",
    "TPOT": "time per output token after the first: (E2EL - TTFT) / (output tokens - 1); none for a single token",
    "ITL": "inter-token latency: the gap between two token chunks of one answer, over all gaps of all answers; "
    "a chunk may hold several tokens",
    "E2EL": "end-to-end latency: from the request's send to its last token chunk, without the wait before the send",
    "queue": "from the moment that a request was due until it was sent: our own wait, in none of the others",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One request of a run. Times are monotonic seconds since the run began; None is "there was none"."""

    name: str  # custom_id of its item
    outcome: AttemptState
    due_s: float | None = None  # when it could first have been sent: its arrival, or the slot before it set free
    sent_s: float | None  # None: it never left
    first_chunk_s: float | None = None  # of anything in the answer's stream
    first_token_s: float | None = None
    gaps_s: tuple[float, ...] = ()  # between token chunks, in order
    last_token_s: float | None = None
    ended_s: float  # the last byte, or the failure
    prompt_tokens: int | None = None  # by the endpoint's own `usage`; None: not told
    output_tokens: int | None = None
    cached_tokens: int | None = None  # of the prompt's
    max_tokens: int | None = None  # that it was allowed
    cause: str | None = None  # of a failure, a word of `outcome.CAUSES`

    @property
    def is_answered(self) -> bool:
        """True where a usable answer came; everything else is a failure, and a miss of every target."""
        return self.outcome is AttemptState.ANSWERED

    @property
    def queue_s(self) -> float | None:
        """Return how long it waited here; None where that is not known."""
        return None if self.due_s is None or self.sent_s is None else max(0.0, self.sent_s - self.due_s)

    @property
    def ttft_s(self) -> float | None:
        """Return the time to the first token."""
        return _between(self.sent_s, self.first_token_s) if self.is_answered else None

    @property
    def e2el_s(self) -> float | None:
        """Return the end-to-end latency; of an answer that was not streamed, to its last byte."""
        if not self.is_answered:
            return None
        return _between(self.sent_s, self.ended_s if self.last_token_s is None else self.last_token_s)

    @property
    def tpot_s(self) -> float | None:
        """Return the mean time per output token after the first."""
        if not self.is_answered or self.output_tokens is None or self.output_tokens < 2:
            return None
        decode_s = _between(self.first_token_s, self.last_token_s)
        return None if decode_s is None else decode_s / (self.output_tokens - 1)


def _between(start_s: float | None, end_s: float | None) -> float | None:
    return None if start_s is None or end_s is None else end_s - start_s
