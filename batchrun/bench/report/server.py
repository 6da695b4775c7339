"""What was seen beside a measurement: the server, its GPUs, the client."""

from collections.abc import Iterator
from statistics import fmean

from batchrun.bench.charts.lines import Line, over_time
from batchrun.bench.report.content import NOTHING, Picture, Section, table
from batchrun.bench.report.naming import load_name, runs_of
from batchrun.bench.report.numbers import amount, share
from batchrun.core.measuring.cache_hits import cache_hit_share
from batchrun.core.measuring.document import Measurement
from batchrun.core.measuring.layers import growth, known_values
from batchrun.core.measuring.observed import kind_of


def server_section(measurement: Measurement) -> Section:
    """Show what the observers saw: the server's queue and cache, the GPUs, the client."""
    rows: list[tuple[str, ...]] = []
    seen: dict[str, str] = {}
    for load in measurement.loads:
        runs = runs_of(measurement, load)
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
