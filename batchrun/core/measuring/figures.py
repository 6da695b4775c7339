"""The figures of one run: latencies with percentiles, throughput, success, goodput; of the whole run or a window of it.

Percentiles are over all requests that were sent, and a failure counts as longer than anything: a server that refuses
quickly looks no better for it. A percentile that falls among the failures is None, and so is the mean of a latency that
some requests never reached. What vLLM prints, over the answered requests alone, is `answered_only`.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from math import floor, fsum, inf

from batchrun.core.measuring.targets import Targets
from batchrun.core.measuring.timings import Measured

PERCENTILES = (50, 90, 95, 99)
BEYOND = 5  # values that must lie beyond a percentile for it to be more than chance: the rule n(1 - p) >= 5


def bears(n: int, p: float) -> bool:
    """Say whether `n` values can bear their p-th percentile (0..100); where not, it is printed with a `*`."""
    return n * min(p, 100 - p) / 100 >= BEYOND - 1e-9


@dataclass(frozen=True, slots=True)
class Spread:
    """One latency over many requests (or gaps), in milliseconds."""

    n: int  # values, the failed ones among them
    failed: int = 0  # of them: of requests that never got there
    mean: float | None = None
    p50: float | None = None
    p90: float | None = None
    p95: float | None = None
    p99: float | None = None

    @classmethod
    def of(cls, values_s: Iterable[float], *, failed: int = 0) -> "Spread":
        """Make it of seconds, and of `failed` requests that count as longer than all of them."""
        ordered = sorted(values_s)
        n = len(ordered) + failed
        points = {f"p{p}": _percentile_ms(ordered, n, p) for p in PERCENTILES}
        mean = fsum(ordered) / n * 1000 if ordered and not failed else None
        return cls(n, failed, mean, **points)

    def bears(self, p: float) -> bool:
        """Say whether there are values enough for this percentile."""
        return bears(self.n, p)


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """What one run came to. Rates are per second of `duration_s`; None is "not known"."""

    duration_s: float  # from the first send to the last end, or the window's length
    requests: int
    completed: int  # answered
    failed: int
    success_rate: float | None  # 0..1
    prompt_tokens: int | None  # of the answered, by `usage`
    output_tokens: int | None
    without_usage: int  # answered, and the endpoint did not say for how many tokens: sums and rates are then "at least"
    request_throughput: float | None
    output_throughput: float | None
    total_token_throughput: float | None
    goodput: float | None  # requests a second that met every target
    attainment: float | None  # share (0..1) of all requests that met every target
    ttft_ms: Spread
    tpot_ms: Spread
    itl_ms: Spread
    e2el_ms: Spread
    queue_ms: Spread
    causes: dict[str, int] = field(default_factory=dict)  # of the failures


def figures_of(requests: Sequence[Measured], *, targets: Targets | None = None) -> Figures:
    """Return the figures of a whole run."""
    sent = [one.sent_s for one in requests if one.sent_s is not None]
    start_s = min(sent, default=0.0)
    duration_s = max(0.0, max((one.ended_s for one in requests), default=0.0) - start_s)
    answered = [one for one in requests if one.is_answered]
    return _figures(
        requests,
        duration_s,
        completed=len(answered),
        prompt_tokens=_total(one.prompt_tokens for one in answered),
        output_tokens=_total(one.output_tokens for one in answered),
        targets=targets,
    )


def answered_only(requests: Sequence[Measured], *, targets: Targets | None = None) -> Figures:
    """Return the figures as vLLM prints them: latencies of the answered alone, the rest over the whole run."""
    whole = figures_of(requests, targets=targets)
    answered = figures_of([one for one in requests if one.is_answered])
    return Figures(
        **{name: getattr(answered if name in _LATENCIES else whole, name) for name in Figures.__dataclass_fields__}
    )


_LATENCIES = ("ttft_ms", "tpot_ms", "itl_ms", "e2el_ms", "queue_ms")


@dataclass(frozen=True, slots=True)
class Window:
    """A part of a run, in seconds since it began."""

    start_s: float
    end_s: float

    @property
    def length_s(self) -> float:
        return self.end_s - self.start_s

    def share(self, start_s: float, end_s: float) -> float:
        """Return which part of a span lies in the window."""
        if end_s <= start_s:
            return 1.0 if self.holds(start_s) else 0.0
        return max(0.0, min(end_s, self.end_s) - max(start_s, self.start_s)) / (end_s - start_s)

    def holds(self, at_s: float) -> bool:
        return self.start_s <= at_s < self.end_s


def steady_window(requests: Sequence[Measured], *, concurrency: int | None) -> Window | None:
    """Return the part of a run with its full load on; None where there was none.

    It begins when `concurrency` requests are out (None, arrivals in the open: when the first one is done), and ends
    with the last send: from there on slots run empty.
    """
    sent = sorted(one.sent_s for one in requests if one.sent_s is not None)
    ended = min((one.ended_s for one in requests if one.sent_s is not None), default=0.0)
    if not sent or (concurrency is not None and len(sent) <= concurrency):
        return None
    start_s = ended if concurrency is None else sent[concurrency - 1]
    return Window(start_s, sent[-1]) if sent[-1] > start_s else None


def steady_figures(
    requests: Sequence[Measured], *, concurrency: int | None, targets: Targets | None = None
) -> Figures | None:
    """Return the figures of the steady window; None where there is none.

    Latencies are those of the requests sent in it. Rates count what happened in it: requests that ended, prompts whose
    first token came, and of each answer the part of its tokens that its stream brought in that time.
    """
    window = steady_window(requests, concurrency=concurrency)
    if window is None:
        return None
    inside = [one for one in requests if one.sent_s is not None and window.holds(one.sent_s)]
    answered = [one for one in requests if one.is_answered]
    prompts = [one.prompt_tokens for one in answered if window.holds(_prefilled_s(one))]
    outputs = [_part(one, window) for one in answered]
    return _figures(
        inside,
        window.length_s,
        completed=sum(window.holds(one.ended_s) for one in answered),
        prompt_tokens=_total(prompts) if prompts else 0,
        output_tokens=None if all(part is None for part in outputs) else round(fsum(filter(None, outputs))),
        targets=targets,
    )


def _figures(
    requests: Sequence[Measured],
    duration_s: float,
    *,
    completed: int,
    prompt_tokens: int | None,
    output_tokens: int | None,
    targets: Targets | None,
) -> Figures:
    answered = [one for one in requests if one.is_answered]
    failures = [one for one in requests if not one.is_answered]
    total = None if prompt_tokens is None or output_tokens is None else prompt_tokens + output_tokens
    causes: dict[str, int] = {}
    for one in failures:
        word = one.cause or one.outcome.value
        causes[word] = causes.get(word, 0) + 1

    def rate(amount: float | None) -> float | None:
        return None if amount is None or duration_s <= 0 else amount / duration_s

    def spread(value: Callable[[Measured], float | None]) -> Spread:
        known = (value(one) for one in answered)
        return Spread.of((value_s for value_s in known if value_s is not None), failed=len(failures))

    has_targets = targets is not None and bool(targets.by_name)
    return Figures(
        duration_s=duration_s,
        requests=len(requests),
        completed=completed,
        failed=len(failures),
        success_rate=len(answered) / len(requests) if requests else None,
        prompt_tokens=prompt_tokens,
        output_tokens=output_tokens,
        without_usage=sum(one.output_tokens is None or one.prompt_tokens is None for one in answered),
        request_throughput=rate(completed),
        output_throughput=rate(output_tokens),
        total_token_throughput=rate(total),
        goodput=rate(sum(map(targets.is_met, requests))) if targets is not None and has_targets else None,
        attainment=None if targets is None else targets.attainment(requests),
        ttft_ms=spread(lambda one: one.ttft_s),
        tpot_ms=spread(lambda one: one.tpot_s),
        itl_ms=Spread.of((gap for one in answered for gap in one.gaps_s), failed=_endless_gaps(answered, failures)),
        e2el_ms=spread(lambda one: one.e2el_s),
        queue_ms=Spread.of(wait for one in requests if (wait := one.queue_s) is not None),
        causes=causes,
    )


def _endless_gaps(answered: Sequence[Measured], failures: Sequence[Measured]) -> int:
    """Return how many gaps the failures stand for: one before each token that they were allowed, but for the first.

    Where that is not known: as many as the longest answer has.
    """
    longest = max((len(one.gaps_s) for one in answered), default=0)
    return sum(max(1, longest if one.max_tokens is None else one.max_tokens - 1) for one in failures)


def _percentile_ms(ordered: Sequence[float], n: int, p: float) -> float | None:
    """Return a percentile of `n` values by linear interpolation, as numpy and vLLM; the missing ones are infinite."""
    if not n:
        return None
    rank = (n - 1) * p / 100
    low = floor(rank)
    first = ordered[low] if low < len(ordered) else inf
    part = rank - low
    second = first if part == 0 else (ordered[low + 1] if low + 1 < len(ordered) else inf)
    value = first if part == 0 else first + (second - first) * part if second < inf else inf
    return None if value == inf else value * 1000


def _total(counts: Iterable[int | None]) -> int | None:
    known = [count for count in counts if count is not None]
    return sum(known) if known else None


def _prefilled_s(one: Measured) -> float:
    return one.ended_s if one.first_token_s is None else one.first_token_s


def _part(one: Measured, window: Window) -> float | None:
    if one.output_tokens is None:
        return None
    end_s = one.ended_s if one.last_token_s is None else one.last_token_s
    return one.output_tokens * window.share(_prefilled_s(one), end_s)
