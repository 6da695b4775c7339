"""The result document: what was measured, how, and every single request of it; one JSON file that all commands read.

`batchrun bench` writes it; `compare`, `diagnose` and `report` read it. Its JSON is printed and described like that of
any command (kind "measurement", cli/json_schemas/measurement.json). Requests stand in columns, not rows: one list a
field, so that a run of thousands stays small. Figures are computed once, by whoever measures, and can be computed
again from the requests at any time (`figures.figures_of`).
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import datetime
from functools import cache
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, PlainSerializer, TypeAdapter, ValidationError

from batchrun.core.measuring.figures import Figures
from batchrun.core.measuring.ladder import Knee, Range, Step, knee_of
from batchrun.core.measuring.timings import Measured
from batchrun.core.printable import clip

VERSION = 1
KIND = "measurement"
TIME_DIGITS = 6  # of seconds in the file: microseconds
# What the ranges over rounds are of: a name -> the figure, and the latencies' percentiles as "p95_e2el".
RATES = ("request_throughput", "output_throughput", "total_token_throughput", "success_rate", "goodput", "attainment")
LATENCIES = ("ttft", "tpot", "itl", "e2el")
POINTS = ("mean", "p50", "p90", "p95", "p99")


class NoMeasurement(ValueError):
    """A text is no result document of a version that this one reads; in words for the user."""


def _columns(requests: Sequence[Measured]) -> dict[str, list[Any]]:
    def cell(value: Any) -> Any:
        if isinstance(value, float):
            return round(value, TIME_DIGITS)
        return [round(part, TIME_DIGITS) for part in value] if isinstance(value, tuple) else value

    names = [one.name for one in fields(Measured)]
    return {name: [cell(getattr(one, name)) for one in requests] for name in names}


def _rows(value: Any) -> Any:
    """Turn columns into requests; a column that is missing is one of a field with a default."""
    if not isinstance(value, dict):
        return value
    names = [one.name for one in fields(Measured) if one.name in value]
    columns = [value[name] for name in names]
    if len({len(column) for column in columns if isinstance(column, list)}) > 1:
        raise ValueError("the columns are not of one length")
    return [dict(zip(names, cells, strict=True)) for cells in zip(*columns, strict=True)]


Requests = Annotated[tuple[Measured, ...], PlainSerializer(_columns), BeforeValidator(_rows)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """What is measured: one endpoint with one model and one set of parameters. Two of them are two candidates."""

    name: str  # "A", "B"; of a job its id
    base_url: str
    model: str
    endpoint: str = "/v1/chat/completions"
    server: str | None = None  # what it says that it is, as "vllm 0.32.0"
    params: dict[str, Any] = field(default_factory=dict)  # further body fields that every request carried


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """What was sent. Of a job it is the job's own input: no seed, nothing varied."""

    name: str  # short, medium, long, mixed, outliers; or the input file's name
    requests: int  # of one run
    prompt_tokens: int | None = None  # wanted, the mean; what came is in the requests
    max_tokens: tuple[int, ...] = ()  # the ladder of output limits; each has runs of its own
    seed: int | None = None
    is_varied: bool = False  # no two requests of the whole measurement begin alike
    shared_prefix_tokens: int = 0  # of a beginning that all prompts share on purpose
    counted_by: Literal["usage", "tokenize"] | None = None  # who said how long a prompt is
    is_shuffled: bool = False  # each run in an order of its own


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrivals:
    """When requests were sent."""

    kind: Literal["closed", "poisson", "gamma", "wave", "job"] = "closed"
    levels: tuple[float, ...] = ()  # concurrency (closed, job) or requests a second
    burstiness: float | None = None  # gamma's shape, as vLLM's: below 1 in bursts, 1 is Poisson
    wave_s: float | None = None  # length of one day of the wave
    most_in_flight: int | None = None  # a limit on top of open arrivals


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """Everything that must be equal for two results to be compared, and the rest that a reader wants to know."""

    groups: tuple[Group, ...]
    workload: Workload
    arrivals: Arrivals
    rounds: int = 1
    warm_up: int = 0  # requests before the first run of a group, in no figure
    pause_s: float = 0.0  # between two runs
    targets: dict[str, float] = field(default_factory=dict)  # milliseconds: ttft, tpot, e2el
    versions: dict[str, str] = field(default_factory=dict)  # batchrun, python, ...
    machine: dict[str, str | int] = field(default_factory=dict)  # of the client: system, cpus, memory_bytes


