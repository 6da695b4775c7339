"""A trial is judged in one place, and told once to whoever follows a job that others perform."""

from dataclasses import replace
from pathlib import Path

import pytest

from batchrun.core.prices import PUSD
from batchrun.core.projection import Estimate
from batchrun.core.states import ItemState
from batchrun.ledger.ledger import Ledger
from batchrun.runner.trial import Projection, TrialReport, report_trial
from batchrun.runner.trial_answers import Answers
from batchrun.runner.verdict import TrialNews, judge_trial
from tests.runner.jobs import a_job


@pytest.fixture
def report(tmp_path: Path) -> TrialReport:
    ledger = Ledger(f"sqlite:///{tmp_path}/ledger.db", folder=tmp_path)
    try:
        return report_trial(ledger, a_job(), price=None)
    finally:
        ledger.close()


def with_done(report: TrialReport, done: int, *, left: int = 5) -> TrialReport:
    counts = dict.fromkeys(ItemState, 0) | {ItemState.COMPLETED: done, ItemState.FAILED: 10 - done}
    return replace(report, size=10, counts=counts, projection=Projection(left, None, None, None, None, None))


def test_a_trial_passes_fails_or_rests_and_where_nothing_is_left_it_never_rests(report: TrialReport) -> None:
    job = a_job(spec={"trial": {"max_failed_share": 0.5}})
    table = {
        (4, 5, False): ("trial", "failed", "trial_gate"),
        (4, 5, True): ("trial", "failed", "trial_gate"),
        (5, 5, False): ("full", "passed", None),
        (5, 5, True): ("full", "passed", "trial_only"),
        (5, 0, True): ("full", "passed", None),
    }
    for (done, left, rests_after), expected in table.items():
        verdict = judge_trial(job, with_done(report, done, left=left), rests_after=rests_after)
        assert (verdict.phase, verdict.word, verdict.trip and verdict.trip.reason) == expected


def cost(expected: float) -> Projection:
    return Projection(5, None, None, None, Estimate(expected, expected / 2, 2 * expected), None)


@pytest.mark.parametrize(
    ("invalid", "allowed", "projection", "limit_usd", "why"),
    [
        (6, 0.5, cost(0), None, "6 of 10 trial answers are not what response_schema asks for"),
        (5, 0.5, cost(0), None, None),
        (10, 1.0, cost(0), None, None),
        (0, 1.0, cost(4.96e12), 5, "the whole job is projected to cost $5.26, which is above max_cost_usd (5.00)"),
        (0, 1.0, cost(4.7e12), 5, None),
        (0, 1.0, cost(1.7e12), None, None),
        (0, 1.0, Projection(5, None, None, None, None, None), 5, None),  # no price: the limit cannot be judged here
    ],
)
def test_the_gate_stops_on_invalid_answers_and_on_cost(
    report: TrialReport, invalid: int, allowed: float, projection: Projection, limit_usd: int | None, why: str | None
) -> None:
    """The trial has cost 0.2 for certain, and 0.1 possibly."""
    seen = replace(
        with_done(report, 10),
        answers=Answers(of=10, invalid=invalid),
        projection=projection,
        attempts=replace(report.attempts, certain_pusd=PUSD // 5, possible_pusd=PUSD // 10),
    )
    job = a_job(
        spec={"trial": {"max_failed_share": 0.5, "max_invalid_share": allowed}},
        max_cost_pusd=None if limit_usd is None else limit_usd * PUSD,
    )
    verdict = judge_trial(job, seen, rests_after=False)
    assert (verdict.trip and verdict.trip.message) == why


def test_a_trial_that_ends_between_two_looks_is_told_once(tmp_path: Path) -> None:
    ledger = Ledger(f"sqlite:///{tmp_path}/ledger.db", folder=tmp_path)
    told: list[TrialReport] = []
    try:
        late = TrialNews(ledger, lambda job: None, told.append)
        late.look(replace(a_job(), phase="full", trial_verdict="passed"))
        assert told == []  # it was over before: whoever ran it was told
        news = TrialNews(ledger, lambda job: None, told.append)
        news.look(replace(a_job(), phase="trial", trial_verdict=None))
        for _ in range(3):
            news.look(replace(a_job(), phase="full", trial_verdict="passed"))
    finally:
        ledger.close()
    assert told == [news.report]
