"""The sections that every measurement has: setup, loads, charts, where the time goes, what was seen beside it."""

from collections.abc import Iterator, Sequence
from statistics import fmean

from batchrun.bench.charts.bars import Bar, stacked
from batchrun.bench.charts.lines import Line, Mark, over_levels, over_time, shares
from batchrun.bench.report.content import NOTHING, Picture, Section, Table, table
from batchrun.bench.report.numbers import (
    STAR,
    amount,
    count,
    over_rounds,
    percentile,
    share,
    three_digits,
)
from batchrun.core.measuring.cache_hits import cache_hit_share
from batchrun.core.measuring.document import Load, Measurement, Run, all_requests
from batchrun.core.measuring.figures import Spread
from batchrun.core.measuring.ladder import Range
from batchrun.core.measuring.layers import MEANINGS, growth, known_values, layers_of
from batchrun.core.measuring.observed import kind_of
from batchrun.core.measuring.timings import DEFINITIONS

SHOWN_LINES = 6
TIME_BINS = 60
LATENCIES = ("ttft", "tpot", "itl", "e2el")
LATENCY_TITLES = {
    "ttft": "Time to first token",
    "tpot": "Time per output token",
    "itl": "Inter-token latency",
    "e2el": "End-to-end latency",
}


def level_word(measurement: Measurement) -> str:
    """Say what the levels of the ladder are."""
    return "concurrency" if measurement.setup.arrivals.kind in ("closed", "job") else "requests a second"


def has_groups(measurement: Measurement) -> bool:
    return len(measurement.setup.groups) > 1


def load_name(measurement: Measurement, load: Load | Run) -> str:
    """Name a load among the others of its measurement."""
    words = [load.group] if has_groups(measurement) else []
    words.append(f"{level_word(measurement)} {load.level:g}")
    if len({run.max_tokens for run in measurement.runs}) > 1:
        words.append(f"max_tokens {load.max_tokens}")
    return ", ".join(words)


# -- setup ------------------------------------------------------------------------------------------------------------


def setup_section(measurement: Measurement) -> Section:
    """Say what was measured, and how."""
    setup = measurement.setup
    work, arrivals = setup.workload, setup.arrivals
    facts: list[tuple[str, str]] = []
    for group in setup.groups:
        name = f"{group.name}: " if has_groups(measurement) else ""
        facts += [(f"{name}endpoint", f"{group.base_url} {group.endpoint}".strip()), (f"{name}model", group.model)]
        facts += [(f"{name}server", group.server)] if group.server else []
        params = ", ".join(f"{key} {value}" for key, value in group.params.items())
        facts += [(f"{name}parameters", params)] if params else []
    if arrivals.kind == "job":
        facts.append(("input", work.name))
    else:
        facts.append(("requests", f"{work.name}, {work.requests:,} in each run"))
    facts += [("max_tokens", ", ".join(map(str, work.max_tokens)))] if work.max_tokens else []
    facts += [("prompt length", f"{work.prompt_tokens:,} tokens wanted")] if work.prompt_tokens else []
    facts += [("seed", str(work.seed))] if work.seed is not None else []
    if arrivals.kind != "job":
        facts.append(("prompts", "no two begin alike" if work.is_varied else "the same in every run"))
        facts.append(("arrivals", _arrivals(measurement)))
        pause = f", {setup.pause_s:g} s apart" if setup.pause_s else ""
        warm_up = f", {setup.warm_up} requests before the first" if setup.warm_up else ""
        facts.append(("rounds", f"{setup.rounds}{pause}{warm_up}"))
    if work.shared_prefix_tokens:
        facts.append(("shared prefix", f"{work.shared_prefix_tokens:,} tokens"))
    if setup.targets:
        facts.append(("targets", ", ".join(f"{name.upper()} {value:g} ms" for name, value in setup.targets.items())))
    facts += [(name, str(value)) for name, value in {**setup.machine, **setup.versions}.items()]
    facts.append(("made", measurement.made_at))
    return Section("Setup", "setup", facts=tuple(facts))


