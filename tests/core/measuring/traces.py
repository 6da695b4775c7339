"""Recorded requests, written as a person reads them: milliseconds from the send."""

from collections.abc import Sequence
from itertools import pairwise

from batchrun.core.measuring.timings import Measured
from batchrun.core.states import AttemptState


def answered(
    *chunks_ms: float,
    name: str = "r",
    sent_s: float = 0.0,
    due_s: float | None = None,
    tokens: int | None = None,
    prompt_tokens: int | None = 10,
    role_ms: float | None = None,
    ended_ms: float | None = None,
) -> Measured:
    """Make an answered request of the times of its token chunks; `tokens` None: one a chunk."""
    at_s = [sent_s + ms / 1000 for ms in chunks_ms]
    return Measured(
        name=name,
        outcome=AttemptState.ANSWERED,
        due_s=due_s,
        sent_s=sent_s,
        first_chunk_s=at_s[0] if role_ms is None else sent_s + role_ms / 1000,
        first_token_s=at_s[0],
        gaps_s=tuple(after - before for before, after in pairwise(at_s)),
        last_token_s=at_s[-1],
        ended_s=at_s[-1] if ended_ms is None else sent_s + ended_ms / 1000,
        prompt_tokens=prompt_tokens,
        output_tokens=len(chunks_ms) if tokens is None else tokens,
    )


def failed(
    after_ms: float,
    *,
    name: str = "f",
    sent_s: float = 0.0,
    cause: str = "server_error",
    max_tokens: int | None = None,
) -> Measured:
    return Measured(
        name=name,
        outcome=AttemptState.REFUSED,
        sent_s=sent_s,
        ended_s=sent_s + after_ms / 1000,
        cause=cause,
        max_tokens=max_tokens,
    )


def steadily(count: int, *, ttft_ms: float, gap_ms: float, tokens: int, sent_s: Sequence[float]) -> list[Measured]:
    """Make `count` answers that all take the same."""
    chunks = [ttft_ms + gap_ms * number for number in range(tokens)]
    return [answered(*chunks, name=f"r{number}", sent_s=sent_s[number]) for number in range(count)]
