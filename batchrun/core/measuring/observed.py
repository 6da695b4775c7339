"""What is seen beside a run: the series by name, what each means, and when the client was the narrow place."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Kind:
    """What the values of a series are."""

    title: str
    unit: str  # "" for a count
    means: str
    is_counter: bool = False  # it only grows: its difference over the run is what tells


KINDS: dict[str, Kind] = {
    "server.running": Kind("Running on the server", "requests", "requests that the server computes at this moment"),
    "server.waiting": Kind("Waiting on the server", "requests", "requests that the server holds in its own queue"),
    "server.kv_cache_share": Kind(
        "KV cache in use", "share", "share of the KV cache's blocks in use; near 1 the server preempts"
    ),
    "server.prefix_hit_share": Kind(
        "Prefix cache hits", "share", "share of the prompt that was found in the prefix cache, as the server tells it"
    ),
    "server.prefix_queries": Kind(
        "Prefix cache queries", "tokens", "prompt tokens (older servers: blocks) looked up in the prefix cache", True
    ),
    "server.prefix_hits": Kind("Prefix cache hits", "tokens", "of these, how many were found", True),
    "server.preemptions": Kind(
        "Preemptions", "requests", "requests that the server put back because its KV cache was full", True
    ),
    "server.queue_s": Kind("Time in the server's queue", "s", "summed over requests", True),
    "server.queue_count": Kind("Requests that left the server's queue", "requests", "since the server's start", True),
    "server.prefill_s": Kind("Time in prefill", "s", "reading the prompts, summed over requests", True),
    "server.prefill_count": Kind("Requests prefilled", "requests", "since the server's start", True),
    "server.decode_s": Kind("Time in decode", "s", "writing the answers, summed over requests", True),
    "server.decode_count": Kind("Requests decoded", "requests", "since the server's start", True),
    "server.prompt_tokens": Kind("Prompt tokens", "tokens", "read by the server since its start", True),
    "server.generation_tokens": Kind("Output tokens", "tokens", "written by the server since its start", True),
    "client.cpu_share": Kind("CPU of the client", "share", "of one core, used by batchrun's own process"),
    "client.loop_lag_s": Kind(
        "Lag of the client", "s", "the longest time in that second by which our own process woke up too late"
    ),
    "gpu.memory_bytes": Kind("GPU memory in use", "bytes", "on the device, by all processes"),
    "gpu.utilisation_share": Kind("GPU utilisation", "share", "share of the time in which some kernel ran"),
    "gpu.power_w": Kind("GPU power", "W", "drawn by the device"),
    "gpu.temperature_c": Kind("GPU temperature", "°C", "of the chip"),
    "gpu.throttled": Kind("GPU held back", "", "1 where its clock was lowered for heat or power"),
}
GPU = "gpu"


def kind_of(name: str) -> Kind | None:
    """Return what a series is; the name of a GPU's carries its number ("gpu1.power_w")."""
    head, _, rest = name.partition(".")
    if head.startswith(GPU) and (number := head.removeprefix(GPU)).isdigit():
        kind = KINDS.get(f"{GPU}.{rest}")
        return kind and Kind(f"{kind.title} ({number})", kind.unit, kind.means, kind.is_counter)
    return KINDS.get(name)


# A second in which the client had no core left, or woke up late by so much, tells nothing about the server.
BUSY_CPU_SHARE = 0.95
BUSY_LAG_S = 0.1
BUSY_SECONDS_SHARE = 0.1  # of the run: more of them and it is no measurement


@dataclass(frozen=True, slots=True)
class ClientLoad:
    """How busy the client was during a run."""

    seconds: int  # looked at
    busy_seconds: int
    most_cpu_share: float | None
    most_lag_s: float | None

    @property
    def is_saturated(self) -> bool:
        return self.busy_seconds > 0 and self.busy_seconds >= BUSY_SECONDS_SHARE * self.seconds

    @property
    def words(self) -> str:
        """Say what this means for the run's figures."""
        most = f"at most {self.most_cpu_share or 0:.0%} of a core, {(self.most_lag_s or 0) * 1000:.0f} ms late"
        if self.is_saturated:
            return (
                f"the client was saturated in {self.busy_seconds} of {self.seconds} s ({most}): "
                "its own lag is in every time, so this is no measurement of the server"
            )
        return f"the client kept up ({most})"


def client_load(cpu_shares: Sequence[float], lags_s: Sequence[float]) -> ClientLoad:
    """Judge the client by its CPU (of one core) and its lag, both second by second."""
    seconds = max(len(cpu_shares), len(lags_s))
    busy = sum(
        (at < len(cpu_shares) and cpu_shares[at] >= BUSY_CPU_SHARE) or (at < len(lags_s) and lags_s[at] >= BUSY_LAG_S)
        for at in range(seconds)
    )
    return ClientLoad(seconds, busy, max(cpu_shares, default=None), max(lags_s, default=None))