def _arrivals(measurement: Measurement) -> str:
    arrivals = measurement.setup.arrivals
    levels = ", ".join(f"{level:g}" for level in arrivals.levels)
    if arrivals.kind == "closed":
        return f"closed loop, {levels} at once"
    return f"{arrivals.kind}, {levels} a second"


# -- loads ------------------------------------------------------------------------------------------------------------


def loads_section(measurement: Measurement) -> Section:
    """Show every load: throughput and latencies, with the range over its rounds."""
    names = [load_name(measurement, load) for load in measurement.loads]
    tables = (_throughput_table(measurement, names), *_latency_tables(measurement, names), field_table(measurement))
    return Section("Loads", "loads", tables=tables, pictures=tuple(_ladder_pictures(measurement)))


def _throughput_table(measurement: Measurement, names: Sequence[str]) -> Table:
    columns = ("load", "rounds", "requests", "failed", "answered", "requests/s", "output tokens/s", "all tokens/s")
    rows = []
    for name, load in zip(names, measurement.loads, strict=True):
        found = load.figures
        answered = found.get("success_rate")
        rows.append(
            (
                name,
                count(load.rounds),
                count(load.requests),
                count(load.failed),
                share(None if answered is None else answered.low),
                over_rounds(found.get("request_throughput")),
                over_rounds(found.get("output_throughput")),
                over_rounds(found.get("total_token_throughput")),
                over_rounds(found.get("goodput")),
                over_rounds(found.get("attainment"), share),
            )
        )
    many = any(load.rounds > 1 for load in measurement.loads)
    note = "Median of the rounds, and in brackets how far they went." if many else None
    return table("Throughput", (*columns, "goodput/s", "targets met"), rows, note=note)


def _latency_tables(measurement: Measurement, names: Sequence[str]) -> Iterator[Table]:
    """Show each latency: with one round as that run's percentiles, with several as median and range of the rounds."""
    for latency in LATENCIES:
        rows = []
        for name, load in zip(names, measurement.loads, strict=True):
            runs = _runs_of(measurement, load)
            spreads = [getattr(run.figures, f"{latency}_ms") for run in runs]
            rows.append((name, *(_percentile(load, spreads, latency, point) for point in (50, 90, 95, 99))))
        if any(cell != NOTHING for row in rows for cell in row[1:]):
            note = STAR if any("*" in cell for row in rows for cell in row) else None
            title = f"{LATENCY_TITLES[latency]} ({latency.upper()}), in milliseconds"
            yield table(title, ("load", "p50", "p90", "p95", "p99"), rows, note=note)


def _percentile(load: Load, spreads: Sequence[Spread], latency: str, point: int) -> str:
    if len(spreads) == 1:
        return percentile(spreads[0], point)
    found = load.figures.get(f"p{point}_{latency}")
    if found is None:
        return "failed" if any(spread.failed for spread in spreads) else NOTHING
    return over_rounds(found) + ("" if all(spread.bears(point) for spread in spreads) else "*")


def field_table(measurement: Measurement) -> Table:
    """Show the table in which experiments are written down in this field."""
    columns = ("group", "concurrency", "requests", "mean latency (s)", "output tokens", "tokens/s", "memory")
    rows = []
    for load in measurement.loads:
        runs = _runs_of(measurement, load)
        mean = Range.of(run.figures.e2el_ms.mean for run in runs)
        outputs = [run.figures.output_tokens for run in runs]
        tokens = None if None in outputs else sum(value for value in outputs if value is not None) / len(outputs)
        rows.append(
            (
                load.group,
                f"{load.level:g}",
                count(load.requests),
                over_rounds(mean, lambda value: NOTHING if value is None else f"{value / 1000:.3g}"),
                count(tokens),
                over_rounds(load.figures.get("output_throughput")),
                _memory(runs),
            )
        )
    return table("Experiments", columns, rows, note="Requests over all rounds; output tokens of one round.")


def _memory(runs: Sequence[Run]) -> str:
    """Return the most memory that was seen: the GPU's, or else the share of the server's KV cache."""
    names = {name for run in runs for name in run.observations if name.endswith(".memory_bytes")}
    most = [max((v for run in runs for v in known_values(run.observations, name)), default=0.0) for name in names]
    if any(most):
        return amount(sum(most), "bytes")
    cache = [value for run in runs for value in known_values(run.observations, "server.kv_cache_share")]
    return f"KV cache {share(max(cache))}" if cache else NOTHING


