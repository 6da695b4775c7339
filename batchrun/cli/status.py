"""`batchrun status`."""

import sys
import time
from typing import TYPE_CHECKING

import click

from batchrun.cli.context import JOB, Context
from batchrun.cli.context import command as make_command
from batchrun.cli.live import Live
from batchrun.cli.say import emit, put
from batchrun.cli.standing import standing_json, standing_text

if TYPE_CHECKING:
    from batchrun.ledger.ledger import Ledger

LOOK_EVERY_S = 1.0


@make_command("batchrun status batch-001 -w")
@click.argument("job", type=JOB, required=False)
@click.option("-w", "--watch", is_flag=True, help="Follow until the job ends or stops.")
@click.option("--exit-status", is_flag=True, help="Exit with the job's own code; 8 while it is not finished.")
def command(context: Context, job: str | None, watch: bool, exit_status: bool) -> int:
    """Show where a job stands: counts, attempts, cost, and what to type next. Without a name: the latest job.

    With -w a terminal shows the display of the run itself until the job ends or stops, and what was printed there at
    the end. Ctrl-C stops looking, and not the job; the last moment stays on the screen. Into a pipe go plain lines,
    with --json one object a second.
    """
    from batchrun.runner.standing import latest_job, read_standing

    with context.ledger() as ledger:
        name = job or latest_job(ledger)
        if watch:
            _follow(context, ledger, name)
        standing = read_standing(ledger, name)
    if context.json:
        emit("job_status", standing_json(standing))
    else:
        for line in standing_text(standing):
            put(line)
    return standing.exit_code if exit_status else 0


def _follow(context: Context, ledger: "Ledger", name: str) -> None:
    """Show the job's progress until nobody works on it any more."""
    from batchrun.runner.onlooker import Onlooker
    from batchrun.runner.standing import read_standing

    onlooker = Onlooker(ledger, name)
    is_piped = not (context.json or context.quiet or sys.stdout.isatty())
    with Live(context, lines_to=sys.stdout if is_piped else None, is_looking_on=True) as live:
        while True:
            began = time.monotonic()
            progress = onlooker.look()
            if progress is None:
                return
            if context.json:
                emit("job_status", standing_json(read_standing(ledger, name)))
            else:
                live(progress)
            # A ledger that takes long to be read is not asked all the time.
            time.sleep(max(LOOK_EVERY_S, 4 * (time.monotonic() - began)))
