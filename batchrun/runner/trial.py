"""The trial: a few items for real, what they say about the rest, and the gate before the full run."""

import json
from collections.abc import Mapping
from dataclasses import dataclass

from batchrun.core.outcome import Usage
from batchrun.core.prices import Price, usage_cost_pusd
from batchrun.core.states import AttemptState, ItemState
from batchrun.core.stats import percentile
from batchrun.ledger.jobs import Job
from batchrun.ledger.ledger import Ledger
from batchrun.ledger.reports import CauseReport, causes, count_trial, report_attempts, trial_ids
from batchrun.ledger.results import Result, results_of

SHOWN = 3
OUR_OWN_DEATHS = ("worker_lost", "aborted")


@dataclass(frozen=True, slots=True)
class Sample:
    """One of the trial's answers, to be looked at."""

    custom_id: str
    text: str | None
    finish_reason: str | None


@dataclass(frozen=True, slots=True)
class TrialReport:
    """What the trial came to and what it projects. Tokens are means per completed item; None is not known."""

    task_id: str
    endpoint: str | None
    size: int
    counts: Mapping[ItemState, int]
    lost: int  # in doubt because a process of ours died: they say nothing about the endpoint
    total: int
    left: int  # items of the full run that are not tried yet
    e2el_p50_s: float | None
    e2el_max_s: float | None
    prompt_tokens: float | None
    completion_tokens: float | None
    cut_by_limit: int
    samples: list[Sample]
    causes: list[CauseReport]
    price: Price | None
    trial_pusd: int | None
    projected_pusd: int | None  # of the items left
    projected_s: float | None  # of the items left, at the job's concurrency

    @property
    def done(self) -> int:
        return self.counts[ItemState.COMPLETED]


def report_trial(ledger: Ledger, job: Job, *, price: Price | None) -> TrialReport:
    """Read what a job's trial came to, and project the rest from it."""
    with ledger.read() as connection:
        counts = count_trial(connection, job.id)
        rows = results_of(connection, job.id, trial_ids(connection, job.id))
        attempts = report_attempts(connection, job.id, trial_only=True)
        why = causes(connection, job.id)
    answered = [row for row in rows if row.attempt_state == AttemptState.ANSWERED]
    durations = [row.duration_s for row in answered if row.duration_s is not None]
    prompt = _mean([row.prompt_tokens for row in answered])
    completion = _mean([row.completion_tokens for row in answered])
    left = job.total - sum(counts.values())
    p50 = percentile(durations, 50)
    mean_s = sum(durations) / len(durations) if durations else None
    costs = [_cost(price, row) for row in answered]
    known = [cost for cost in costs if cost is not None]
    return TrialReport(
        task_id=job.task_id,
        endpoint=rows[0].endpoint if rows else None,
        size=sum(counts.values()),
        counts=counts,
        lost=sum(row.state == ItemState.IN_DOUBT and row.item_cause in OUR_OWN_DEATHS for row in rows),
        total=job.total,
        left=left,
        e2el_p50_s=p50,
        e2el_max_s=max(durations, default=None),
        prompt_tokens=prompt,
        completion_tokens=completion,
        cut_by_limit=sum(row.finish_reason == "length" for row in answered),
        samples=[_sample(row) for row in answered[:SHOWN]],
        causes=why,
        price=price,
        trial_pusd=attempts.certain_pusd if price else None,
        projected_pusd=round(sum(known) / len(known) * left) if known else None,
        projected_s=None if mean_s is None else mean_s * left / min(job.concurrency, max(1, left)),
    )


def gate(report: TrialReport, *, max_failed_share: float, max_cost_pusd: int | None) -> str | None:
    """Return why the full run must not follow by itself, or None."""
    tried = report.size - report.lost
    missed = tried - report.done
    if tried and missed / tried > max_failed_share:
        return f"{missed} of {tried} trial items did not complete"
    if max_cost_pusd is not None and report.projected_pusd is not None:
        whole = report.projected_pusd + (report.trial_pusd or 0)
        if whole > max_cost_pusd:
            return "the projected cost is above max_cost_usd"
    return None


def _cost(price: Price | None, row: Result) -> int | None:
    return usage_cost_pusd(price, Usage(row.prompt_tokens, row.completion_tokens))


def _mean(values: list[int | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def _sample(row: Result) -> Sample:
    return Sample(row.custom_id, answer_text(bytes(row.raw or b"")), row.finish_reason)


def answer_text(raw: bytes) -> str | None:
    """Return the text of an answer for people to look at; None where it has none."""
    try:
        body = json.loads(raw)
        choice = body["choices"][0]
        text = choice["message"]["content"] if "message" in choice else choice["text"]
    except (ValueError, LookupError, TypeError):
        return None
    return text if isinstance(text, str) else None
