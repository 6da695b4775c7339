"""Performing a job with a person watching: the voice, the display, and what is printed at the end."""

import sys
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from batchrun.cli.context import Context
from batchrun.cli.live import Live
from batchrun.cli.logs import make_log
from batchrun.cli.say import ask, columns_of, dollars, duration, emit, put, say
from batchrun.cli.standing import arrival_text, standing_json

if TYPE_CHECKING:
    from batchrun.ledger.jobs import Job
    from batchrun.ledger.liveness import Worker
    from batchrun.runner.gear import Arrival, Scope, Voice
    from batchrun.runner.progress import Progress
    from batchrun.runner.trial import TrialReport
    from batchrun.wiring import House

SAMPLE_COLUMNS = 72  # where no terminal says how wide it is


def make_voice(context: Context, live: Live) -> "Voice":
    """Return what a drive speaks with on this command line."""
    from batchrun.runner.gear import Voice

    def tell(text: str) -> None:
        with suppress(OSError):  # a terminal that is gone must not end the run
            live.pause()
            say(context, text)

    def watch(progress: "Progress") -> None:
        with suppress(OSError):
            live(progress)

    def show_trial(report: "TrialReport") -> None:
        live.pause()
        for line in trial_text(report, columns=columns_of(sys.stderr) or SAMPLE_COLUMNS):
            say(context, line)

    def go_on(report: "TrialReport") -> bool:
        live.pause()
        if report.projected_pusd is None or report.left == 0:
            return True
        return ask(context, f"go on with {report.left:,} items for about {dollars(report.projected_pusd)}?")

    return Voice(watch=watch, say=tell, log=make_log(context), show_trial=show_trial, go_on=go_on)


def perform(
    context: Context,
    house: "House",
    task_id: str,
    *,
    worker: "Worker",
    scope: "Scope | None" = None,
    wait: bool = True,
    prepare: "Callable[[Job], None] | None" = None,
) -> "Arrival":
    """Drive a job with the display on."""
    from batchrun.runner.drive import drive
    from batchrun.runner.gear import Scope

    with Live(context) as live:
        return drive(
            house.ledger,
            task_id,
            gear=house.gear(),
            voice=make_voice(context, live),
            worker=worker,
            scope=scope or Scope.WHOLE,
            wait=wait,
            prepare=prepare,
        )


def show_arrival(context: Context, arrival: "Arrival") -> int:
    """Print how a job ended and return the exit code."""
    if context.json:
        values: dict[str, Any] = standing_json(arrival.standing) | {"exit_code": arrival.exit_code}
        if arrival.trial is not None:
            values["trial_report"] = trial_json(arrival.trial)
        emit("job_status", values)
    else:
        for line in arrival_text(arrival):
            put(line)
    return arrival.exit_code


def trial_json(report: "TrialReport") -> dict[str, Any]:
    """Return a trial's report for scripts."""
    from batchrun.core.prices import usd

    return {
        "size": report.size,
        "counts": {state.value: count for state, count in report.counts.items()},
        "left": report.left,
        "e2el_p50_s": report.e2el_p50_s,
        "e2el_max_s": report.e2el_max_s,
        "prompt_tokens_mean": report.prompt_tokens,
        "completion_tokens_mean": report.completion_tokens,
        "cut_by_limit": report.cut_by_limit,
        "projected_usd": None if report.projected_pusd is None else usd(report.projected_pusd),
        "projected_s": report.projected_s,
    }


def trial_text(report: "TrialReport", *, columns: int = SAMPLE_COLUMNS) -> list[str]:
    """Return what a person can decide by. Sample answers are cut so that each is one line."""
    from batchrun.core.states import ItemState

    counts = report.counts
    tokens = f"{_tokens(report.prompt_tokens)} tokens in, {_tokens(report.completion_tokens)} out"
    lines = [
        f"trial of {report.task_id}: {report.size} of {report.total:,} items -> {report.endpoint}",
        f"  completed {report.done}   failed {counts[ItemState.FAILED]}   in doubt {counts[ItemState.IN_DOUBT]}",
        f"  per item  {duration(report.e2el_p50_s)} (p50), {duration(report.e2el_max_s)} at most; {tokens}",
    ]
    for sample in report.samples:
        reason = "" if sample.finish_reason == "stop" else f"  (finish_reason {sample.finish_reason})"
        head = f"  sample    {sample.custom_id}  "
        text = " ".join((sample.text or "(no text)").split())
        lines.append(head + _cut(text, max(20, columns - len(head) - len(reason))) + reason)
    if report.cut_by_limit:
        lines.append(f"  note      {report.cut_by_limit} of {report.size} stopped at max_tokens (finish_reason length)")
    for cause in report.causes[:3]:
        state = cause.state.value.replace("_", " ")
        lines.append(f"  {state:<8}  {cause.count} x {cause.cause}: {cause.sample_message}")
    if report.left:
        cost = "" if report.projected_pusd is None else f", cost about {dollars(report.projected_pusd)}"
        lines.append(f"full run: {report.left:,} items left, about {duration(report.projected_s)}{cost}")
        lines.append("  the trial's results are kept and not sent again")
    return lines


def _cut(text: str, columns: int) -> str:
    return text if len(text) <= columns else text[: columns - 3] + "..."


def _tokens(mean: float | None) -> str:
    return "?" if mean is None else f"{mean:,.0f}"
