"""The formulas against arithmetic done by hand, on traces of every kind of stream."""

import dataclasses
import random

import pytest

from batchrun.core.measuring.document import RATES, figure_names, value_of
from batchrun.core.measuring.figures import (
    Spread,
    answered_only,
    bears,
    figures_of,
    steady_figures,
    steady_window,
)
from batchrun.core.measuring.targets import Targets
from batchrun.core.measuring.timings import Measured
from batchrun.core.states import AttemptState
from batchrun.core.stats import percentile
from tests.core.measuring.traces import answered, failed, steadily


def test_the_four_latencies_of_a_plain_stream() -> None:
    one = answered(200, 250, 310, 350)
    assert (one.ttft_s, one.e2el_s) == (0.2, 0.35)
    assert one.tpot_s == pytest.approx(0.15 / 3)
    assert one.gaps_s == pytest.approx((0.05, 0.06, 0.04))


def test_the_first_token_is_in_no_tpot_and_a_single_token_has_none() -> None:
    assert answered(5000, 5010).tpot_s == pytest.approx(0.010)
    single = answered(300)
    assert (single.tpot_s, single.gaps_s, single.e2el_s) == (None, (), 0.3)
    assert figures_of([single]).tpot_ms == Spread(0)


def test_a_chunk_with_several_tokens_is_one_gap_and_as_many_tokens_as_usage_says() -> None:
    one = answered(100, 200, 300, tokens=11)
    assert one.tpot_s == pytest.approx(0.2 / 10)
    assert figures_of([one]).itl_ms.mean == pytest.approx(100)


def test_tokens_that_the_stream_hides_count_by_usage() -> None:
    """Reasoning that is generated and not shown: the first visible chunk is late, and usage has more than was seen."""
    one = answered(2000, 2010, tokens=200)
    assert one.ttft_s == 2.0
    assert one.tpot_s == pytest.approx(0.010 / 199)


def test_a_role_only_first_chunk_is_no_token() -> None:
    one = answered(400, 420, role_ms=30)
    assert one.first_chunk_s == 0.03
    assert one.ttft_s == 0.4


def test_without_usage_there_is_no_tpot_and_rates_say_at_least() -> None:
    unknown = dataclasses.replace(answered(100, 200), output_tokens=None, prompt_tokens=None)
    assert unknown.tpot_s is None
    figures = figures_of([unknown, answered(100, 200)])
    assert (figures.without_usage, figures.output_tokens, figures.ttft_ms.n, figures.tpot_ms.n) == (1, 2, 2, 1)
    assert figures_of([unknown]).output_throughput is None


def test_an_answer_that_was_not_streamed_has_an_end_and_no_first_token() -> None:
    one = Measured(name="r", outcome=AttemptState.ANSWERED, sent_s=1.0, ended_s=3.5, output_tokens=7, prompt_tokens=3)
    assert (one.e2el_s, one.ttft_s, one.tpot_s) == (2.5, None, None)


def test_our_own_queue_is_in_no_latency() -> None:
    one = answered(100, 150, sent_s=5.0, due_s=2.0)
    assert (one.queue_s, one.ttft_s, one.e2el_s) == (3.0, pytest.approx(0.1), pytest.approx(0.15))


def test_rates_are_over_the_whole_run_from_the_first_send_to_the_last_end() -> None:
    run = [answered(500, 1000, sent_s=1.0), answered(500, 1000, sent_s=4.0, ended_ms=2000)]
    figures = figures_of(run)
    assert figures.duration_s == 5.0
    assert figures.request_throughput == 2 / 5
    assert figures.output_throughput == 4 / 5
    assert figures.total_token_throughput == 24 / 5


def test_percentiles_are_those_of_linear_interpolation() -> None:
    dice = random.Random(3)
    for n in (1, 2, 5, 33, 100):
        values = [dice.expovariate(3) for _ in range(n)]
        spread = Spread.of(values)
        for p in (50, 90, 95, 99):
            expected = percentile(values, p)
            assert expected is not None
            assert getattr(spread, f"p{p}") == pytest.approx(expected * 1000)


@pytest.mark.parametrize(
    ("n", "p", "is_borne"),
    [
        *((9, 50, False), (10, 50, True), (49, 90, False), (50, 90, True)),
        *((99, 95, False), (100, 95, True), (499, 99, False), (500, 99, True)),
    ],
)
def test_a_percentile_is_borne_by_five_values_beyond_it(n: int, p: int, is_borne: bool) -> None:
    assert bears(n, p) is is_borne


