"""What makes a run's figures doubtful: said with them, never corrected in silence."""

from collections.abc import Iterator
from math import fsum

from batchrun.core.measuring.cache_hits import cache_hit_share
from batchrun.core.measuring.document import Run

EARLY = 0.9  # of the wanted output: below it answers ended by themselves
KNOWN = 0.1  # of the prompts' tokens, beyond what is shared on purpose: more than templates and chance
OURS = 0.1  # of a slot's time that the client takes between an answer and the next request


def doubts(run: Run, *, shared_share: float = 0.0) -> Iterator[str]:
    """Yield what a reader must know before he believes a run.

    Args:
        shared_share: which part of the prompts is alike on purpose (0..1).
    """
    requests = run.requests or ()
    failures = [one for one in requests if not one.is_answered]
    if failures:
        causes = sorted({one.cause or one.outcome.value for one in failures})
        yield f"{len(failures)} of {len(requests)} requests failed ({', '.join(causes)})"
    if run.events:
        yield f"the endpoint asked for {len(run.events)} pauses, and the run kept them"
    known = cache_hit_share(run)
    if known is not None and known > shared_share + KNOWN:
        yield f"a cache flatters it: the server knew {known:.0%} of the prompts' tokens already"
    yield from _about_answers(run)
    waited_s = fsum(one.queue_s or 0.0 for one in requests)
    busy_s = fsum(one.ended_s - one.sent_s for one in requests if one.sent_s is not None)
    if waited_s > OURS * (waited_s + busy_s):
        share = waited_s / (waited_s + busy_s)
        yield f"the client kept requests waiting for {share:.0%} of their time: rates are too low by about that"


def _about_answers(run: Run) -> Iterator[str]:
    answered = [one for one in run.requests or () if one.is_answered]
    told = [one for one in answered if one.output_tokens is not None]
    if len(told) < len(answered):
        yield "the endpoint did not say how many tokens some answers have: token rates are too low"
    wanted = sum(one.max_tokens or 0 for one in told)
    came = sum(one.output_tokens or 0 for one in told)
    if came < EARLY * wanted:
        yield f"answers ended early: {came / len(told):.0f} tokens instead of {wanted / len(told):.0f}"
    whole = sum(one.first_token_s is None for one in answered)
    if whole:
        yield f"{whole} answers came whole, not in pieces: they have no TTFT, TPOT and ITL"
