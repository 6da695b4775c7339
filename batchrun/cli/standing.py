"""Where a job stands, for scripts and for people."""

from typing import TYPE_CHECKING, Any

from batchrun.cli.say import dollars, duration, next_lines, rfc3339
from batchrun.core.wording import several

if TYPE_CHECKING:
    from collections.abc import Mapping

    from batchrun.core.states import ItemState
    from batchrun.ledger.reports import AttemptReport
    from batchrun.runner.gear import Arrival
    from batchrun.runner.standing import Standing


def standing_json(standing: "Standing") -> dict[str, Any]:
    """Return the object of `status --json`."""
    from batchrun.core.prices import usd
    from batchrun.core.states import AttemptState, ItemState

    job, attempts = standing.job, standing.attempts
    price = job.spec["price"]
    counts = {state.value: standing.counts[state] for state in ItemState}
    by_state = {state.value: attempts.by_state.get(state, 0) for state in AttemptState if state.is_outcome}
    return {
        "job_id": job.task_id,
        "state": job.state.value,
        "reason": job.reason,
        "message": job.message,
        "hint": standing.mend,
        "phase": job.phase,
        "trial": job.trial_verdict,
        "on_unknown": job.on_unknown,
        "counts": {"total": job.total, **counts},
        "attempts": {"total": attempts.total, "open": attempts.open, "sent": attempts.sent, **by_state},
        "usage": {
            "prompt_tokens": attempts.prompt_tokens,
            "completion_tokens": attempts.completion_tokens,
            "answers_without_usage": attempts.without_usage,
        },
        "billing": {
            "certain_usd": usd(attempts.certain_pusd) if price else None,
            "possible_usd": usd(attempts.possible_pusd) if price and not attempts.unbounded else None,
            "certain_requests": attempts.certain_requests,
            "possible_requests": attempts.possible_requests,
        },
        "warnings": standing.warnings,
        "timing": {
            "e2el_p50_s": standing.e2el_p50_s,
            "e2el_p95_s": standing.e2el_p95_s,
            "items_per_s": standing.items_per_s,
            "tokens_per_s": standing.tokens_per_s,
            "active_s": round(standing.active_s, 3),
            "held_for_s": None if standing.held_for_s is None else round(standing.held_for_s, 3),
        },
        "concurrency": {
            "now": job.concurrency,
            "allowed": job.allowed.written,
            "changes": [{**change, "at": rfc3339(change["at"])} for change in standing.limits],
        },
        "holder": None if standing.holder is None else standing.holder | {"has_died": standing.has_died},
        "output_file": job.spec["output_file"],
        "error_file": job.spec["error_file"],
        "created_at": rfc3339(job.created_at),
        "started_at": rfc3339(job.started_at),
        "ended_at": rfc3339(job.ended_at),
        "purge_began_at": rfc3339(job.purge_began_at),
        "purged_at": rfc3339(job.purged_at),
        "exit_code": standing.exit_code,
    }


def standing_text(standing: "Standing") -> list[str]:
    """Return what `status` prints: what is done, what it cost, and what to type next."""
    lines = [_head(standing, _verb(standing)), *_written(standing)]
    return [*lines, *_details(standing), *next_lines(next_commands(standing))]


def arrival_text(arrival: "Arrival") -> list[str]:
    """Return what a command prints when a job has come to its end, or has stopped on the way."""
    from batchrun.runner.ends import EndKind

    standing, end = arrival.standing, arrival.end
    is_stopped = end is not None and end.signal is not None and end.kind is not EndKind.LEFT
    lines = [_head(standing, "stopped" if is_stopped else _verb(standing, worked_s=arrival.worked_s))]
    if (out := arrival.outputs) is not None:
        lines += _files(out.output, out.output_lines, out.errors, out.error_lines)
    else:
        lines += _written(standing)
    commands = [f"batchrun resume {standing.job.task_id}"] if is_stopped else next_commands(standing)
    return [*lines, *_details(standing), *next_lines(commands)]


def _written(standing: "Standing") -> list[str]:
    """Say where the outputs of a job that has ended are; nothing where they have been moved away."""
    import os

    from batchrun.core.states import ItemState, JobState

    job = standing.job
    output, errors = job.spec["output_file"], job.spec["error_file"]
    if job.state not in (JobState.COMPLETED, JobState.CANCELLED) or not os.path.exists(output):
        return []
    completed = standing.counts[ItemState.COMPLETED]
    return _files(output, completed, errors, job.total - completed)