@dataclass(frozen=True, slots=True)
class Series:
    """One thing observed over a run. `at_s` counts from the run's beginning, as the requests' times do."""

    unit: str  # "requests", "share", "bytes", "celsius", ...
    at_s: tuple[float, ...]
    values: tuple[float | None, ...]  # None: it could not be read then


@dataclass(frozen=True, slots=True)
class Observation:
    """What one observer saw during one run."""

    series: dict[str, Series] = field(default_factory=dict)  # by names such as "vllm.kv_cache_use", "client.cpu"
    warnings: tuple[str, ...] = ()  # for people: what makes the run doubtful


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened in a run: a throttling, a pause, a change of the concurrency."""

    at_s: float
    kind: str
    detail: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One run: a group under one load, one round of it."""

    group: str
    round_no: int  # from 1
    level: float  # concurrency, or requests a second
    max_tokens: int | None = None
    started_at: str  # RFC 3339, UTC; second 0 of all its times
    duration_s: float
    figures: Figures
    steady: Figures | None  # of the time with the full load on; None: there was none
    requests: Requests | None  # None: left out, as `bench --json` does
    events: tuple[Event, ...] = ()
    observations: dict[str, Series] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """All rounds of one group under one load; figures by name: a rate's, or "p95_e2el" (milliseconds)."""

    group: str
    level: float
    max_tokens: int | None
    rounds: int
    failed: int  # requests, over all rounds
    requests: int
    figures: dict[str, Range]


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """A whole measurement."""

    id: str
    made_at: str  # RFC 3339, UTC
    setup: Setup
    runs: tuple[Run, ...]
    warnings: tuple[str, ...] = ()

    @property
    def loads(self) -> tuple[Load, ...]:
        """Return what each group came to under each load, in the order of their first runs."""
        rounds: dict[tuple[str, float, int | None], list[Run]] = {}
        for run in self.runs:
            rounds.setdefault((run.group, run.level, run.max_tokens), []).append(run)
        return tuple(_load(runs) for runs in rounds.values())

    def knee(self, group: str, max_tokens: int | None = None) -> Knee | None:
        """Return the knee of one group's ladder."""
        return knee_of(
            [
                Step(load.level, _throughput(load), _worst(load))
                for load in self.loads
                if (load.group, load.max_tokens) == (group, max_tokens)
            ]
        )

    def without_requests(self) -> "Measurement":
        """Return it without its single requests: small enough to be printed."""
        return replace(self, runs=tuple(replace(run, requests=None) for run in self.runs))

    def to_values(self) -> dict[str, Any]:
        """Return the document as plain values for JSON, with what follows from the runs (`loads`, `knees`)."""
        values: dict[str, Any] = {"version": VERSION, **_adapter().dump_python(self, mode="json")}
        values["loads"] = [TypeAdapter(Load).dump_python(load, mode="json") for load in self.loads]
        ladders = dict.fromkeys((load.group, load.max_tokens) for load in self.loads)
        values["knees"] = [
            {"group": group, "max_tokens": most, "level": knee.level, "share": knee.share, "is_last": knee.is_last}
            for group, most in ladders
            if (knee := self.knee(group, most)) is not None
        ]
        return values

    def to_json(self) -> str:
        """Return the file's text."""
        envelope = {"schema": "batchrun/1", "kind": KIND}
        return json.dumps(envelope | self.to_values(), allow_nan=False, separators=(",", ":")) + "\n"

    @classmethod
    def from_json(cls, text: str | bytes) -> "Measurement":
        """Read a file's text.

        Raises:
            NoMeasurement: it is none, or of a later version.
        """
        try:
            values = json.loads(text, parse_constant=_no_number, parse_float=_amount, parse_int=_count)
        except _TooLarge as error:
            raise NoMeasurement(str(error)) from error
        except (ValueError, RecursionError) as error:
            raise NoMeasurement("it is no JSON") from error
        if not isinstance(values, dict) or values.get("kind") != KIND:
            raise NoMeasurement(f"it is no result of a measurement: its kind is not {KIND!r}")
        if values.get("version") != VERSION:
            raise NoMeasurement(f"it is of version {values.get('version')!r}, and {VERSION} is what can be read")
        try:
            return _adapter().validate_python(values)
        except (ValidationError, ValueError, TypeError, KeyError) as error:
            raise NoMeasurement(f"it is damaged: {_first_fault(error)}") from error