def figures_by_goodness(run: list[Measured]) -> dict[str, float]:
    """Return every figure so that less is better, None as the worst there is."""
    targets = Targets(ttft=300, tpot=40, e2el=900)
    worst = float("inf")
    found: dict[str, float] = {}
    figures = figures_of(run, targets=targets)
    for name in figure_names():
        value = value_of(figures, name)
        found[name] = worst if value is None else (-value if name in RATES else value)
    return found


@pytest.mark.parametrize("seed", range(30))
def test_fast_failures_improve_no_figure(seed: int) -> None:
    """Whatever part of a run is refused at once, and however slow it was: nothing looks better for it."""
    dice = random.Random(seed)
    run = [answered(*_stream(dice), name=f"r{number}", sent_s=number * dice.uniform(0.0, 0.2)) for number in range(40)]
    slowest = sorted(run, key=lambda one: -(one.e2el_s or 0.0))[: dice.randint(1, 20)]
    kept_end = max(one.ended_s for one in run)
    refused = [
        failed(1, name=one.name, sent_s=one.sent_s or 0.0, max_tokens=20)
        if one in slowest and one.ended_s < kept_end
        else one
        for one in run
    ]
    before, after = figures_by_goodness(run), figures_by_goodness(refused)
    assert {name for name in before if after[name] < before[name] - 1e-9} == set()


def _stream(dice: random.Random) -> list[float]:
    at_ms, times = dice.uniform(50, 500), []
    for _ in range(dice.randint(2, 20)):
        times.append(at_ms)
        at_ms += dice.uniform(1, 60)
    return times


def test_a_failure_is_beyond_every_percentile_and_leaves_no_mean() -> None:
    run = [answered(100, 110, sent_s=number) for number in range(9)] + [failed(1, sent_s=9.0)]
    spread = figures_of(run).ttft_ms
    assert (spread.n, spread.failed) == (10, 1)
    assert (spread.p50, spread.p99, spread.mean) == (pytest.approx(100), None, None)
    alone = answered_only(run).ttft_ms
    assert (alone.n, alone.mean, alone.p99) == (9, pytest.approx(100), pytest.approx(100))
    assert answered_only(run).failed == 1


def test_causes_are_counted() -> None:
    figures = figures_of([failed(1), failed(1, cause="timeout"), failed(2)])
    assert figures.causes == {"server_error": 2, "timeout": 1}
    assert (figures.success_rate, figures.ttft_ms.p50, figures.output_tokens) == (0.0, None, None)


def test_nothing_measured_gives_nothing() -> None:
    figures = figures_of([])
    assert (figures.success_rate, figures.request_throughput, figures.duration_s) == (None, None, 0.0)


def test_the_steady_window_is_the_time_with_all_slots_full() -> None:
    # Two slots, four requests of 2 s, the second slot begins a second later: full from 1 s, the last send at 3 s.
    run = steadily(4, ttft_ms=500, gap_ms=500, tokens=4, sent_s=[0.0, 1.0, 2.0, 3.0])
    window = steady_window(run, concurrency=2)
    assert window is not None
    assert (window.start_s, window.end_s) == (1.0, 3.0)
    steady = steady_figures(run, concurrency=2)
    assert steady is not None
    # Each answer's four tokens come in the 1.5 s from its first to its last: here 1.0 of 1.5 s, 1.5 of 1.5 and 0.5.
    assert steady.output_tokens == round(4 * (1.0 / 1.5 + 1 + 0.5 / 1.5))
    assert (steady.requests, steady.completed, steady.duration_s) == (2, 1, 2.0)


def test_a_run_without_a_full_load_has_no_steady_window() -> None:
    run = steadily(3, ttft_ms=100, gap_ms=10, tokens=3, sent_s=[0.0, 0.0, 0.0])
    assert steady_figures(run, concurrency=3) is None
    assert steady_figures(run, concurrency=1) is None  # all at once: no time passed with it
    assert steady_figures([], concurrency=1) is None


def test_open_arrivals_are_steady_from_the_first_answer_to_the_last_send() -> None:
    run = steadily(4, ttft_ms=500, gap_ms=500, tokens=2, sent_s=[0.0, 0.5, 2.0, 3.0])
    window = steady_window(run, concurrency=None)
    assert window is not None
    assert (window.start_s, window.end_s) == (1.0, 3.0)
