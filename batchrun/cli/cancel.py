"""`batchrun cancel`."""

import click

from batchrun.cli.context import JOB, Context
from batchrun.cli.context import command as make_command
from batchrun.cli.say import emit
from batchrun.core.wording import several


@make_command("batchrun cancel batch-001")
@click.argument("job", type=JOB)
@click.option("--dry-run", is_flag=True, help="Say what would be cancelled.")
def command(context: Context, job: str, dry_run: bool) -> int:
    """Cancel what was not sent yet. Requests in flight finish, and every answer is kept."""
    from batchrun.runner.control import cancel, close_cancelled

    with context.house() as house:
        done = cancel(house.ledger, job, dry_run=dry_run)
        if not dry_run:
            close_cancelled(house.ledger, job, house.gear())
    if context.json:
        emit("cancel", {"job_id": job, "items": done.items, "applied": done.was_applied, "dry_run": dry_run})
        return 0
    verb = "would cancel" if dry_run else "cancelled"
    click.echo(
        f"{verb} {several(done.items, 'item')} of {job}: {done.in_flight} in flight finish, "
        f"{several(done.kept, 'answer')} kept"
    )
    click.echo(f"next:  batchrun status {job} | batchrun resume {job} --cancelled")
    return 0