LARGEST = 1e18  # beyond any time, count or rate: sums and products of what is below it are still numbers


class _TooLarge(ValueError):
    """A number that no measurement can have come to."""


def _no_number(word: str) -> None:
    raise ValueError(f"{word} is no JSON")


def _amount(digits: str) -> float:
    value = float(digits)
    if abs(value) > LARGEST:  # 1e999 is infinity by now
        raise _TooLarge(f"{clip(digits, 20)} is too large a number for a measurement")
    return value


def _count(digits: str) -> int:
    if len(digits) > 20 or abs(int(digits)) > LARGEST:
        raise _TooLarge(f"{clip(digits, 20)} is too large a number for a measurement")
    return int(digits)


def time_text(at: datetime) -> str:
    """Return an aware time as the document writes it."""
    return at.strftime("%Y-%m-%dT%H:%M:%S.") + f"{at.microsecond // 1000:03d}Z"


def value_of(figures: Figures, name: str) -> float | None:
    """Return a figure by its name: "output_throughput", "p95_e2el" (milliseconds), as vLLM names them.

    Raises:
        KeyError: there is no such figure.
    """
    point, _, latency = name.partition("_")
    if point in POINTS and latency in LATENCIES:
        value: float | None = getattr(getattr(figures, f"{latency}_ms"), point)
    elif name in RATES:
        value = getattr(figures, name)
    else:
        raise KeyError(name)
    return value


def figure_names() -> tuple[str, ...]:
    """Return the names that `value_of` knows."""
    return (*RATES, *(f"{point}_{latency}" for latency in LATENCIES for point in POINTS))


@cache
def _adapter() -> TypeAdapter[Measurement]:
    return TypeAdapter(Measurement)


def _load(runs: Sequence[Run]) -> Load:
    def over(name: str) -> Range | None:
        return Range.of(value_of(run.figures, name) for run in runs)

    return Load(
        group=runs[0].group,
        level=runs[0].level,
        max_tokens=runs[0].max_tokens,
        rounds=len(runs),
        failed=sum(run.figures.failed for run in runs),
        requests=sum(run.figures.requests for run in runs),
        figures={name: found for name in figure_names() if (found := over(name)) is not None},
    )


def _throughput(load: Load) -> float | None:
    found = load.figures.get("output_throughput") or load.figures.get("request_throughput")
    return None if found is None else found.median


def _worst(load: Load) -> float | None:
    found = load.figures.get("success_rate")
    return None if found is None else found.low


def _first_fault(error: Exception) -> str:
    if isinstance(error, ValidationError):
        first = error.errors(include_url=False, include_input=False)[0]
        return f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
    return str(error)


def all_requests(runs: Iterable[Run]) -> list[Measured]:
    """Return the requests of several runs together, where they were kept."""
    return [one for run in runs for one in run.requests or ()]
