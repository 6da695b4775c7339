"""Performing a job with a person watching: the voice, the display, and what is printed at the end."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from batchrun.cli.context import Context
from batchrun.cli.live import Live
from batchrun.cli.say import ask, dollars, duration, emit, say
from batchrun.cli.standing import arrival_text, standing_json

if TYPE_CHECKING:
    from batchrun.ledger.jobs import Job
    from batchrun.ledger.liveness import Worker
    from batchrun.runner.drive import Arrival, Scope, Voice
    from batchrun.runner.trial import TrialReport
    from batchrun.wiring import House


def make_voice(context: Context, live: Live) -> "Voice":
    """Return what a drive speaks with on this command line."""
    from batchrun.runner.drive import Voice

    def tell(text: str) -> None:
        live.pause()
        say(context, text)

    def show_trial(report: "TrialReport") -> None:
        live.pause()
        for line in trial_text(report):
            say(context, line)

    def go_on(report: "TrialReport") -> bool:
        live.pause()
        if report.projected_pusd is None or report.left == 0:
            return True
        return ask(context, f"go on with {report.left:,} items for about {dollars(report.projected_pusd)}?")

    return Voice(watch=live, say=tell, show_trial=show_trial, go_on=go_on)


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
    from batchrun.runner.drive import Scope, drive

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
            click.echo(line)
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


def trial_text(report: "TrialReport") -> list[str]:
    """Return what a person can decide by."""
    from batchrun.core.states import ItemState

    counts = report.counts
    lines = [
        f"trial of {report.task_id}: {report.size} of {report.total:,} items -> {report.endpoint}",
        f"  completed {report.done}   failed {counts[ItemState.FAILED]}   in doubt {counts[ItemState.IN_DOUBT]}"
        f"     e2e p50 {duration(report.e2el_p50_s)}  max {duration(report.e2el_max_s)}"
        f"     {_tokens(report.prompt_tokens)} in / {_tokens(report.completion_tokens)} out tokens per item",
    ]
    for sample in report.samples:
        text = " ".join((sample.text or "(no text)").split())
        lines.append(f"  sample  {sample.custom_id}  {text[:80]!r}  finish_reason={sample.finish_reason}")
    if report.cut_by_limit:
        lines.append(f"  note    {report.cut_by_limit} of {report.size} stopped at max_tokens (finish_reason=length)")
    for cause in report.causes[:3]:
        lines.append(f"  {cause.state.value.replace('_', ' ')}  {cause.count} x {cause.cause}: {cause.sample_message}")
    if report.left:
        cost = "" if report.projected_pusd is None else f", cost about {dollars(report.projected_pusd)}"
        lines.append(f"full run: {report.left:,} items left, about {duration(report.projected_s)}{cost}")
        lines.append("  the trial's results are kept and not sent again")
    return lines


def _tokens(mean: float | None) -> str:
    return "?" if mean is None else f"{mean:,.0f}"
