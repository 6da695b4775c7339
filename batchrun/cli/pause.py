"""`batchrun pause`."""

import click

from batchrun.cli.context import JOB, Context
from batchrun.cli.context import command as make_command
from batchrun.cli.say import emit, next_lines, put


@make_command("batchrun pause batch-001")
@click.argument("job", type=JOB)
@click.option("--dry-run", is_flag=True, help="Say what would happen.")
def command(context: Context, job: str, dry_run: bool) -> int:
    """Stop sending, from any terminal, within two seconds; requests in flight finish, and every answer is kept."""
    from batchrun.runner.control import pause

    with context.ledger() as ledger:
        done = pause(ledger, job, dry_run=dry_run)
    if context.json:
        emit("pause", {"job_id": job, "in_flight": done.in_flight, "applied": done.was_applied, "dry_run": dry_run})
        return 0
    verb = "would pause" if dry_run else "paused" if done.was_applied else "already paused:"
    flying = f"; {done.in_flight:,} in flight will finish" if done.in_flight else ""
    put(f"{verb} {job}{flying}")
    for line in next_lines([f"batchrun resume {job}"]):
        put(line)
    return 0
