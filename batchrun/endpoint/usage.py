"""What a reply says of its tokens and its cost. What is no count, or no amount, is "not told", and never 0."""

from collections.abc import Mapping
from decimal import Decimal, InvalidOperation
from typing import Any

from batchrun.core.outcome import NO_USAGE, Usage
from batchrun.core.prices import PUSD

MOST_TOKENS = 10**8  # a count above this is a fault, and no ledger could add up what it would cost
MOST_USD = 1_000_000  # the same of an amount
COST_HEADER = "x-litellm-response-cost"


def read_usage(body: Mapping[str, Any]) -> Usage:
    """Read the token counts; whatever is no count (null, text, negative, true) is "not told"."""
    usage = body.get("usage")
    if not isinstance(usage, dict):
        return NO_USAGE
    prompt = _count(usage, "prompt_tokens", "input_tokens")
    completion = _count(usage, "completion_tokens", "output_tokens")
    if completion is None and prompt is not None and prompt == _count(usage, "total_tokens") and "data" in body:
        completion = 0  # embeddings: the total says that there are no others
    asked = _details(usage, "prompt_tokens_details", "input_tokens_details")
    said = _details(usage, "completion_tokens_details", "output_tokens_details")
    reasoning = _count(said, "reasoning_tokens") if said else None
    # DeepSeek, Moonshot and LiteLLM count the cache beside the details, each by a name of its own.
    cached = _count(asked, "cached_tokens") if asked else None
    if cached is None:
        cached = _count(usage, "prompt_cache_hit_tokens", "cached_tokens", "cache_read_input_tokens")
    written = _count(asked, "cache_write_tokens", "cache_creation_tokens") if asked else None
    if written is None:
        written = _count(usage, "cache_creation_input_tokens")
    unnamed = _unnamed(prompt, completion, _count(usage, "total_tokens"), reasoning)
    return Usage(prompt, completion, cached, written, reasoning, unnamed)


def _unnamed(prompt: int | None, completion: int | None, total: int | None, reasoning: int | None) -> int:
    """Return how many tokens are neither the prompt's nor the answer's: some leave reasoning out of their answers'."""
    if prompt is None or completion is None:
        return 0
    beyond = 0 if total is None else total - prompt - completion
    return max(0, beyond, reasoning if reasoning is not None and reasoning > completion else 0)


def _details(usage: Mapping[str, Any], *names: str) -> Mapping[str, Any]:
    for name in names:
        if isinstance(found := usage.get(name), dict):
            return found
    return {}


def _count(usage: Mapping[str, Any], *names: str) -> int | None:
    for name in names:
        value = usage.get(name)
        if value is None:
            continue
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MOST_TOKENS:
            return value
    return None


def reported_pusd(headers: Mapping[str, str], body: object = None) -> int | None:
    """Return what the endpoint itself says that the request cost, in picodollars; None where it does not say.

    LiteLLM says it in a header, OpenRouter in `usage.cost`, Perplexity in `usage.cost.total_cost`.
    """
    usage = body.get("usage") if isinstance(body, dict) else None
    cost = usage.get("cost") if isinstance(usage, dict) else None
    if isinstance(cost, dict):
        cost = cost.get("total_cost")
    found = _amount(cost)
    return _amount(headers.get(COST_HEADER)) if found is None else found


def _amount(value: object) -> int | None:
    if value is None or isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        amount = Decimal(str(value).strip()) if len(str(value)) <= 60 else Decimal("NaN")
    except (InvalidOperation, ValueError):
        return None
    return round(amount * PUSD) if amount.is_finite() and 0 <= amount <= MOST_USD else None