def _runs_of(measurement: Measurement, load: Load) -> list[Run]:
    key = (load.group, load.level, load.max_tokens)
    return [run for run in measurement.runs if (run.group, run.level, run.max_tokens) == key]


def _ladder_pictures(measurement: Measurement) -> Iterator[Picture]:
    """Draw throughput and latency over the ladder, where there is one."""
    if len({load.level for load in measurement.loads}) < 2:
        return
    ladders = list(dict.fromkeys((load.group, load.max_tokens) for load in measurement.loads))[:SHOWN_LINES]
    names = {one: _ladder_name(measurement, *one) for one in ladders}
    knees = [knee for one in ladders if (knee := measurement.knee(*one)) is not None]
    marks = [Mark(knees[0].level, f"knee {knees[0].level:g}")] if len(knees) == 1 else []
    x_label = level_word(measurement)
    unit = "output tokens/s"
    figure = "output_throughput"
    if not any(figure in load.figures for load in measurement.loads):
        figure, unit = "request_throughput", "requests/s"
    pictures = [("Throughput", [figure], unit, False)]
    pictures += [("Time to first token", ["p50_ttft", "p95_ttft"], "ms", True)]
    pictures += [("Time per output token", ["p50_tpot", "p95_tpot"], "ms", True)]
    pictures += [("End-to-end latency", ["p50_e2el", "p95_e2el"], "ms", True)]
    for title, figures, y_label, is_log in pictures:
        lines = [
            Line(_line_name(names[one], name if len(figures) > 1 else ""), *_points(measurement, one, name))
            for one in ladders
            for name in figures
        ]
        drawn = [line for line in lines if line.points][:SHOWN_LINES]
        if drawn:
            title = f"{title} over {x_label}"
            yield Picture(title, over_levels(title, drawn, x_label=x_label, y_label=y_label, marks=marks, log_y=is_log))


def _ladder_name(measurement: Measurement, group: str, max_tokens: int | None) -> str:
    words = [group] if has_groups(measurement) else []
    words += [f"max_tokens {max_tokens}"] if len({run.max_tokens for run in measurement.runs}) > 1 else []
    return ", ".join(words)


def _line_name(ladder: str, figure: str) -> str:
    return " ".join(filter(None, (ladder, figure.partition("_")[0])))


def _points(
    measurement: Measurement, ladder: tuple[str, int | None], name: str
) -> tuple[tuple[tuple[float, float], ...], tuple[tuple[float, float, float], ...]]:
    found = [
        (load.level, load.figures[name])
        for load in measurement.loads
        if (load.group, load.max_tokens) == ladder and name in load.figures
    ]
    found.sort(key=lambda one: one[0])
    points = tuple((level, one.median) for level, one in found)
    return points, tuple((level, one.low, one.high) for level, one in found if one.rounds > 1)


# -- time -------------------------------------------------------------------------------------------------------------


def time_section(measurement: Measurement) -> Section:
    """Say where the time goes, layer by layer, how latencies spread, and how the run went over time."""
    bars: list[Bar] = []
    seen: dict[str, str] = {}
    for load in measurement.loads[: 2 * SHOWN_LINES]:
        runs = _runs_of(measurement, load)
        layers = layers_of(all_requests(runs), runs[-1].observations)
        seen |= {layer.name: MEANINGS[layer.name] for layer in layers}
        if layers:
            bars.append(Bar(load_name(measurement, load), tuple((one.name, one.mean_s * 1000) for one in layers)))
    pictures = []
    if bars:
        title = "Where the time of a request goes"
        pictures.append(
            Picture(
                title, stacked(title, bars, names=list(MEANINGS), x_label="mean milliseconds of an answered request")
            )
        )
    pictures += [*_distributions(measurement), *_courses(measurement)]
    rows = [
        (bar.name, name, three_digits(value), share(value / bar.total if bar.total else None))
        for bar in bars
        for name, value in bar.parts
    ]
    tables = (table("Where the time goes", ("load", "layer", "mean ms", "share"), rows, words=2),) if rows else ()
    return Section(
        "Where the time goes", "time", tables=tables, pictures=tuple(pictures), definitions=tuple(seen.items())
    )


