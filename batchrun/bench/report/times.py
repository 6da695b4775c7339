"""Where the time of a measurement goes, how its latencies spread, and how one run went over time."""

from collections.abc import Iterator, Sequence

from batchrun.bench.charts.bars import Bar, stacked
from batchrun.bench.charts.lines import Line, over_time, shares
from batchrun.bench.report.content import Picture, Section, table
from batchrun.bench.report.naming import load_name, runs_of
from batchrun.bench.report.numbers import share, three_digits
from batchrun.core.measuring.document import Measurement, Run, all_requests
from batchrun.core.measuring.layers import MEANINGS, layers_of

SHOWN_LINES = 6
TIME_BINS = 60


def time_section(measurement: Measurement) -> Section:
    """Say where the time goes, layer by layer, how latencies spread, and how the run went over time."""
    bars: list[Bar] = []
    seen: dict[str, str] = {}
    for load in measurement.loads[: 2 * SHOWN_LINES]:
        runs = runs_of(measurement, load)
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
            requests = all_requests(runs_of(measurement, load))
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