def _files(output: object, output_lines: int, errors: object, error_lines: int) -> list[str]:
    if not output_lines and not error_lines:
        return []  # they are there, and empty: nothing has ended yet
    order = ", input order" if output_lines else ""
    lines = [f"  output    {short(output)} ({output_lines:,} {_plural('line', output_lines)}{order})"]
    if error_lines:
        lines.append(f"  errors    {short(errors)} ({error_lines:,} {_plural('line', error_lines)})")
    return lines


def _verb(standing: "Standing", *, worked_s: float | None = None) -> str:
    """Say how the job stands; of one that has ended, how long this run took, and all runs where there were others."""
    from batchrun.core.states import JobState

    verb = standing.job.state.value.replace("_", " ")
    has_ended = standing.job.state in (JobState.COMPLETED, JobState.CANCELLED)
    if not has_ended:
        return verb
    whole_s = standing.active_s
    if worked_s is None or whole_s - worked_s < max(0.5, whole_s / 20):
        return f"{verb} in {duration(whole_s)}"
    return f"{verb} in {duration(worked_s)}, {duration(whole_s)} with the runs before"


def _head(standing: "Standing", verb: str) -> str:
    return f"{standing.job.task_id} {verb}: {counts_text(standing)}"


def _details(standing: "Standing") -> list[str]:
    from batchrun.core.states import FINAL_JOB_STATES, JobState

    job = standing.job
    lines = []
    if job.message and job.state is not JobState.COMPLETED:
        lines.append(f"  {job.reason}: {job.message}")
    if standing.mend:
        lines.append(f"  do        {standing.mend}")
    if standing.held_for_s is not None:
        lines.append(f"  waiting   the endpoint asked for a pause: {duration(standing.held_for_s)} of it left")
    if job.state is JobState.IN_PROGRESS and not standing.is_worked_on and not standing.has_died:
        lines.append("  nobody works on it now; every answer is in the ledger")
    if standing.has_died:
        lines.append(f"  its process ({standing.performer}) has died; every answer is in the ledger")
    elif standing.slots and job.state in (JobState.IN_PROGRESS, JobState.CANCELLING):
        slots = f"{standing.slots} {_plural('slot', standing.slots)}"
        lines.append(f"  performed by workers with {slots}, {standing.in_flight} in flight")
    elif standing.is_worked_on and standing.holder is not None and job.state not in FINAL_JOB_STATES:
        lines.append(f"  performed by {standing.holder['name']}, {standing.in_flight} in flight")
        lines += _pace(standing)
    return [*lines, *_limit_text(standing), *money_text(standing), *warning_text(standing), *_purge_text(standing)]


def _limit_text(standing: "Standing") -> list[str]:
    """Say to how many requests at once an adaptive job has come, and why."""
    import time

    job = standing.job
    if job.climb is None:
        return []
    if not standing.limits:
        return [f"  at once   {job.concurrency:,} (of {job.allowed}): nothing has changed it yet"]
    last = standing.limits[-1]
    since = time.strftime("%H:%M:%S", time.localtime(last["at"]))
    return [f"  at once   {job.concurrency:,} (of {job.allowed}) since {since}: {last['message']}"]


def _purge_text(standing: "Standing") -> list[str]:
    """Say that the prompts and answers are gone, and since when."""
    from batchrun.runner.purged import purged_when

    job = standing.job
    if not job.is_purged:
        return []
    if job.purged_at is None:
        return [f"  purge     begun {purged_when(job)} and not ended: `batchrun purge {job.task_id}` goes on with it"]
    return [f"  purged    {purged_when(job)}: prompts and answers are deleted, counts and money kept"]


def _pace(standing: "Standing") -> list[str]:
    """Return how quick it is, as its process said last."""
    if standing.items_per_s is None or standing.e2el_p50_s is None:
        return []
    latency = f"p50 {duration(standing.e2el_p50_s)}, p95 {duration(standing.e2el_p95_s)}"
    return [f"  speed     {standing.items_per_s:,.1f} items/s, {standing.tokens_per_s or 0:,.0f} tokens/s; {latency}"]


def short(path: object) -> str:
    """Write a path relative to the current folder where it lies below."""
    import os

    text = str(path)
    here = os.getcwd() + os.sep
    return text[len(here) :] if text.startswith(here) else text


