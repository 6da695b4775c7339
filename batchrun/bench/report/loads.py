"""Every load of a measurement: throughput, latencies, and both drawn over the ladder."""

from collections.abc import Iterator, Sequence

from batchrun.bench.charts.lines import Line, Mark, over_levels
from batchrun.bench.report.content import NOTHING, Picture, Section, Table, table
from batchrun.bench.report.naming import has_groups, level_word, load_name, runs_of
from batchrun.bench.report.numbers import STAR, amount, count, over_rounds, percentile, share
from batchrun.core.measuring.document import Load, Measurement, Run
from batchrun.core.measuring.figures import Spread
from batchrun.core.measuring.ladder import Range
from batchrun.core.measuring.layers import known_values

SHOWN_LINES = 6
LATENCIES = ("ttft", "tpot", "itl", "e2el")
LATENCY_TITLES = {
    "ttft": "Time to first token",
    "tpot": "Time per output token",
    "itl": "Inter-token latency",
    "e2el": "End-to-end latency",
}


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
            runs = runs_of(measurement, load)
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
        runs = runs_of(measurement, load)
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
