"""How much of the prompts the server knew already: by its own counters, else by the answers' usage."""

from batchrun.core.measuring.document import Run, Series

QUERIES, HITS = "server.prefix_queries", "server.prefix_hits"


def cache_hit_share(run: Run) -> float | None:
    """Return the share (0..1) of one run's prompt tokens that came from a prefix cache; None where nobody tells."""
    queries, hits = _growth(run.observations.get(QUERIES)), _growth(run.observations.get(HITS))
    if queries and hits is not None:
        return hits / queries
    told = [one for one in run.requests or () if one.is_answered and one.cached_tokens is not None]
    total = sum(one.prompt_tokens or 0 for one in told)
    return sum(one.cached_tokens or 0 for one in told) / total if total else None


def _growth(series: Series | None) -> float | None:
    """Return by how much a counter grew over the run; None where it was not seen twice."""
    values = [value for value in series.values if value is not None] if series is not None else []
    return values[-1] - values[0] if len(values) > 1 else None
