"""The trial: a few items for real, what they say about the rest, and the gate before the full run."""

from collections.abc import Mapping
from dataclasses import dataclass

from batchrun.core.prices import PUSD, Price
from batchrun.core.states import ItemState
from batchrun.core.stats import Estimate, percentile, project, project_by_size, share_range
from batchrun.ledger.jobs import Job
from batchrun.ledger.ledger import Ledger
from batchrun.ledger.reports import (
    AttemptReport,
    CauseReport,
    causes,
    count_items,
    count_trial,
    report_attempts,
    trial_ids,
)
from batchrun.ledger.trial import pending_bytes, trial_setbacks
from batchrun.runner.advice import THROTTLED, Change, what_to_change
from batchrun.runner.trial_answers import Answers, read_answers

OUR_OWN_DEATHS = ("worker_lost", "aborted")
A_MILLION = 1_000_000


@dataclass(frozen=True, slots=True)
class Projection:
    """What the items that are left would take, going by the trial. None is not known; money is picodollars."""

    items: int
    duration_s: Estimate | None  # at the job's concurrency
    prompt_tokens: Estimate | None
    completion_tokens: Estimate | None
    cost_pusd: Estimate | None
    missed_share: tuple[float, float] | None  # of items that would not complete


@dataclass(frozen=True, slots=True)
class TrialReport:
    """What the trial came to and what it projects. None is not known."""

    task_id: str
    endpoint: str | None
    concurrency: int
    size: int
    counts: Mapping[ItemState, int]
    lost: int  # in doubt because a process of ours died: they say nothing about the endpoint
    total: int
    answers: Answers
    causes: list[CauseReport]
    setbacks: Mapping[str, int]  # attempts without an answer by cause, those later made good among them
    attempts: AttemptReport
    price: Price | None
    projection: Projection
    changes: list[Change]

    @property
    def done(self) -> int:
        return self.counts[ItemState.COMPLETED]

    @property
    def left(self) -> int:
        """Items of the full run that are not tried yet."""
        return self.projection.items

    @property
    def e2el_p50_s(self) -> float | None:
        return percentile(self.answers.durations_s, 50)

    @property
    def e2el_p95_s(self) -> float | None:
        return percentile(self.answers.durations_s, 95)

    @property
    def e2el_max_s(self) -> float | None:
        return max(self.answers.durations_s, default=None)

    @property
    def was_throttled(self) -> bool:
        """True where the endpoint turned requests away for a while: the durations know nothing of such pauses."""
        return any(cause in self.setbacks for cause in THROTTLED)

    @property
    def trial_pusd(self) -> int | None:
        """What the trial cost for certain."""
        return self.attempts.certain_pusd if self.price else None

    @property
    def projected_pusd(self) -> int | None:
        """What the items left would cost."""
        cost = self.projection.cost_pusd
        return None if cost is None else round(cost.expected)

    @property
    def projected_s(self) -> float | None:
        """How long the items left would take at the job's concurrency."""
        return None if self.projection.duration_s is None else self.projection.duration_s.expected


def report_trial(ledger: Ledger, job: Job, *, price: Price | None) -> TrialReport:
    """Read what a job's trial came to, and project the rest from it."""
    with ledger.read() as connection:
        counts = count_trial(connection, job.id)
        whole = count_items(connection, job.id)
        ids = trial_ids(connection, job.id)
        attempts = report_attempts(connection, job.id, trial_only=True)
        stopped = [one for one in causes(connection, job.id) if one.state is not ItemState.REJECTED]
        setbacks = trial_setbacks(connection, job.id)
        left = whole[ItemState.PENDING] + whole[ItemState.RUNNING]
        left_bytes = pending_bytes(connection, job.id) if left else 0
    answers = read_answers(ledger, job.id, ids)
    tried = sum(counts.values())
    lost = sum(one.count for one in stopped if one.state is ItemState.IN_DOUBT and one.cause in OUR_OWN_DEATHS)
    missed = tried - lost - counts[ItemState.COMPLETED]
    projection = _project(
        answers, job, left=left, left_bytes=left_bytes, price=price, missed=missed, tried=tried - lost
    )
    return TrialReport(
        task_id=job.task_id,
        endpoint=answers.endpoint,
        concurrency=job.concurrency,
        size=tried,
        counts=counts,
        lost=lost,
        total=job.total,
        answers=answers,
        causes=stopped,
        setbacks=setbacks,
        attempts=attempts,
        price=price,
        projection=projection,
        changes=what_to_change(job, answers, stopped, setbacks, tried=tried, is_priced=price is not None),
    )


def _project(
    answers: Answers, job: Job, *, left: int, left_bytes: int, price: Price | None, missed: int, tried: int
) -> Projection:
    if left == 0:
        return Projection(0, None, None, None, None, None)
    prompt = project_by_size(answers.prompt_tokens, answers.prompt_bytes, count=left, total_size=left_bytes)
    completion = project(answers.completion_tokens, left)
    duration = project(answers.durations_s, left)
    return Projection(
        items=left,
        duration_s=None if duration is None else duration.times(1 / min(job.concurrency, left)),
        prompt_tokens=prompt,
        completion_tokens=completion,
        cost_pusd=_cost(price, prompt, completion),
        missed_share=share_range(missed, tried),
    )


def _cost(price: Price | None, prompt: Estimate | None, completion: Estimate | None) -> Estimate | None:
    if price is None or prompt is None or completion is None:
        return None
    of_prompt = float(price.input_per_1m_usd) * PUSD / A_MILLION
    of_completion = float(price.output_per_1m_usd) * PUSD / A_MILLION
    return prompt.times(of_prompt).plus(completion.times(of_completion))


def gate(
    report: TrialReport, *, max_failed_share: float, max_invalid_share: float, max_cost_pusd: int | None
) -> str | None:
    """Return why the full run must not follow by itself, or None."""
    answers = report.answers
    if answers.of and answers.invalid / answers.of > max_invalid_share:
        return f"{answers.invalid} of {answers.of} trial answers are not what response_schema asks for"
    tried = report.size - report.lost
    missed = tried - report.done
    if tried and missed / tried > max_failed_share:
        return f"{missed} of {tried} trial items did not complete"
    if max_cost_pusd is not None and report.projected_pusd is not None:
        whole = report.projected_pusd + (report.trial_pusd or 0)
        if whole > max_cost_pusd:
            return "the projected cost is above max_cost_usd"
    return None