def _distributions(measurement: Measurement) -> Iterator[Picture]:
    spread_over = measurement.loads[:SHOWN_LINES]
    for latency, title in (("e2el", "End-to-end latency"), ("ttft", "Time to first token")):
        values = []
        for load in spread_over:
            requests = all_requests(_runs_of(measurement, load))
            found = [value * 1000 for one in requests if (value := getattr(one, f"{latency}_s")) is not None]
            if found:
                name = load_name(measurement, load) if len(measurement.loads) > 1 else ""
                values.append((name, found))
        if values:
            title = f"{title}: share of the answers within a time"
            yield Picture(title, shares(title, values, x_label=f"{latency.upper()} in ms"))


def _courses(measurement: Measurement) -> Iterator[Picture]:
    """Draw how one run went: what came per second, what was out at once, and how long it took."""
    run = _longest(measurement)
    if run is None or not run.requests:
        return
    where = f", {load_name(measurement, run)}" if len(measurement.loads) > 1 else ""
    begin = min((one.sent_s for one in run.requests if one.sent_s is not None), default=0.0)
    end = max(one.ended_s for one in run.requests)
    count_of = max(6, min(TIME_BINS, len(run.requests) // 8))
    width = max((end - begin) / count_of, 1e-3)
    done = [0] * count_of
    for one in run.requests:
        if one.is_answered:
            done[min(count_of - 1, max(0, int((one.ended_s - begin) / width)))] += 1
    course = tuple(((at + 0.5) * width, ended / width) for at, ended in enumerate(done))
    title = f"Answers over time{where}"
    yield Picture(title, over_time(title, [Line("", course)], y_label="answers/s"))
    spans = [(one.sent_s - begin, one.ended_s - begin) for one in run.requests if one.sent_s is not None]
    title = f"Requests under way{where}"
    yield Picture(title, over_time(title, [Line("", _under_way(spans))], y_label="requests"))


def _longest(measurement: Measurement) -> Run | None:
    """Return the run of the highest load: the one in which most happens."""
    kept = [run for run in measurement.runs if run.requests]
    return max(kept, key=lambda run: (run.level, -run.round_no), default=None)


def _under_way(spans: Sequence[tuple[float, float]]) -> tuple[tuple[float, float], ...]:
    """Return how many requests are out at each moment at which that changes."""
    changes: dict[float, int] = {}
    for start, end in spans:
        changes[start] = changes.get(start, 0) + 1
        changes[end] = changes.get(end, 0) - 1
    out, points = 0, []
    for at in sorted(changes):
        out += changes[at]
        points.append((at, float(out)))
    return tuple(points)


# -- beside the run ---------------------------------------------------------------------------------------------------


def server_section(measurement: Measurement) -> Section:
    """Show what the observers saw: the server's queue and cache, the GPUs, the client."""
    rows: list[tuple[str, ...]] = []
    seen: dict[str, str] = {}
    for load in measurement.loads:
        runs = _runs_of(measurement, load)
        for name in dict.fromkeys(name for run in runs for name in run.observations):
            kind = kind_of(name)
            if kind is None or (name.endswith(("_s", "_count")) and kind.is_counter):
                continue
            values = [value for run in runs for value in known_values(run.observations, name)]
            grew = [found for run in runs if (found := growth(run.observations, name)) is not None]
            if not values or (kind.is_counter and not grew):
                continue
            title = kind.title
            seen[title] = kind.means
            if kind.is_counter:
                cells = (NOTHING, NOTHING, amount(sum(grew), kind.unit))
            else:
                mean = sum(values) / len(values)
                cells = (amount(mean, kind.unit), amount(max(values), kind.unit), NOTHING)
            rows.append((load_name(measurement, load), title, *cells))
        hits = [found for run in runs if run.observations and (found := cache_hit_share(run)) is not None]
        if hits:
            title = "Prompt tokens from a cache"
            seen[title] = (
                "share of the prompts' tokens that the server knew already, by its counters or the answers' usage"
            )
            rows.append((load_name(measurement, load), title, share(fmean(hits)), share(max(hits)), NOTHING))
    tables = (table("Beside the runs", ("load", "what", "mean", "most", "in all"), rows, words=2),) if rows else ()
    pictures = tuple(_observed_pictures(measurement))
    return Section(
        "Server, GPU and client", "server", tables=tables, pictures=pictures, definitions=tuple(seen.items())
    )


OBSERVED = (
    ("Requests on the server", ("server.running", "server.waiting"), "requests", None),
    ("KV cache and prefix cache", ("server.kv_cache_share", "server.prefix_hit_share"), "%", 100.0),
    ("The client", ("client.cpu_share",), "% of a core", None),
)


def _observed_pictures(measurement: Measurement) -> Iterator[Picture]:
    run = max((run for run in measurement.runs if run.observations), key=lambda run: run.level, default=None)
    if run is None:
        return
    where = f", {load_name(measurement, run)}" if len(measurement.loads) > 1 else ""
    gpus = sorted(name for name in run.observations if name.startswith("gpu"))
    groups = list(OBSERVED)
    for ending, title, unit, most in (
        ("utilisation_share", "GPU utilisation", "%", 100.0),
        ("memory_bytes", "GPU memory", "GiB", None),
        ("power_w", "GPU power", "W", None),
        ("temperature_c", "GPU temperature", "°C", None),
    ):
        groups.append((title, tuple(name for name in gpus if name.endswith(ending)), unit, most))
    for title, names, unit, most in groups:
        lines = []
        for name in names:
            series = run.observations.get(name)
            if series is None:
                continue
            scale = 100.0 if series.unit == "share" else 1 / 2**30 if series.unit == "bytes" else 1.0
            pairs = zip(series.at_s, series.values, strict=True)
            points = tuple((at_s, value * scale) for at_s, value in pairs if value is not None)
            kind = kind_of(name)
            lines.append(Line(kind.title if kind else name, points))
        if any(line.points for line in lines):
            yield Picture(title + where, over_time(title + where, lines, y_label=unit, most=most))


# -- words ------------------------------------------------------------------------------------------------------------


def definitions_section(measurement: Measurement) -> Section:
    """Say what every figure of the report is."""
    is_job = measurement.setup.arrivals.kind == "job"
    found = dict(DEFINITIONS)
    found["requests/s"] = "answered requests, over the time from the first send to the last end"
    found["output tokens/s"] = "tokens of the answers by the endpoint's own usage, over the same time"
    found["answered"] = "share of all requests sent that got a usable answer; of several rounds the worst"
    found["p50, p95, p99"] = (
        "of the answered requests, by linear interpolation; failed ones are counted beside them"
        if is_job
        else "of all requests, by linear interpolation; a failed one counts as longer than any other, so that failing "
        "fast improves nothing ('failed': the percentile lies among them)"
    )
    if measurement.setup.targets:
        found["goodput"] = "requests a second that met every target; a failure is a miss"
    if len(measurement.runs) > len(measurement.loads):
        found["range"] = "lowest and highest of the rounds; ranges that overlap show no clear difference"
    if any(measurement.knee(load.group, load.max_tokens) for load in measurement.loads):
        found["knee"] = "the least load that brings 90% of the ladder's best throughput with 99% answered"
    if not any(run.figures.ttft_ms.n > run.figures.ttft_ms.failed for run in measurement.runs):
        found = {name: words for name, words in found.items() if name not in ("ITL", "TPOT", "TTFT")}
    return Section("Definitions", "definitions", definitions=tuple(found.items()))


def reliability_rows(measurement: Measurement) -> list[tuple[str, str, str, str]]:
    """Return the failures of each load by cause: load, cause, how many, which share of its requests."""
    rows = []
    for load in measurement.loads:
        causes: dict[str, int] = {}
        for run in _runs_of(measurement, load):
            for cause, how_many in run.figures.causes.items():
                causes[cause] = causes.get(cause, 0) + how_many
        for cause, how_many in sorted(causes.items(), key=lambda one: -one[1]):
            rows.append((load_name(measurement, load), cause, count(how_many), share(how_many / load.requests)))
    return rows
