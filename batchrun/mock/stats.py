"""Counters of one mock endpoint, and how they are shown."""

import json
from collections import Counter
from dataclasses import dataclass, field

from batchrun.mock.plan import Work
from batchrun.mock.slots import Slots


@dataclass(slots=True)
class Stats:
    """What was counted since the start or the last `POST /__reset`. Requests to `/__...` are never counted."""

    requests: int = 0  # all requests
    posts: int = 0  # those that are POSTs, served or refused
    billed: int = 0  # those a provider would charge
    in_flight: int = 0  # POSTs that came and did not end yet
    max_in_flight: int = 0
    connections: int = 0  # accepted
    open_connections: int = 0
    by_status: Counter[int] = field(default_factory=Counter)
    by_fault: Counter[str] = field(default_factory=Counter)
    repeated_bodies: int = 0  # bodies billed more than once
    arrivals: dict[bytes, int] = field(default_factory=dict)  # per body, by its digest
    bills: dict[bytes, int] = field(default_factory=dict)  # per body
    prompt_tokens: int = 0  # of requests served to their end
    completion_tokens: int = 0
    prefix_queries: int = 0  # tokens that were looked for in the prefix cache
    prefix_hits: int = 0  # those that were there
    finished: Counter[str] = field(default_factory=Counter)  # served to their end, by finish reason
    queue_s: float = 0.0  # waited for a slot by requests that got one
    queue_count: int = 0
    prefill_s: float = 0.0  # from the slot to the first token, of requests served to their end
    decode_s: float = 0.0  # from the first token to the last

    def count_arrival(self, digest: bytes) -> int:
        """Count a body; return how many times it has come by now."""
        arrival_no = self.arrivals[digest] = self.arrivals.get(digest, 0) + 1
        return arrival_no

    def count_bill(self, digest: bytes) -> None:
        """Count a request that a provider would charge."""
        self.billed += 1
        bills = self.bills[digest] = self.bills.get(digest, 0) + 1
        if bills == 2:
            self.repeated_bodies += 1

    def count_begin(self) -> None:
        """Count a POST that is in flight from now on."""
        self.posts += 1
        self.in_flight += 1
        if self.in_flight > self.max_in_flight:
            self.max_in_flight = self.in_flight

    def count_slot(self, waited_s: float) -> None:
        """Count a request that has its slot."""
        self.queue_s += waited_s
        self.queue_count += 1

    def count_service(self, work: Work, stretch: float) -> None:
        """Count work done, whether or not its answer gets through; it took `stretch` times as long."""
        self.prompt_tokens += work.prompt_tokens
        self.completion_tokens += work.completion_tokens
        self.finished[work.finish_reason] += 1
        self.prefill_s += work.pace.ttft_s * stretch
        self.decode_s += (work.duration_s - work.pace.ttft_s) * stretch

    def reset(self) -> None:
        """Forget everything but what is in flight and connected right now."""
        fresh = Stats(in_flight=self.in_flight, max_in_flight=self.in_flight, open_connections=self.open_connections)
        for name in self.__slots__:
            setattr(self, name, getattr(fresh, name))


def render_stats(stats: Stats, slots: Slots) -> bytes:
    """Render the answer of `GET /__stats`, which only the mock has."""
    shown = {
        "requests": stats.requests,
        "posts": stats.posts,
        "billed": stats.billed,
        "in_flight": stats.in_flight,
        "max_in_flight": stats.max_in_flight,
        "running": slots.running_count,
        "waiting": slots.waiting_count,
        "connections": stats.connections,
        "open_connections": stats.open_connections,
        "distinct_bodies": len(stats.arrivals),
        "repeated_bodies": stats.repeated_bodies,
        "by_status": {str(status): count for status, count in sorted(stats.by_status.items())},
        "by_fault": dict(sorted(stats.by_fault.items())),
        "prompt_tokens": stats.prompt_tokens,
        "completion_tokens": stats.completion_tokens,
        "prefix_queries": stats.prefix_queries,
        "prefix_hits": stats.prefix_hits,
    }
    return json.dumps(shown).encode()


def render_metrics(stats: Stats, slots: Slots, model: str) -> bytes:
    """Render the answer of `GET /metrics` in Prometheus' text format, under vLLM's names."""
    label = f'engine="0",model_name={json.dumps(model)}'
    lines: list[str] = []
    for kind, name, value in (
        ("gauge", "num_requests_running", slots.running_count),
        ("gauge", "num_requests_waiting", slots.waiting_count),
        ("gauge", "kv_cache_usage_perc", round(slots.usage_share, 6)),
        ("counter", "prefix_cache_queries_total", stats.prefix_queries),
        ("counter", "prefix_cache_hits_total", stats.prefix_hits),
        ("counter", "num_preemptions_total", 0),
        ("counter", "prompt_tokens_total", stats.prompt_tokens),
        ("counter", "generation_tokens_total", stats.completion_tokens),
    ):
        lines += [f"# TYPE vllm:{name} {kind}", f"vllm:{name}{{{label}}} {value}"]
    lines.append("# TYPE vllm:request_success_total counter")
    for reason in ("stop", "length"):
        lines.append(f'vllm:request_success_total{{{label},finished_reason="{reason}"}} {stats.finished[reason]}')
    served = stats.finished.total()
    for name, seconds, count in (
        ("queue", stats.queue_s, stats.queue_count),
        ("prefill", stats.prefill_s, served),
        ("decode", stats.decode_s, served),
    ):
        full = f"vllm:request_{name}_time_seconds"
        buckets = f'{full}_bucket{{{label},le="+Inf"}} {count}'
        lines += [f"# TYPE {full} histogram", buckets]
        lines += [f"{full}_sum{{{label}}} {round(seconds, 6)}", f"{full}_count{{{label}}} {count}"]
    return ("\n".join(lines) + "\n").encode()
