"""Performing a job with a person watching: the voice, the display, and what is printed at the end."""

import sys
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from batchrun.cli.context import Context
from batchrun.cli.live import Live
from batchrun.cli.logs import make_log
from batchrun.cli.say import ask, columns_of, emit, put, say
from batchrun.cli.standing import arrival_text, standing_json
from batchrun.cli.trial_report import COLUMNS, cost_range, trial_json, trial_text
from batchrun.core.wording import several

if TYPE_CHECKING:
    from batchrun.ledger.jobs import Job
    from batchrun.ledger.liveness import Worker
    from batchrun.runner.gear import Arrival, Scope, Voice
    from batchrun.runner.trial import TrialReport
    from batchrun.wiring import House


def make_voice(context: Context, live: Live) -> "Voice":
    """Return what a drive speaks with on this command line."""
    from batchrun.runner.gear import Voice

    write = make_log(context)

    def tell(text: str) -> None:
        live.pause()
        say(context, text)

    def log(event: str, /, **fields: object) -> None:
        live.pause()
        with suppress(OSError):  # a terminal that is gone must not end the run
            write(event, **fields)

    def show_trial(report: "TrialReport") -> None:
        live.pause()
        for line in trial_text(report, columns=columns_of(sys.stderr) or COLUMNS):
            say(context, line)

    def go_on(report: "TrialReport") -> bool:
        live.pause()
        if report.projected_pusd is None or report.left == 0:
            return True
        return ask(context, f"go on with {several(report.left, 'item')} for about {cost_range(report.projection)}?")

    def asks(job: "Job") -> bool:
        return context.is_terminal and not context.yes and job.spec["price"] is not None

    log = log if context.verbose else write
    return Voice(watch=live, say=tell, log=log, show_trial=show_trial, go_on=go_on, asks=asks)


def perform(
    context: Context,
    house: "House",
    task_id: str,
    *,
    worker: "Worker",
    scope: "Scope | None" = None,
    wait: bool = True,
    prepare: "Callable[[Job], None] | None" = None,
    is_followed: bool = True,
) -> "Arrival":
    """Take a job to its end with the display on: here, or with a broker by the workers of this ledger.

    Args:
        is_followed: stay until the job rests; without a broker it does not run otherwise.
    """
    from batchrun.runner.drive import drive
    from batchrun.runner.gear import Scope
    from batchrun.runner.handover import hand_over

    with Live(context) as live:
        gear, voice = house.gear(), make_voice(context, live)
        way: dict[str, Any] = {"gear": gear, "voice": voice, "worker": worker, "scope": scope or Scope.WHOLE}
        if house.settings.broker is None:
            return drive(house.ledger, task_id, wait=wait, prepare=prepare, **way)
        return hand_over(house.ledger, task_id, wait=wait, prepare=prepare, is_followed=is_followed, **way)


def warn_of_models(context: Context, house: "House", job: "Job") -> None:
    """Say it where an endpoint does not list what the job is about to ask it for; a look that fails says nothing."""
    from batchrun.ledger.trial import models_asked
    from batchrun.runner.models import ASKED_S, warnings_within

    with house.ledger.read() as connection:
        wanted = models_asked(connection, job.id)
    if not wanted:
        return
    asked = [
        (way.endpoint, [way.model or one if one == job.spec["model"] else one for one in wanted])
        for way in house.gear().ways_of(job)
    ]
    for warning in warnings_within(asked, within_s=ASKED_S):
        say(context, f"warn  {warning}\n      hint: correct the model, unless this endpoint takes other names too")


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
