"""What a server says of itself on its `/metrics` page: Prometheus' text, read for the few figures that explain a run.

Only the lines of known servers are looked at. A page of vLLM has a thousand lines, and it is read beside a run.
Source of the format: Prometheus' exposition format 0.0.4 (OpenMetrics' counters and exemplars are read as well).
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

# Figure -> the names under which servers give it, the newest first; where several stand on a page the first one counts.
NAMES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "running": ("vllm:num_requests_running", "sglang:num_running_reqs", "llamacpp:requests_processing"),
        "waiting": ("vllm:num_requests_waiting", "sglang:num_queue_reqs", "llamacpp:requests_deferred"),
        "kv_cache_share": (
            "vllm:kv_cache_usage_perc",
            "vllm:gpu_cache_usage_perc",
            "sglang:token_usage",
            "llamacpp:kv_cache_usage_ratio",
        ),
        "prefix_queries": (
            "vllm:prefix_cache_queries",
            "vllm:gpu_prefix_cache_queries",
            "sglang:prompt_tokens",
        ),
        "prefix_hits": ("vllm:prefix_cache_hits", "vllm:gpu_prefix_cache_hits", "sglang:cached_tokens"),
        "prefix_hit_share": ("vllm:gpu_prefix_cache_hit_rate", "sglang:cache_hit_rate"),
        "preemptions": ("vllm:num_preemptions", "sglang:num_retracted_requests", "sglang:num_retracted_reqs"),
        "queue_s": ("vllm:request_queue_time_seconds_sum", "sglang:queue_time_seconds_sum"),
        "queue_count": ("vllm:request_queue_time_seconds_count", "sglang:queue_time_seconds_count"),
        "prefill_s": ("vllm:request_prefill_time_seconds_sum", "llamacpp:prompt_seconds"),
        "prefill_count": ("vllm:request_prefill_time_seconds_count",),
        "decode_s": ("vllm:request_decode_time_seconds_sum", "llamacpp:tokens_predicted_seconds"),
        "decode_count": ("vllm:request_decode_time_seconds_count",),
        "prompt_tokens": ("vllm:prompt_tokens", "sglang:prompt_tokens", "llamacpp:prompt_tokens"),
        "generation_tokens": ("vllm:generation_tokens", "sglang:generation_tokens", "llamacpp:tokens_predicted"),
    }
)
SERVERS = MappingProxyType({"vllm": "vLLM", "sglang": "SGLang", "llamacpp": "llama.cpp"})
# Shares of several engines are not added: the fullest one is the one that preempts.
SHARES = frozenset({"kv_cache_share", "prefix_hit_share"})
GAUGES = frozenset({"running", "waiting"}) | SHARES

_WANTED = sorted({name for names in NAMES.values() for name in names}, key=len, reverse=True)
_LABELS = rb'(?:\{(?:[^"}]|"(?:[^"\\]|\\.)*")*\})?'
_SAMPLE = re.compile(
    rb"^(%b)(?:_total)?%b[ \t]+(\S+)" % (b"|".join(re.escape(name).encode() for name in _WANTED), _LABELS), re.MULTILINE
)


@dataclass(frozen=True, slots=True)
class ServerFigures:
    """One look at a page. A figure that the server does not give is not there."""

    server: str
    values: Mapping[str, float]  # by the names of `NAMES`; counters as they stand since the server's start


def read_metrics(page: bytes) -> ServerFigures | None:
    """Read a page; None where it is of no server that is known here. Lines that make no sense are passed over."""
    found: dict[str, list[float]] = {}
    for name, word in _SAMPLE.findall(page):
        if (value := _number(word)) is not None:
            found.setdefault(name.decode(), []).append(value)
    if not found:
        return None
    server = SERVERS[next(iter(found)).partition(":")[0]]
    return ServerFigures(server, _figures(found))


def _number(word: bytes) -> float | None:
    try:
        value = float(word)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def _figures(found: Mapping[str, list[float]]) -> dict[str, float]:
    figures = {}
    for figure, names in NAMES.items():
        given = next((found[name] for name in names if name in found), None)
        if given is not None:
            figures[figure] = max(given) if figure in SHARES else math.fsum(given)
    return figures


def grown(before: float, after: float) -> float:
    """Return by how much a counter grew between two looks; a server that began anew counts from 0."""
    return after - before if after >= before else after
