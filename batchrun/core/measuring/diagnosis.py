"""Where a load is slow, layer by layer: pure rules from symptoms to findings, each with its evidence and what to try.

A finding does not prove its cause. It names the layer that the figures point at, and what would show whether it is so;
a lower concurrency first, since that costs nothing and undoes most queues.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum

from batchrun.core.measuring.layers import DECODE, PREFILL, QUEUE, SERVER_QUEUE, WAY
from batchrun.core.measuring.symptoms import Symptoms


class Weight(IntEnum):
    """How much a finding matters."""

    INVALID = 3  # the figures are not what they seem
    FAULT = 2  # requests are lost or paid twice
    SLOW = 1  # here the time goes
    NOTE = 0  # worth knowing


@dataclass(frozen=True, slots=True)
class Finding:
    """What one rule found at one load."""

    layer: str
    weight: Weight
    share: float  # 0..1, of the time or of the requests: the larger the sooner to look at
    evidence: str
    advice: tuple[str, ...]  # what to try next, the first thing first


Rule = Callable[[Symptoms, Symptoms | None], Finding | None]  # a load, and the next lower one where there is one


def diagnose(loads: Sequence[Symptoms]) -> list[tuple[Symptoms, list[Finding]]]:
    """Look at each load of a ladder, the least first; what matters most comes first."""
    found = []
    for at, load in enumerate(loads):
        lower = loads[at - 1] if at else None
        findings = [one for rule in RULES if (one := rule(load, lower)) is not None]
        findings.sort(key=lambda one: (-one.weight, -one.share))
        found.append((load, findings))
    return found


# -- rules ------------------------------------------------------------------------------------------------------------


def _client(load: Symptoms, _lower: Symptoms | None) -> Finding | None:
    if load.client is None or not load.client.is_saturated:
        return None
    return Finding(
        "client",
        Weight.INVALID,
        load.client.busy_seconds / max(1, load.client.seconds),
        load.client.words,
        (
            _lower_first(load),
            "close what else runs on this machine, or send from several processes (`batchrun worker`)",
        ),
    )


def _cache(load: Symptoms, _lower: Symptoms | None) -> Finding | None:
    if not load.is_varied or load.cached_share is None or load.cached_share < 0.2:
        return None
    return Finding(
        "input",
        Weight.INVALID,
        load.cached_share,
        f"{load.cached_share:.0%} of the prompt tokens came out of the server's cache, and no two prompts begin alike",
        (
            "look whether the chat template begins every prompt with a long text of its own",
            "measure with longer prompts",
        ),
    )


def _failures(load: Symptoms, _lower: Symptoms | None) -> Finding | None:
    other = {cause: count for cause, count in load.causes.items() if cause not in (*THROTTLED, *UNREACHED)}
    failed = sum(other.values())
    if not failed or failed / load.requests < 0.01:
        return None
    words = ", ".join(f"{count:,} {cause}" for cause, count in sorted(other.items(), key=lambda one: -one[1])[:4])
    timeouts = other.get("timeout", 0) + other.get("server_error", 0)
    first = _lower_first(load) if timeouts else None
    look = f"batchrun failures {load.job}" if load.job else "the same load once more, and the server's own log"
    return Finding(
        "reliability",
        Weight.FAULT,
        failed / load.requests,
        f"{failed:,} of {load.requests:,} requests failed: {words}",
        tuple(filter(None, (first, look))),
    )


def _throttling(load: Symptoms, _lower: Symptoms | None) -> Finding | None:
    throttled = sum(load.causes.get(cause, 0) for cause in THROTTLED)
    if not load.requests or throttled / load.requests < 0.01:
        return None
    return Finding(
        "throttling",
        Weight.FAULT,
        throttled / load.requests,
        f"{throttled:,} of {load.requests:,} requests were turned away (429 or 503): each waits and is sent again",
        (_lower_first(load), "set `rpm` or `tpm` to what the provider grants, so that nothing is turned away"),
    )


def _retries(load: Symptoms, _lower: Symptoms | None) -> Finding | None:
    turned_away = sum(load.causes.get(cause, 0) for cause in THROTTLED)
    again = load.retried - turned_away
    if not load.requests or again / load.requests < 0.02:
        return None
    return Finding(
        "retries",
        Weight.FAULT,
        again / load.requests,
        f"{again:,} of {load.requests:,} requests were second tries: work that was done, and perhaps paid, for nothing",
        (_lower_first(load), "raise `timeout_s` if the failures are timeouts: an answer that came too late is lost"),
    )


def _connection(load: Symptoms, _lower: Symptoms | None) -> Finding | None:
    unsent = sum(load.causes.get(cause, 0) for cause in UNREACHED)
    if not load.requests or unsent / load.requests < 0.005:
        return None
    return Finding(
        "connection",
        Weight.FAULT,
        unsent / load.requests,
        f"{unsent:,} of {load.requests:,} requests never reached the server: no connection, name or certificate",
        (_lower_first(load), "raise the server's backlog, or what a proxy before it allows at once"),
    )


def _our_queue(load: Symptoms, _lower: Symptoms | None) -> Finding | None:
    share = load.share_of(QUEUE)
    if share < 0.2 or load.mean_of(QUEUE) < 0.05:
        return None
    evidence = f"a request waits {_time(load.mean_of(QUEUE))} here before it is sent: {share:.0%} of its time"
    if load.is_open:
        advice: tuple[str, ...] = (f"lower the rate of arrivals below {load.level:g} a second: more come than end",)
    elif load.rpm or load.tpm:
        limits = " and ".join(f"{name} {value:,}" for name, value in (("rpm", load.rpm), ("tpm", load.tpm)) if value)
        advice = (f"that is your own limit ({limits}): raise it if the endpoint grants more",)
    elif any(load.causes.get(cause) for cause in THROTTLED):
        advice = (_lower_first(load), "most of it is the pause after each time that the endpoint turned requests away")
    else:
        advice = (
            "look at the disk of the ledger and the CPU of this machine: a claim is written down before it is sent",
        )
    return Finding("our queue", Weight.SLOW, share, evidence, advice)


def _server_queue(load: Symptoms, lower: Symptoms | None) -> Finding | None:
    share = load.share_of(SERVER_QUEUE)
    is_waiting = load.waiting_mean is not None and load.waiting_mean >= 1
    is_told = load.waiting_mean is not None or share > 0  # by the server: then nothing is guessed
    grew = None if is_told or lower is None else _growth(load.ttft_p50_s, lower.ttft_p50_s)
    steady = None if lower is None else _growth(load.tpot_p50_s, lower.tpot_p50_s)
    said = []
    if share >= 0.15:
        said.append(
            f"a request waits {_time(load.mean_of(SERVER_QUEUE))} in the server's queue, {share:.0%} of its time"
        )
    if is_waiting:
        running = "" if load.running_most is None else f" while {load.running_most:.0f} run at most"
        said.append(f"{load.waiting_mean:.1f} requests wait there on average{running}")
    if lower is not None and grew is not None and grew >= 2 and (steady or 1) < 1.5:
        said.append(
            f"the first token takes {grew:.1f} times as long as at {lower.level:g}, and the tokens after it do not"
        )
    if not said:
        return None
    room = (
        "then raise what the server runs at once (vLLM: --max-num-seqs), if its KV cache has room; then add a replica"
    )
    return Finding("server's queue", Weight.SLOW, max(share, 0.15), "; ".join(said), (_lower_first(load), room))


def _kv_cache(load: Symptoms, _lower: Symptoms | None) -> Finding | None:
    is_full = load.kv_cache_most is not None and load.kv_cache_most >= 0.95
    if not load.preemptions and not is_full:
        return None
    said = []
    if load.preemptions:
        said.append(f"the server put {load.preemptions:,.0f} requests back (preemptions) and computes them again")
    if is_full:
        said.append(f"its KV cache was {load.kv_cache_most:.0%} full")
    return Finding(
        "KV cache",
        Weight.SLOW,
        0.9 if load.preemptions else 0.3,
        "; ".join(said),
        (
            _lower_first(load),
            "a smaller max_tokens, or shorter prompts",
            "more memory for the cache (vLLM: --gpu-memory-utilization, an fp8 KV cache)",
        ),
    )


def _prefill(load: Symptoms, _lower: Symptoms | None) -> Finding | None:
    share = load.share_of(PREFILL)
    if share < 0.35:
        return None
    length = "" if load.prompt_p50 is None else f", of prompts of {load.prompt_p50:,.0f} tokens"
    return Finding(
        "prefill",
        Weight.SLOW,
        share,
        f"reading the prompt takes {_time(load.mean_of(PREFILL))}, {share:.0%} of the time{length}",
        (
            "put what all prompts share at their beginning, and let the server cache it (vLLM: prefix caching)",
            _lower_first(load),
            "shorter prompts",
        ),
    )


def _way(load: Symptoms, _lower: Symptoms | None) -> Finding | None:
    share = load.share_of(WAY)
    if share < 0.5 or load.mean_of(WAY) < 0.2:
        return None
    told = load.share_of(SERVER_QUEUE, PREFILL) > 0
    what = "beyond what the server calls queue and prefill" if told else "and the server does not say for what"
    return Finding(
        "way to the first token",
        Weight.SLOW,
        share,
        f"{_time(load.mean_of(WAY))} pass until the first token, {share:.0%} of the time, {what}",
        (
            _lower_first(load),
            "measure from the server's own machine: what remains is the server, what goes was the way"
            if told
            else "let the server publish its /metrics (SGLang: --enable-metrics): they tell queue from prefill",
        ),
    )


def _decode(load: Symptoms, lower: Symptoms | None) -> Finding | None:
    share = load.share_of(DECODE)
    if share < 0.6:
        return None
    slower = _growth(load.tpot_p50_s, lower.tpot_p50_s if lower else None)
    gained = _growth(load.throughput, lower.throughput if lower else None)
    tokens = "" if load.output_p50 is None else f" for {load.output_p50:,.0f} tokens"
    evidence = f"writing takes {_time(load.mean_of(DECODE))}{tokens}, {share:.0%} of the time"
    advice = ["a smaller max_tokens, or an instruction to be brief", "a smaller or quantised model"]
    if lower is not None and slower is not None and gained is not None and slower > 1.2 and gained < 1.1:
        evidence += (
            f"; each token takes {slower:.1f} times as long as at {lower.level:g}, for {gained - 1:+.0%} throughput"
        )
        advice.insert(0, f"go back to {lower.level:g} at once: more brings only waiting")
        return Finding("decode", Weight.SLOW, share, evidence, tuple(advice))
    return Finding("decode", Weight.NOTE, share, evidence, tuple(advice))


def _lengths(load: Symptoms, _lower: Symptoms | None) -> Finding | None:
    if not load.prompt_p50 or load.prompt_p99 is None or load.prompt_p99 < 5 * load.prompt_p50:
        return None
    return Finding(
        "input",
        Weight.NOTE,
        0.2,
        f"a few prompts are long: {load.prompt_p99:,.0f} tokens at p99, {load.prompt_p50:,.0f} in the median",
        ('"order": "longest" in the spec: none of them is left for the end', "a job of their own for the long ones"),
    )


def _cut(load: Symptoms, _lower: Symptoms | None) -> Finding | None:
    if load.job is None or load.cut_share is None or load.cut_share < 0.05:
        return None
    return Finding(
        "parameters",
        Weight.NOTE,
        load.cut_share,
        f"{load.cut_share:.0%} of the answers are as long as max_tokens ({load.output_limit:,}) allows: likely cut",
        ("raise max_tokens, or ask for shorter answers",),
    )


def _gpu(load: Symptoms, _lower: Symptoms | None) -> Finding | None:
    if not load.gpu_throttled_share or load.gpu_throttled_share < 0.05:
        return None
    return Finding(
        "GPU",
        Weight.SLOW,
        load.gpu_throttled_share,
        f"the GPU's clock was held down by heat or power at {load.gpu_throttled_share:.0%} of the looks",
        ("a pause between runs, better cooling, or a higher power limit", _lower_first(load)),
    )


def _growth(now: float | None, before: float | None) -> float | None:
    return now / before if now is not None and before else None


def _lower_first(load: Symptoms) -> str:
    if load.is_open:
        return f"lower the rate of arrivals first: below {load.level:g} a second"
    half = max(1, int(load.level // 2))
    if load.level <= 1:
        return "nothing to lower: one request at once is the least"
    return (
        f"batchrun set {load.job} -c {half}"
        if load.job
        else f"lower the concurrency first: {half} instead of {load.level:g}"
    )


def _time(seconds: float) -> str:
    return f"{seconds * 1000:.0f} ms" if seconds < 1 else f"{seconds:.1f} s"


THROTTLED = ("rate_limited", "overloaded")
UNREACHED = ("connect", "dns", "tls", "connect_timeout")
RULES: tuple[Rule, ...] = (
    _client,
    _cache,
    _failures,
    _throttling,
    _retries,
    _connection,
    _our_queue,
    _server_queue,
    _kv_cache,
    _prefill,
    _way,
    _decode,
    _gpu,
    _lengths,
    _cut,
)
