"""A run under the key names of `vllm bench serve`'s result file, for tools that read those.

Latencies are over the answered requests alone, as there. What vLLM knows and we do not (its tokenizer, the generated
texts) is left out.
"""

from collections.abc import Callable, Sequence
from math import fsum, sqrt
from typing import Any

from batchrun.core.measuring.document import Measurement, Run
from batchrun.core.measuring.figures import PERCENTILES, answered_only
from batchrun.core.measuring.targets import Targets
from batchrun.core.measuring.timings import Measured
from batchrun.core.stats import mean, percentile

BACKENDS = {"/v1/chat/completions": "openai-chat", "/v1/completions": "openai"}


def vllm_result(measurement: Measurement, run: Run) -> dict[str, Any]:
    """Return one run as vLLM would have written it. Its requests must not have been left out."""
    setup = measurement.setup
    group = next(one for one in setup.groups if one.name == run.group)
    requests = run.requests or ()
    targets = Targets(**setup.targets)
    figures = answered_only(requests, targets=targets)
    is_closed = setup.arrivals.kind == "closed"
    return {
        "date": run.started_at,
        "backend": BACKENDS.get(group.endpoint, group.endpoint),
        "model_id": group.model,
        "num_prompts": len(requests),
        "request_rate": "inf" if is_closed else run.level,
        "burstiness": setup.arrivals.burstiness or 1.0,
        "max_concurrency": int(run.level) if is_closed else setup.arrivals.most_in_flight,
        "duration": figures.duration_s,
        "completed": figures.completed,
        "failed": figures.failed,
        "total_input_tokens": figures.prompt_tokens or 0,
        "total_output_tokens": figures.output_tokens or 0,
        "request_throughput": figures.request_throughput,
        "request_goodput": figures.goodput,
        "output_throughput": figures.output_throughput,
        "total_token_throughput": figures.total_token_throughput,
        "input_lens": [one.prompt_tokens or 0 for one in requests],
        "output_lens": [one.output_tokens or 0 for one in requests],
        "ttfts": [one.ttft_s or 0.0 for one in requests],
        "itls": [list(one.gaps_s) for one in requests],
        "errors": ["" if one.is_answered else one.cause or one.outcome.value for one in requests],
        **_latencies([one for one in requests if one.is_answered]),
    }


def _latencies(answered: Sequence[Measured]) -> dict[str, float | None]:
    values: dict[str, Callable[[Measured], Sequence[float | None]]] = {
        "ttft": lambda one: [one.ttft_s],
        "tpot": lambda one: [one.tpot_s],
        "itl": lambda one: one.gaps_s,
        "e2el": lambda one: [one.e2el_s],
    }
    found: dict[str, float | None] = {}
    for name, of in values.items():
        known = [value * 1000 for one in answered for value in of(one) if value is not None]
        average = mean(known)
        found[f"mean_{name}_ms"] = average
        found[f"median_{name}_ms"] = percentile(known, 50)
        found[f"std_{name}_ms"] = (
            None if average is None else sqrt(fsum((value - average) ** 2 for value in known) / len(known))
        )
        found |= {f"p{p}_{name}_ms": percentile(known, p) for p in PERCENTILES}
    return found
