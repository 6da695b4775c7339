"""What `batchrun bench` prints: what was measured, the loads, their latencies, and what each figure means."""

from collections.abc import Iterator, Sequence

from batchrun.core.measuring.cache_hits import cache_hit_share
from batchrun.core.measuring.document import LATENCIES, Load, Measurement, Run
from batchrun.core.measuring.figures import BEYOND, PERCENTILES, Spread, figures_of
from batchrun.core.measuring.ladder import RELIABLE, Range
from batchrun.core.measuring.timings import DEFINITIONS
from batchrun.core.wording import several

NONE = "-"
NAMES = {"ttft": "TTFT", "tpot": "TPOT", "itl": "ITL", "e2el": "E2EL"}


def load_words(kind: str, level: float, max_tokens: int | None) -> str:
    """Name a load in words."""
    limit = "" if max_tokens is None else f", {max_tokens} tokens at most"
    return f"{level:g} at once{limit}" if kind in ("closed", "job") else f"{level:g} a second{limit}"


def run_words(run: Run) -> str:
    """Say what one run came to, in a line."""
    figures = run.figures
    tokens = "" if figures.output_throughput is None else f"{figures.output_throughput:,.1f} output tokens/s, "
    ttft = "" if figures.ttft_ms.p50 is None else f"TTFT {figures.ttft_ms.p50:,.0f} ms, "
    return f"{tokens}{ttft}{figures.completed} of {figures.requests} answered in {figures.duration_s:.1f} s"


def meets(load: Load, attain: float) -> bool:
    """Say whether every round of a load had a share of good requests that is large enough."""
    found = load.figures.get("attainment")
    return found is not None and found.low >= attain


def table_lines(measurement: Measurement, *, attain: float) -> Iterator[str]:
    """Yield the lines of the whole table."""
    yield from _head(measurement)
    yield ""
    yield from _loads(measurement, attain=attain)
    yield ""
    yield from _latencies(measurement)
    yield ""
    yield from _remarks(measurement, attain=attain)
    yield ""
    yield from _definitions(measurement)


def _head(measurement: Measurement) -> Iterator[str]:
    setup = measurement.setup
    for group in setup.groups:
        server = f" ({group.server})" if group.server else ""
        name = f"{group.name}: " if len(setup.groups) > 1 else ""
        params = ", ".join(f"{key} {value}" for key, value in group.params.items())
        yield f"{name}{group.model} at {group.base_url}{server}" + (f", {params}" if params else "")
    work = setup.workload
    limits = "/".join(map(str, work.max_tokens))
    shared = f"the first {work.shared_prefix_tokens:,} tokens shared on purpose" if work.shared_prefix_tokens else ""
    yield (
        f"{work.name}: {several(work.requests, 'request')} of about {work.prompt_tokens:,} tokens in, {limits} out at "
        f"most; seed {work.seed}; {shared or 'no two prompts begin alike'}; {several(setup.rounds, 'round')}"
    )


