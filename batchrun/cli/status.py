"""`batchrun status`."""

import time

import click

from batchrun.cli.context import Context
from batchrun.cli.context import command as make_command
from batchrun.cli.live import Live
from batchrun.cli.say import emit, put
from batchrun.cli.standing import standing_json, standing_text

WATCH_EVERY_S = 1.0


@make_command("batchrun status batch-001 -w")
@click.argument("job", required=False)
@click.option("-w", "--watch", is_flag=True, help="Follow until the job ends or stops.")
@click.option("--exit-status", is_flag=True, help="Exit with the job's own code; 8 while it is not finished.")
def command(context: Context, job: str | None, watch: bool, exit_status: bool) -> int:
    """Show where a job stands: counts, attempts, cost, and what to type next. Without a name: the latest job."""
    from batchrun.runner.progress import progress_of
    from batchrun.runner.standing import latest_job, read_standing

    with context.ledger() as ledger:
        name = job or latest_job(ledger)
        standing = read_standing(ledger, name)
        with Live(context) as live:
            while watch and standing.is_under_way:
                if context.json:
                    emit("job_status", standing_json(standing))
                live(progress_of(standing, phase="following"))
                time.sleep(WATCH_EVERY_S)
                standing = read_standing(ledger, name)
    if context.json:
        emit("job_status", standing_json(standing))
    else:
        for line in standing_text(standing):
            put(line)
    return standing.exit_code if exit_status else 0
