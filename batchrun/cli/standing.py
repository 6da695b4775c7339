"""Where a job stands, for scripts and for people."""

from typing import TYPE_CHECKING, Any

from batchrun.cli.say import dollars, duration, rfc3339

if TYPE_CHECKING:
    from batchrun.runner.drive import Arrival
    from batchrun.runner.standing import Standing


def standing_json(standing: "Standing") -> dict[str, Any]:
    """Return the object of `status --json`."""
    from batchrun.core.prices import usd
    from batchrun.core.states import AttemptState, ItemState

    job, attempts = standing.job, standing.attempts
    counts = {state.value: standing.counts[state] for state in ItemState}
    by_state = {state.value: attempts.by_state.get(state, 0) for state in AttemptState if state != AttemptState.INTENT}
    return {
        "job_id": job.task_id,
        "state": job.state.value,
        "reason": job.reason,
        "message": job.message,
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
            "certain_usd": usd(attempts.certain_pusd) if job.spec["price"] else None,
            "possible_usd": usd(attempts.possible_pusd) if job.spec["price"] else None,
            "certain_requests": attempts.certain_requests,
            "possible_requests": attempts.possible_requests,
        },
        "warnings": standing.warnings,
        "timing": {
            "e2el_p50_s": standing.e2el_p50_s,
            "e2el_p95_s": standing.e2el_p95_s,
            "items_per_s": standing.items_per_s,
            "elapsed_s": round(standing.elapsed_s, 3),
        },
        "holder": standing.holder,
        "output_file": job.spec["output_file"],
        "error_file": job.spec["error_file"],
        "created_at": rfc3339(job.created_at),
        "started_at": rfc3339(job.started_at),
        "ended_at": rfc3339(job.ended_at),
        "exit_code": standing.exit_code,
    }


def standing_text(standing: "Standing") -> list[str]:
    """Return what `status` prints: what is done, what it cost, and what to type next."""
    from batchrun.core.states import JobState

    job = standing.job
    head = f"{job.task_id} {job.state.value.replace('_', ' ')}"
    if job.state in (JobState.COMPLETED, JobState.CANCELLED):
        head += f" in {duration(standing.elapsed_s)}"
    lines = [f"{head}: {counts_text(standing)}"]
    if job.message and job.state is not JobState.COMPLETED:
        lines.append(f"  {job.reason}: {job.message}")
    if job.state is JobState.IN_PROGRESS and standing.holder is None:
        lines.append("  nobody is working on it")
    if standing.holder is not None:
        lines.append(f"  performed by {standing.holder['name']}, {standing.in_flight} in flight")
    lines += money_text(standing)
    lines += warning_text(standing)
    lines.append(f"next:  {' | '.join(next_commands(standing))}")
    return lines


def arrival_text(arrival: "Arrival") -> list[str]:
    """Return what a command prints when a job has come to its end, or has stopped on the way."""
    lines = standing_text(arrival.standing)
    if arrival.outputs is not None:
        out = arrival.outputs
        files = f"  output  {short(out.output)} ({out.output_lines:,} lines, input order)"
        if out.error_lines:
            files += f"   errors  {short(out.errors)} ({out.error_lines:,})"
        lines.insert(1, files)
    return lines


def short(path: object) -> str:
    """Write a path relative to the current folder where it lies below."""
    import os

    text = str(path)
    here = os.getcwd() + os.sep
    return text[len(here) :] if text.startswith(here) else text


def counts_text(standing: "Standing") -> str:
    """Return the item counts in one line; zero counts are left out but for the completed ones."""
    from batchrun.core.states import ItemState

    counts = standing.counts
    shown = [ItemState.COMPLETED] + [state for state in ItemState if state is not ItemState.COMPLETED and counts[state]]
    parts = [f"{counts[state]:,} {state.value.replace('_', ' ')}" for state in shown]
    return f"{', '.join(parts)} of {standing.job.total:,}"


def money_text(standing: "Standing") -> list[str]:
    """Return the line on cost and requests."""
    attempts, job = standing.attempts, standing.job
    if attempts.total == 0:
        return []
    per_item = attempts.sent / job.total if job.total else 0
    requests = f"requests {attempts.sent:,} ({per_item:.2f} per item)"
    doubtful = f", {attempts.possible_requests:,} possibly billed" if attempts.possible_requests else ""
    tokens = f"{attempts.prompt_tokens:,} in / {attempts.completion_tokens:,} out tokens"
    if not job.spec["price"]:
        return [f"  usage   {tokens}     {requests}{doubtful}"]
    possible = f", at most {dollars(attempts.possible_pusd)} in doubt" if attempts.possible_requests else ""
    return [f"  cost    {dollars(attempts.certain_pusd)} certain{possible}     {tokens}     {requests}{doubtful}"]


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
        f"  note    {count:,} {'answer' if count == 1 else 'answers'} {_WARNINGS.get(warning, warning)}"
        for warning, count in sorted(standing.warnings.items())
    ]


def next_commands(standing: "Standing") -> list[str]:
    """Return what a person would type next."""
    from batchrun.core.states import ItemState, JobState

    job, counts = standing.job, standing.counts
    name = job.task_id
    if job.state in (JobState.PAUSED, JobState.FINALIZING):
        return [f"batchrun resume {name}"] + ([f"batchrun failures {name}"] if counts[ItemState.FAILED] else [])
    if job.state in (JobState.IN_PROGRESS, JobState.CANCELLING):
        return [f"batchrun status {name} -w"] if standing.holder else [f"batchrun resume {name}"]
    following = []
    if counts[ItemState.FAILED]:
        following += [f"batchrun failures {name}", f"batchrun retry-failed {name}"]
    if counts[ItemState.IN_DOUBT]:
        following.append(f"batchrun reconcile {name}")
    if counts[ItemState.CANCELLED]:
        following.append(f"batchrun resume {name} --cancelled")
    return following or [f"batchrun export {name} -o FILE", f"batchrun show {name} ITEM"]