def counts_text(standing: "Standing") -> str:
    """Return the item counts in one line, with the job's total."""
    return f"{counted(standing.counts)} of {standing.job.total:,}"


def counted(counts: "Mapping[ItemState, int]") -> str:
    """Write item counts: first what has ended, then what is left. Zero counts but the completed ones are left out."""
    from batchrun.core.states import ItemState

    ended = [state for state in ItemState if state not in (ItemState.PENDING, ItemState.RUNNING)]
    order = [*ended, ItemState.RUNNING, ItemState.PENDING]
    shown = [state for state in order if counts[state] or state is ItemState.COMPLETED]
    return ", ".join(f"{counts[state]:,} {state.value.replace('_', ' ')}" for state in shown)


def _plural(noun: str, count: int) -> str:
    return noun if count == 1 else f"{noun}s"


def money_text(standing: "Standing") -> list[str]:
    """Return the lines on cost, requests and tokens."""
    attempts, job = standing.attempts, standing.job
    if attempts.total == 0:
        return []
    per_item = attempts.sent / job.total if job.total else 0
    doubtful = f", {attempts.possible_requests:,} possibly billed" if attempts.possible_requests else ""
    lines = [
        f"  requests  {attempts.sent:,} ({per_item:.2f} per item){doubtful}",
        f"  tokens    {attempts.prompt_tokens:,} in, {attempts.completion_tokens:,} out",
    ]
    if job.spec["price"]:
        lines.append(f"  cost      {cost_text(attempts)}")
    elif _may_cost(job.spec.get("resolved_base_url")):
        lines.append("  cost      unknown: the spec has no price")
    return lines


def _may_cost(base_url: str | None) -> bool:
    """Say whether requests to an address may cost something: those to one's own machines seldom do."""
    from batchrun.endpoint.address import is_local

    return base_url is not None and not is_local(base_url)


def cost_text(attempts: "AttemptReport", certain: str = "certain") -> str:
    """Write what requests of a job with prices cost: for certain, what it may be more, and what nobody can bound."""
    words = f"{dollars(attempts.certain_pusd)} {certain}"
    if attempts.possible_pusd:
        words += f", at most {dollars(attempts.possible_pusd)} {'in doubt' if attempts.possible_requests else 'more'}"
    return words + (
        f", and {several(attempts.unbounded, 'request')} whose cost nothing bounds" if attempts.unbounded else ""
    )


_WARNINGS = {
    "length": "cut by the token limit (finish_reason length): raise max_tokens",
    "length, empty": "empty: the whole token limit went on reasoning (finish_reason length): raise max_tokens",
    "empty": "empty",
    "content_filter": "cut by the provider's filter",
    "no_usage": "without usage: the token totals are partial",
}


def warning_text(standing: "Standing") -> list[str]:
    """Return a line for each kind of answer that is worth a look."""
    return [
        f"  note      {count:,} {_plural('answer', count)} {_WARNINGS.get(warning, warning)}"
        for warning, count in sorted(standing.warnings.items())
    ]


def next_commands(standing: "Standing") -> list[str]:
    """Return what a person would type next."""
    from batchrun.core.states import ItemState, JobState

    job, counts = standing.job, standing.counts
    name = job.task_id
    if job.state in (JobState.PAUSED, JobState.FINALIZING):
        going_on = standing.hint.command if standing.hint else f"batchrun resume {name}"
        return [going_on] + ([f"batchrun failures {name}"] if counts[ItemState.FAILED] else [])
    if job.state in (JobState.IN_PROGRESS, JobState.CANCELLING):
        is_performed = standing.is_worked_on
        return [f"batchrun status {name} -w" if is_performed else f"batchrun resume {name}"]
    if job.is_purged:
        if job.purged_at is None:
            return [f"batchrun purge {name}"]
        return [f"batchrun reconcile {name} --fail" if counts[ItemState.IN_DOUBT] else f"batchrun show {name} ITEM"]
    following = []
    if counts[ItemState.FAILED]:
        following += [f"batchrun failures {name}", f"batchrun retry-failed {name}"]
    if counts[ItemState.IN_DOUBT]:
        following.append(f"batchrun reconcile {name}")
    if counts[ItemState.CANCELLED]:
        following.append(f"batchrun resume {name} --cancelled")
    return following or [f"batchrun export {name} -o FILE", f"batchrun show {name} ITEM"]
