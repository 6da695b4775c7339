"""An ordinary job as a measurement: the ledger knows every request's times, so a report needs nothing else.

Times are those of the ledger: the claim, the send, the first byte and the end. First tokens are known only where a
measurement streamed the answers; a job's percentiles are therefore of whole answers, and of the answered requests
alone: a request that was turned away and sent again is a retry, and failures are counted beside them.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import PurePath
from typing import Any

from batchrun import __version__
from batchrun.core.measuring.document import Arrivals, Event, Group, Measurement, Run, Setup, Workload, time_text
from batchrun.core.measuring.figures import Figures, answered_only
from batchrun.core.measuring.timings import Measured
from batchrun.core.states import AttemptState, ItemState
from batchrun.ledger.events import read_events
from batchrun.ledger.jobs import Job, find_job
from batchrun.ledger.ledger import Ledger
from batchrun.ledger.measured import requests_of
from batchrun.ledger.reports import AttemptReport, count_items, report_attempts, warnings
from batchrun.runner.failures import FailureGroup, group_failures
from batchrun.runner.receipt import Receipt, read_receipt

MOST_REQUESTS = 200_000  # read one by one; of larger jobs every n-th item
EVENTS_TOLD = 50
BROKEN_SHARE = 0.9  # of the time between first and last request: below it the job lay still in between


@dataclass(frozen=True, slots=True)
class JobFacts:
    """What the ledger knows of a job beyond its requests' times."""

    job: Job
    counts: dict[ItemState, int]
    attempts: AttemptReport
    warnings: dict[str, int]  # of answers: cut, empty, filtered, without usage
    failures: Sequence[FailureGroup]
    receipt: Receipt
    base_urls: tuple[str, ...]
    mean_again_s: float | None  # from a failed request's end until its item was sent again
    sampled_every: int  # 1: every item's requests were read


def read_job(ledger: Ledger, task_id: str) -> tuple[Measurement, JobFacts]:
    """Read a job as a measurement of one run.

    Raises:
        JobNotFound: there is no such job.
    """
    with ledger.read() as connection:
        job = find_job(connection, task_id)
        counts, told = count_items(connection, job.id), report_attempts(connection, job.id)
        warned = warnings(connection, job.id)
        events = read_events(connection, job.id, latest=EVENTS_TOLD)
        every = max(1, -(-told.total // MOST_REQUESTS))
        seen = requests_of(connection, job.id, max_tokens=job.spec.get("max_tokens"), every=every)
    began_at, requests = seen.began_at, seen.requests
    receipt = read_receipt(ledger, task_id)
    facts = JobFacts(
        job=job,
        counts=counts,
        attempts=told,
        warnings=warned,
        failures=group_failures(ledger, task_id).groups,
        receipt=receipt,
        base_urls=tuple(receipt.by_endpoint),
        mean_again_s=_mean_again_s(requests),
        sampled_every=every,
    )
    return _measurement(facts, requests, began_at or job.started_at or job.created_at, events), facts


def _measurement(
    facts: JobFacts, requests: tuple[Measured, ...], began_at: float, events: Sequence[dict[str, Any]]
) -> Measurement:
    job, spec = facts.job, facts.job.spec
    figures = _whole(answered_only(requests), facts)
    model, base_url = str(spec.get("model")), facts.base_urls[0] if facts.base_urls else str(spec.get("base_url") or "")
    limit = spec.get("max_tokens")
    group = Group(
        name=job.task_id,
        base_url=base_url,
        model=model,
        endpoint=str(spec.get("endpoint") or ""),
        params=dict(spec.get("params") or {}),
    )
    run = Run(
        group=group.name,
        round_no=1,
        level=job.concurrency,
        max_tokens=limit,
        started_at=_time(began_at),
        duration_s=figures.duration_s,
        figures=figures,
        steady=None,
        requests=requests,
        events=tuple(Event(one["at"] - began_at, one["kind"], _detail(one["detail"])) for one in events),
        warnings=_doubts(facts),
    )
    setup = Setup(
        groups=(group,),
        workload=Workload(
            name=PurePath(str(spec.get("input_file") or job.task_id)).name,
            requests=job.total,
            max_tokens=(limit,) if limit else (),
            seed=group.params.get("seed"),
        ),
        arrivals=Arrivals(kind="job", levels=(job.concurrency,)),
        versions={"batchrun": __version__},
    )
    made_at = job.ended_at or (began_at + figures.duration_s)
    return Measurement(id=job.task_id, made_at=_time(made_at), setup=setup, runs=(run,))


def _whole(figures: Figures, facts: JobFacts) -> Figures:
    """Put exact counts in the place of a sample's, and leave out the time in which the job lay still."""
    answered = facts.attempts.by_state.get(AttemptState.ANSWERED, 0)
    requests = facts.attempts.total - facts.attempts.open if facts.sampled_every > 1 else figures.requests
    prompts, outputs = (
        (facts.attempts.prompt_tokens, facts.attempts.completion_tokens)
        if facts.sampled_every > 1
        else (figures.prompt_tokens, figures.output_tokens)
    )
    duration_s = figures.duration_s
    if 0 < facts.job.active_s < BROKEN_SHARE * duration_s:
        duration_s = facts.job.active_s

    def rate(amount: float | None) -> float | None:
        return None if amount is None or duration_s <= 0 else amount / duration_s

    completed = answered if facts.sampled_every > 1 else figures.completed
    return replace(
        figures,
        duration_s=duration_s,
        requests=requests,
        completed=completed,
        failed=requests - completed,
        success_rate=completed / requests if requests else None,
        prompt_tokens=prompts,
        output_tokens=outputs,
        request_throughput=rate(completed),
        output_throughput=rate(outputs),
        total_token_throughput=rate(None if prompts is None or outputs is None else prompts + outputs),
    )


def _mean_again_s(requests: Sequence[Measured]) -> float | None:
    """Return the mean time from a request's end until the next one of its item was sent."""
    ended_s: dict[str, float] = {}
    gaps = []
    for one in requests:  # in order of send
        if one.sent_s is None:
            continue
        if one.name in ended_s:
            gaps.append(max(0.0, one.sent_s - ended_s[one.name]))
        ended_s[one.name] = one.ended_s
    return sum(gaps) / len(gaps) if gaps else None


def _doubts(facts: JobFacts) -> tuple[str, ...]:
    found = []
    if facts.sampled_every > 1:
        found.append(f"latencies are those of every {facts.sampled_every}th item; counts, tokens and cost are of all")
    if facts.attempts.without_usage:
        found.append(
            f"{facts.attempts.without_usage:,} answers do not say how many tokens they have: totals are partial"
        )
    return tuple(found)


def _detail(detail: Any) -> str | None:
    if not isinstance(detail, dict):
        return None
    return ", ".join(f"{name} {value}" for name, value in detail.items() if not isinstance(value, dict | list)) or None


def _time(at: float) -> str:
    return time_text(datetime.fromtimestamp(at, UTC))
