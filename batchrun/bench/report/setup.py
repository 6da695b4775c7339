"""What was measured and how, what failed, and what every figure means: the frame of a report."""

from batchrun.bench.report.content import Section
from batchrun.bench.report.naming import has_groups, load_name, runs_of
from batchrun.bench.report.numbers import count, share
from batchrun.core.measuring.document import Measurement
from batchrun.core.measuring.timings import DEFINITIONS

COUNTERS = {"usage": "own usage", "tokenize": "/tokenize"}


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
    counted = "" if work.counted_by is None else f", counted by the endpoint's {COUNTERS[work.counted_by]}"
    facts += [("prompt length", f"{work.prompt_tokens:,} tokens wanted{counted}")] if work.prompt_tokens else []
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
        for run in runs_of(measurement, load):
            for cause, how_many in run.figures.causes.items():
                causes[cause] = causes.get(cause, 0) + how_many
        for cause, how_many in sorted(causes.items(), key=lambda one: -one[1]):
            rows.append((load_name(measurement, load), cause, count(how_many), share(how_many / load.requests)))
    return rows
