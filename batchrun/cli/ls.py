"""`batchrun ls`."""

from contextlib import suppress

import click

from batchrun.cli.context import Context
from batchrun.cli.context import command as make_command
from batchrun.cli.say import emit, put, rfc3339
from batchrun.cli.standing import counted
from batchrun.errors import JobNotFound


@make_command("batchrun ls")
def command(context: Context) -> int:
    """List the jobs of this ledger, the latest first."""
    from batchrun.core.states import ItemState
    from batchrun.runner.standing import list_standings

    listed = []
    with suppress(JobNotFound), context.ledger() as ledger:
        listed = list_standings(ledger)
    if context.json:
        jobs = [
            {
                "job_id": job.task_id,
                "state": job.state.value,
                "reason": job.reason,
                "counts": {"total": job.total, **{state.value: counts[state] for state in ItemState}},
                "created_at": rfc3339(job.created_at),
                "ended_at": rfc3339(job.ended_at),
                "purged_at": rfc3339(job.purged_at),
            }
            for job, counts in listed
        ]
        emit("job_list", {"jobs": jobs})
        return 0
    if not listed:
        click.echo("no jobs yet\nnext:  batchrun submit jobs/job.json")
        return 0
    width = max(len(job.task_id) for job, _ in listed)
    for job, counts in listed:
        state = job.state.value.replace("_", " ")
        purged = ", contents purged" if job.is_purged else ""
        put(f"{job.task_id:<{width}}  {state:<11}  {job.total:>9,} items  {counted(counts)}{purged}")
    return 0