def _rows(rows: Sequence[Sequence[str]], *, left: int) -> Iterator[str]:
    """Lay rows out in columns; the first `left` ones to the left, figures to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = [
            f"{cell:<{width}}" if number < left else f"{cell:>{width}}"
            for number, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        yield "  ".join(cells).rstrip()


def _loads(measurement: Measurement, *, attain: float) -> Iterator[str]:
    has_targets = bool(measurement.setup.targets)
    unit = "at once" if measurement.setup.arrivals.kind in ("closed", "job") else "a second"
    head = ["", unit, "req/s", "output tok/s", "low - high", "total tok/s", "answered"]
    rows = [[*head, "good", "goodput req/s"] if has_targets else head]
    for load in measurement.loads:
        rows.append(
            [
                _name(measurement, load),
                f"{load.level:g}",
                _middle(load, "request_throughput", 2),
                _middle(load, "output_throughput", 1),
                _range(load.figures.get("output_throughput")),
                _middle(load, "total_token_throughput", 1),
                f"{load.requests - load.failed}/{load.requests}",
            ]
        )
        if has_targets:
            share = load.figures.get("attainment")
            mark = "" if meets(load, attain) else " missed"
            good = NONE if share is None else f"{share.low:.1%}{mark}"
            rows[-1] += [good, _middle(load, "goodput", 2)]
    yield from _rows(rows, left=1)


def _latencies(measurement: Measurement) -> Iterator[str]:
    """Percentiles over all rounds of a load together: there are more values for the far ones."""
    unit = "at once" if measurement.setup.arrivals.kind in ("closed", "job") else "a second"
    rows = [["", unit, "ms", "mean", *(f"p{p}" for p in PERCENTILES), "n"]]
    for load in measurement.loads:
        runs = [run for run in measurement.runs if _is_of(run, load)]
        requests = [one for run in runs for one in run.requests or ()]
        figures = figures_of(requests)
        for name in LATENCIES:
            spread: Spread = getattr(figures, f"{name}_ms")
            cells = [_percentile(spread, p) for p in PERCENTILES]
            mean = NONE if spread.mean is None else f"{spread.mean:,.1f}"
            level = f"{load.level:g}" if name == LATENCIES[0] else ""
            group = _name(measurement, load) if name == LATENCIES[0] else ""
            rows.append([group, level, NAMES[name], mean, *cells, f"{spread.n:,}"])
    yield from _rows(rows, left=1)


def _percentile(spread: Spread, p: int) -> str:
    value = getattr(spread, f"p{p}")
    if value is None:
        return "failed" if spread.failed else NONE
    return f"{value:,.1f}{'' if spread.bears(p) else '*'}"


def _remarks(measurement: Measurement, *, attain: float) -> Iterator[str]:
    for group, most in dict.fromkeys((load.group, load.max_tokens) for load in measurement.loads):
        name = f"{group}: " if len(measurement.setup.groups) > 1 else ""
        if (knee := measurement.knee(group, most)) is not None:
            limit = "" if most is None else f" (max_tokens {most})"
            words = f"{knee.level:g} brings {knee.share:.0%} of the best output rate{limit}"
            further = "; the ladder ends there: more may bring more" if knee.is_last else "; more only waits longer"
            yield f"{name}knee  {words}{further}"
    if measurement.setup.targets:
        wanted = " ".join(f"{name}:{value:g}" for name, value in measurement.setup.targets.items())
        good = [load for load in measurement.loads if meets(load, attain)]
        most_words = max((load.level for load in good), default=None)
        said = "no load meets it" if most_words is None else f"met up to {most_words:g}"
        yield f"goodput {wanted}, by {attain:.0%} of the requests of every round: {said}"
    hits = [share for run in measurement.runs if (share := cache_hit_share(run)) is not None]
    if hits:
        yield f"prefix cache: {min(hits):.0%} to {max(hits):.0%} of the prompt tokens were known to the server"
    yield from _warnings(measurement)
    for warning in measurement.warnings:
        yield f"warn  {warning}"


def _warnings(measurement: Measurement) -> Iterator[str]:
    """Say what makes runs doubtful: each kind once for a load, with the rounds in which it was so."""
    found: dict[tuple[str, float, int | None, str], list[tuple[int, str]]] = {}
    for run in measurement.runs:
        for warning in run.warnings:
            kind = "".join(letter for letter in warning if not letter.isdigit())
            found.setdefault((run.group, run.level, run.max_tokens, kind), []).append((run.round_no, warning))
    for (group, level, _, _), rounds in found.items():
        name = f"{group}, " if len(measurement.setup.groups) > 1 else ""
        numbers = ", ".join(str(number) for number, _ in rounds)
        load = load_words(measurement.setup.arrivals.kind, level, None)
        yield f"warn  {name}{load}, round {numbers}: {rounds[0][1]}"


def _definitions(measurement: Measurement) -> Iterator[str]:
    yield "definitions (vLLM's and MLPerf's)"
    for name, words in DEFINITIONS.items():
        yield f"  {name:<5}  {words}"
    yield f"  n      values; * where fewer than {BEYOND} lie beyond the percentile"
    yield "  failed  a failure counts as longer than anything: the percentile lies among them, and there is no mean"
    yield f"  knee   the least load with 90 % of the best rate; loads below {RELIABLE:.0%} answered are left out"
    if measurement.setup.targets:
        yield "  good   share of all requests that met every target, in the worst round; a failure is a miss"


def _name(measurement: Measurement, load: Load) -> str:
    limit = "" if load.max_tokens is None else f"max {load.max_tokens}"
    return f"{load.group if len(measurement.setup.groups) > 1 else ''} {limit}".strip()


def _is_of(run: Run, load: Load) -> bool:
    return (run.group, run.level, run.max_tokens) == (load.group, load.level, load.max_tokens)


def _middle(load: Load, name: str, digits: int) -> str:
    found = load.figures.get(name)
    return NONE if found is None else f"{found.median:,.{digits}f}"


def _range(found: Range | None) -> str:
    return NONE if found is None else f"{found.low:,.1f} - {found.high:,.1f}"
