"""The verdict of a report: what was found, in one sentence."""

from collections.abc import Sequence

from batchrun.bench.job import JobFacts
from batchrun.bench.report.numbers import seconds, share, three_digits
from batchrun.core.measuring.comparison import FigurePair, Side, pair_up
from batchrun.core.measuring.document import Load, Measurement, Run
from batchrun.core.measuring.observed import client_load
from batchrun.core.printable import one_line
from batchrun.core.states import ItemState, JobState
from batchrun.core.wording import several


def verdict_of_job(measurement: Measurement, facts: JobFacts, cost: str) -> tuple[str, bool | None]:
    """Say how a job stands, and whether that is good; `cost` is what it cost, in words."""
    job, counts, figures = facts.job, facts.counts, measurement.runs[0].figures
    done = counts[ItemState.COMPLETED]
    words = f"{job.task_id} is {job.state.value.replace('_', ' ')}: {done:,} of {several(job.total, 'item')} answered"
    if done and figures.duration_s:
        p95_ms = figures.e2el_ms.p95
        latency = "" if p95_ms is None else f", p95 {seconds(p95_ms / 1000)}"
        words += f" in {seconds(figures.duration_s)} ({three_digits(done / figures.duration_s)} items/s{latency})"
    bad = (ItemState.FAILED, ItemState.IN_DOUBT, ItemState.REJECTED, ItemState.CANCELLED)
    words += "".join(f", {counts[state]:,} {state.value.replace('_', ' ')}" for state in bad if counts[state])
    is_over = job.state in (JobState.COMPLETED, JobState.CANCELLED)
    return f"{words}; {cost}.", (not any(counts[state] for state in bad)) if is_over else None


def verdict_of(measurement: Measurement) -> tuple[str, bool | None]:
    """Say what a measurement found, and whether that is good."""
    if not measurement.runs:
        return "Nothing was measured.", None
    if busy := [run for run in measurement.runs if _is_saturated(run)]:
        runs = several(len(measurement.runs), "run")
        return f"This is no measurement of the server: the client itself was saturated in {len(busy)} of {runs}.", False
    words = _two(measurement) if len(measurement.setup.groups) == 2 else _one(measurement, measurement.loads)
    failed = sum(load.failed for load in measurement.loads)
    sent = sum(load.requests for load in measurement.loads)
    if failed:
        words += f"; {failed:,} of {several(sent, 'request')} failed ({share(failed / sent)})"
    return f"{words}.", failed == 0


def _is_saturated(run: Run) -> bool:
    found = [run.observations.get(name) for name in ("client.cpu_share", "client.loop_lag_s")]
    values = [[value for value in series.values if value is not None] if series else [] for series in found]
    return client_load(*values).is_saturated


def _one(measurement: Measurement, loads: Sequence[Load]) -> str:
    group = measurement.setup.groups[0]
    knee = measurement.knee(loads[0].group, loads[0].max_tokens)
    at = next((load for load in loads if knee is not None and load.level == knee.level), None) or _best(loads)
    words = f"{one_line(group.model)} brings {_throughput(at)} at {_level(measurement)} {at.level:g}"
    if (p95 := at.figures.get("p95_e2el")) is not None:
        words += f", with a p95 of {seconds(p95.median / 1000)}"
    if (met := at.figures.get("attainment")) is not None:
        words += f" and {share(met.median)} of the requests within their targets"
    if knee is None:
        return words
    if knee.is_last:
        return f"{words}; the ladder ends there, and more may bring more"
    return f"{words}; more at once brings little more"


def _two(measurement: Measurement) -> str:
    first, second = measurement.setup.groups
    sides = [
        Side(group.name, group, measurement.setup, tuple(one for one in measurement.loads if one.group == group.name))
        for group in (first, second)
    ]
    pairs = pair_up(*sides, figures=("output_throughput", "p95_e2el"))
    clear = [pair for pair in pairs if pair.is_better is not None]
    names = f"{one_line(first.name)} and {one_line(second.name)}"
    if not clear:
        return f"There is no clear difference between {names} in output tokens/s or p95 latency"
    told = max(clear, key=lambda pair: abs((pair.difference and pair.difference.change) or 0))
    return f"Between {names} the clearest difference is {difference_words(told, second.name)}"


def difference_words(pair: FigurePair, name: str) -> str:
    """Say how one figure differs clearly."""
    found = pair.difference
    change = "another" if found is None or found.change is None else f"{abs(found.change):.1%} {_more(found.change)}"
    figure = {"output_throughput": "output throughput", "p95_e2el": "p95 latency"}.get(pair.figure, pair.figure)
    return f"{change} {figure} of {one_line(name)} at {pair.level:g}"


def _more(change: float) -> str:
    return "more" if change > 0 else "less"


def _best(loads: Sequence[Load]) -> Load:
    def output(load: Load) -> float:
        found = load.figures.get("output_throughput") or load.figures.get("request_throughput")
        return found.median if found else 0.0

    return max(loads, key=output)


def _throughput(load: Load) -> str:
    if (found := load.figures.get("output_throughput")) is not None:
        return f"{three_digits(found.median)} output tokens/s"
    found = load.figures.get("request_throughput")
    return f"{three_digits(found.median if found else None)} requests/s"


def _level(measurement: Measurement) -> str:
    return "concurrency" if measurement.setup.arrivals.kind in ("closed", "job") else "a rate of"
