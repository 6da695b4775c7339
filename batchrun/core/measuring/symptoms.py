"""What is known of one load when it is asked why it is slow: layers, lengths, failures, what was seen beside it."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

from batchrun.core.measuring.cache_hits import cache_hit_share
from batchrun.core.measuring.document import Measurement, Run, Series, all_requests
from batchrun.core.measuring.layers import Layer, growth, known_values, layers_of
from batchrun.core.measuring.observed import ClientLoad, client_load
from batchrun.core.stats import percentile


@dataclass(frozen=True, slots=True, kw_only=True)
class Symptoms:
    """One load of one group, over all its rounds. None is "not known"."""

    level: float  # concurrency, or requests a second
    is_open: bool = False  # arrivals do not wait for answers
    job: str | None = None  # of which job, where it is one
    requests: int = 0
    completed: int = 0
    layers: tuple[Layer, ...] = ()
    causes: Mapping[str, int] = field(default_factory=dict)  # of the failed requests
    retried: int = 0  # requests beyond the first of their item
    prompt_p50: float | None = None  # tokens
    prompt_p99: float | None = None
    output_p50: float | None = None
    output_limit: int | None = None  # max_tokens of the requests
    cut_share: float | None = None  # of the answers: ended by max_tokens
    cached_share: float | None = None  # of the prompts' tokens: from the server's cache
    is_varied: bool = False  # the prompts were made so that no cache could help
    ttft_p50_s: float | None = None
    tpot_p50_s: float | None = None
    throughput: float | None = None  # output tokens a second, or requests where nothing tells tokens
    waiting_mean: float | None = None  # in the server
    running_most: float | None = None
    kv_cache_most: float | None = None  # share
    preemptions: float | None = None
    client: ClientLoad | None = None
    gpu_throttled_share: float | None = None  # of the looks
    rpm: int | None = None  # the job's own limits
    tpm: int | None = None

    def share_of(self, *names: str) -> float:
        """Return which share of a request's time these layers take."""
        return sum(layer.share for layer in self.layers if layer.name in names)

    def mean_of(self, name: str) -> float:
        """Return the mean seconds of a layer; 0 where it was not seen."""
        return sum(layer.mean_s for layer in self.layers if layer.name == name)


def symptoms_of(measurement: Measurement, group: str) -> list[Symptoms]:
    """Return the symptoms of each load of a group, the least load first."""
    loads: dict[tuple[float, int | None], list[Run]] = {}
    for run in measurement.runs:
        if run.group == group:
            loads.setdefault((run.level, run.max_tokens), []).append(run)
    return [
        _symptoms(measurement, runs) for _, runs in sorted(loads.items(), key=lambda one: (one[0][0], one[0][1] or 0))
    ]


def _symptoms(measurement: Measurement, runs: Sequence[Run]) -> Symptoms:
    setup = measurement.setup
    requests = all_requests(runs)
    answered = [one for one in requests if one.is_answered]
    prompts = [one.prompt_tokens for one in answered if one.prompt_tokens is not None]
    outputs = [one.output_tokens for one in answered if one.output_tokens is not None]
    limit = runs[0].max_tokens or (setup.workload.max_tokens[0] if len(setup.workload.max_tokens) == 1 else None)
    is_job = setup.arrivals.kind == "job"
    return Symptoms(
        level=runs[0].level,
        is_open=setup.arrivals.kind not in ("closed", "job"),
        job=measurement.id if is_job else None,
        requests=sum(run.figures.requests for run in runs),
        completed=sum(run.figures.completed for run in runs),
        layers=layers_of(requests, runs[-1].observations),
        causes=_added(run.figures.causes for run in runs),
        retried=len(requests) - len({(at, one.name) for at, run in enumerate(runs) for one in run.requests or ()}),
        prompt_p50=percentile(prompts, 50),
        prompt_p99=percentile(prompts, 99),
        output_p50=percentile(outputs, 50),
        output_limit=limit,
        cut_share=sum(count >= limit for count in outputs) / len(outputs) if limit and outputs else None,
        cached_share=_mean([cache_hit_share(run) for run in runs]),
        is_varied=setup.workload.is_varied and not setup.workload.shared_prefix_tokens,
        ttft_p50_s=_median([one.ttft_s for one in answered]),
        tpot_p50_s=_median([one.tpot_s for one in answered]),
        throughput=_mean([run.figures.output_throughput or run.figures.request_throughput for run in runs]),
        **_seen(runs),
    )


def _seen(runs: Sequence[Run]) -> dict[str, Any]:
    """Return what the observers saw, over all rounds."""

    def values(name: str) -> list[float]:
        return [value for run in runs for value in known_values(run.observations, name)]

    throttled = [value for name in _names(runs) if name.endswith(".throttled") for value in values(name)]
    grew = [found for run in runs if (found := growth(run.observations, "server.preemptions")) is not None]
    cpu, lag = values("client.cpu_share"), values("client.loop_lag_s")
    return {
        "waiting_mean": _mean(values("server.waiting")),
        "running_most": max(values("server.running"), default=None),
        "kv_cache_most": max(values("server.kv_cache_share"), default=None),
        "preemptions": sum(grew) if grew else None,
        "client": client_load(cpu, lag) if cpu or lag else None,
        "gpu_throttled_share": _mean(throttled),
    }


def _names(runs: Sequence[Run]) -> list[str]:
    found: dict[str, Series] = {}
    for run in runs:
        found |= run.observations
    return list(found)


def _added(counts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    total: dict[str, int] = {}
    for one in counts:
        for cause, count in one.items():
            total[cause] = total.get(cause, 0) + count
    return total


def _median(values: Sequence[float | None]) -> float | None:
    return percentile([value for value in values if value is not None], 50)


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return fmean(known) if known else None
