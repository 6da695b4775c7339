"""The result document: what is written is read back, and what is none is refused in words."""

import json
from datetime import UTC, datetime

import pytest

from batchrun.core.measuring.document import (
    Arrivals,
    Event,
    Group,
    Measurement,
    NoMeasurement,
    Run,
    Series,
    Setup,
    Workload,
    figure_names,
    time_text,
    value_of,
)
from batchrun.core.measuring.figures import figures_of, steady_figures
from batchrun.core.measuring.ladder import Range
from batchrun.core.measuring.targets import Targets
from batchrun.core.measuring.timings import Measured
from tests.core.measuring.traces import answered, failed, steadily


def make_run(level: float, requests: list[Measured], *, round_no: int = 1) -> Run:
    return Run(
        group="A",
        round_no=round_no,
        level=level,
        max_tokens=64,
        started_at="2026-11-30T09:00:00.000Z",
        duration_s=figures_of(requests).duration_s,
        figures=figures_of(requests, targets=Targets(ttft=200)),
        steady=steady_figures(requests, concurrency=int(level)),
        requests=tuple(requests),
        events=(Event(0.5, "throttled", "429"),),
        observations={"client.cpu": Series("share", (0.0, 1.0), (0.1, None))},
        warnings=("the client was busy",),
    )


def make_measurement(*runs: Run) -> Measurement:
    return Measurement(
        id="bench-1",
        made_at=time_text(datetime(2026, 11, 30, 9, tzinfo=UTC)),
        setup=Setup(
            groups=(Group(name="A", base_url="http://127.0.0.1:8000/v1", model="m", params={"top_k": 1}),),
            workload=Workload(name="short", requests=4, prompt_tokens=100, max_tokens=(64,), seed=7, is_varied=True),
            arrivals=Arrivals(levels=(1.0, 2.0)),
            targets={"ttft": 200},
        ),
        runs=runs,
    )


@pytest.fixture
def measurement() -> Measurement:
    slow = steadily(4, ttft_ms=100, gap_ms=10, tokens=6, sent_s=[0.0, 0.15, 0.3, 0.45])
    fast = steadily(4, ttft_ms=100, gap_ms=10, tokens=6, sent_s=[0.0, 0.0, 0.15, 0.15])
    return make_measurement(
        make_run(1, slow), make_run(2, [*fast, failed(2, sent_s=0.2)]), make_run(2, fast, round_no=2)
    )


def test_what_is_written_is_read_back(measurement: Measurement) -> None:
    again = Measurement.from_json(measurement.to_json())
    assert again.setup == measurement.setup
    assert again.to_json() == measurement.to_json()
    assert [run.figures for run in again.runs] == [run.figures for run in measurement.runs]
    requests = again.runs[1].requests
    assert requests is not None
    assert requests[0].gaps_s == pytest.approx((0.01,) * 5, abs=1e-6)
    assert figures_of(requests).e2el_ms.p50 == pytest.approx(150, abs=1e-3)


def test_requests_stand_in_columns(measurement: Measurement) -> None:
    columns = json.loads(measurement.to_json())["runs"][1]["requests"]
    assert columns["outcome"] == ["answered"] * 4 + ["refused"]
    assert {len(column) for column in columns.values()} == {5}


def test_it_can_leave_its_requests_out(measurement: Measurement) -> None:
    short = Measurement.from_json(measurement.without_requests().to_json())
    assert {run.requests for run in short.runs} == {None}
    assert short.loads == measurement.loads


def test_loads_hold_the_range_over_the_rounds_and_nothing_where_a_round_has_none(measurement: Measurement) -> None:
    one, two = measurement.loads
    assert (one.rounds, two.rounds, two.failed, two.requests) == (1, 2, 1, 9)
    assert one.figures["p50_e2el"] == Range(1, *[pytest.approx(150)] * 3)
    assert "p99_ttft" not in two.figures  # in one of its rounds it lies beyond a failure
    assert two.figures["success_rate"] == Range(2, 0.8, 0.9, 1.0)


def test_values_hold_what_follows_from_the_runs() -> None:
    slow = steadily(4, ttft_ms=100, gap_ms=10, tokens=6, sent_s=[0.0, 0.15, 0.3, 0.45])
    fast = steadily(4, ttft_ms=100, gap_ms=10, tokens=6, sent_s=[0.0, 0.0, 0.15, 0.15])
    values = make_measurement(make_run(1, slow), make_run(2, fast)).to_values()
    assert values["knees"] == [{"group": "A", "max_tokens": 64, "level": 2, "share": 1.0, "is_last": True}]
    assert [load["level"] for load in values["loads"]] == [1, 2]


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"kind": "job_status"}', '{"kind": "measurement", "version": 99}',
                                  '{"kind": "measurement", "version": 1}', "[" * 100_000])  # fmt: skip
def test_what_is_no_measurement_is_refused(text: str) -> None:
    with pytest.raises(NoMeasurement, match="it is"):
        Measurement.from_json(text)


@pytest.mark.parametrize("damage", [{"outcome": ["nonsense"]}, {"sent_s": []}, {"name": 3}, {"ended_s": ["x"] * 4}])
def test_damaged_requests_are_refused(measurement: Measurement, damage: dict[str, object]) -> None:
    values = json.loads(measurement.to_json())
    values["runs"][0]["requests"] |= damage
    with pytest.raises(NoMeasurement, match="damaged"):
        Measurement.from_json(json.dumps(values))


def test_every_figure_has_a_name() -> None:
    figures = figures_of([answered(100, 150)], targets=Targets(e2el=1000))
    values = {name: value_of(figures, name) for name in figure_names()}
    assert values["p95_e2el"] == pytest.approx(150)
    assert values["attainment"] == 1.0
    assert None not in values.values()
    with pytest.raises(KeyError):
        value_of(figures, "p98_ttft")


@pytest.mark.parametrize("number", ["1e999", "-1e999", "1e308", "1" + "0" * 400, "-" + "9" * 30])
def test_a_number_that_would_be_infinity_in_a_report_is_refused(measurement: Measurement, number: str) -> None:
    text = measurement.to_json()
    for place in ('"duration_s":', '"prompt_tokens":', '"level":'):
        at = text.index(place) + len(place)
        end = next(spot for spot in range(at, len(text)) if text[spot] in ",}]")
        with pytest.raises(NoMeasurement, match="too large a number"):
            Measurement.from_json(text[:at] + number + text[end:])
