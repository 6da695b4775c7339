"""The trial: a few items for real, what they say about the rest, and the gate before the full run."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal

from batchrun.core.prices import PUSD, Price, amount_text, usd
from batchrun.core.projection import Estimate, project, project_share
from batchrun.core.states import ItemState
from batchrun.core.stats import percentile
from batchrun.ledger.jobs import Job
from batchrun.ledger.ledger import Ledger
from batchrun.ledger.reports import (
    AttemptReport,
    CauseReport,
    causes,
    count_trial,
    report_attempts,
    trial_ids,
)
from batchrun.ledger.trial import Tried, count_lengths, trial_setbacks, tried_items
from batchrun.runner.advice import THROTTLED, Change, what_to_change
from batchrun.runner.strata import parts_of, strata_of
from batchrun.runner.trial_answers import Answers, Measured, read_answers

OUR_OWN_DEATHS = ("worker_lost", "aborted")


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
    most_at_once: int  # what the job may still find to be worth it
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
        ids = trial_ids(connection, job.id)
        attempts = report_attempts(connection, job.id, trial_only=True)
        stopped = [one for one in causes(connection, job.id) if one.state is not ItemState.REJECTED]
        setbacks = trial_setbacks(connection, job.id)
        tried = tried_items(connection, job.id)
        left = count_lengths(connection, job.id, left_only=True)
        lengths = count_lengths(connection, job.id) if left else {}
    answers = read_answers(ledger, job.id, ids)
    size = sum(counts.values())
    return TrialReport(
        task_id=job.task_id,
        endpoint=answers.endpoint,
        concurrency=job.concurrency,
        most_at_once=job.allowed.high,
        size=size,
        counts=counts,
        lost=sum(_is_lost(one) for one in tried),
        total=job.total,
        answers=answers,
        causes=stopped,
        setbacks=setbacks,
        attempts=attempts,
        price=price,
        projection=_project(job, answers, tried, left, lengths, price=price),
        changes=what_to_change(job, answers, stopped, setbacks, tried=size, is_priced=price is not None),
    )


def _is_lost(one: Tried) -> bool:
    """Say whether an item is in doubt for a reason of ours: it says nothing about the endpoint."""
    return one.state is ItemState.IN_DOUBT and one.cause in OUR_OWN_DEATHS


def _project(
    job: Job,
    answers: Answers,
    tried: Sequence[Tried],
    left: Mapping[int, int],
    lengths: Mapping[int, int],
    *,
    price: Price | None,
) -> Projection:
    items = sum(left.values())
    if not items:
        return Projection(0, None, None, None, None, None)
    strata = strata_of(job.spec["trial"], lengths)

    def of(value: Callable[[Measured], float | None]) -> Estimate | None:
        told = [(one.length, found) for one in answers.measured if (found := value(one)) is not None]
        return project(parts_of(strata, left, told))

    judged = [one for one in tried if not _is_lost(one)]
    duration = of(lambda one: one.duration_s)
    missed = [(one.length, float(one.state is not ItemState.COMPLETED)) for one in judged]
    is_known = price is not None and (price.is_free or not any(one.unbounded for one in judged))
    costs = [(one.length, one.cost_pusd) for one in judged] if is_known else []
    return Projection(
        items=items,
        duration_s=None if duration is None else duration.times(1 / min(job.concurrency, items)),
        prompt_tokens=of(lambda one: one.prompt_tokens),
        completion_tokens=of(lambda one: one.completion_tokens),
        cost_pusd=project(parts_of(strata, left, costs)),
        missed_share=project_share(
            [
                (part.count, len(part.seen), int(sum(hit for _, hit in part.seen)))
                for part in parts_of(strata, left, missed)
            ]
        ),
    )


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
    cost = report.projection.cost_pusd
    if max_cost_pusd is not None and cost is not None:
        spent = report.attempts.certain_pusd + report.attempts.possible_pusd
        if spent + cost.expected > max_cost_pusd:
            limit, whole = usd(max_cost_pusd), _dollars(spent + cost.expected)
            return f"the whole job is projected to cost ${whole}, which is above max_cost_usd ({limit})"
    return None


def _dollars(pusd: float) -> str:
    """Write a projected amount with three digits: it is known no better."""
    return amount_text(Decimal(f"{pusd / PUSD:.3g}"))
