"""How much of the prompts the server knew already: by its own counters, else by the answers' usage."""

from batchrun.core.measuring.document import Run
from batchrun.core.measuring.layers import growth

QUERIES, HITS = "server.prefix_queries", "server.prefix_hits"


def cache_hit_share(run: Run) -> float | None:
    """Return the share (0..1) of one run's prompt tokens that came from a prefix cache; None where nobody tells."""
    queries, hits = growth(run.observations, QUERIES), growth(run.observations, HITS)
    if queries and hits is not None:
        return hits / queries
    told = [one for one in run.requests or () if one.is_answered and one.cached_tokens is not None]
    total = sum(one.prompt_tokens or 0 for one in told)
    return sum(one.cached_tokens or 0 for one in told) / total if total else None
