"""`batchrun db`."""

import click

from batchrun.cli.context import HELP, Context
from batchrun.cli.context import command as make_command
from batchrun.cli.say import emit


@click.group(context_settings=HELP, help="\b\nExample:\n  batchrun db check\n\nCheck or upgrade the ledger's schema.")
def command() -> None:
    """Hold the commands together."""


@make_command("batchrun db check")
def check(context: Context) -> int:
    """Say where the ledger is, which schema it has, and whether its SQLite is sound."""
    from batchrun.ledger.inspection import inspect_ledger

    found = inspect_ledger(context.settings().db)
    if context.json:
        emit("ledger", found.__dict__)
    else:
        click.echo(f"{found.where}: schema {found.revision or 'none'} (this release: {found.known_revision})")
        click.echo(f"  {found.engine}, journal {found.journal}" if found.journal else f"  {found.engine}")
        for warning in found.warnings:
            click.echo(f"  warn  {warning}")
    return 0 if found.is_current else 1


@make_command("batchrun db upgrade")
def upgrade(context: Context) -> int:
    """Bring the ledger's schema to this release's, in one transaction. A current one is left alone."""
    from batchrun.ledger.inspection import upgrade_ledger

    where, before, after = upgrade_ledger(context.settings().db)
    if context.json:
        emit("upgrade", {"where": where, "before": before, "after": after, "applied": before != after})
    else:
        click.echo(f"{where}: schema {after}" + (" already" if before == after else f", was {before or 'empty'}"))
    return 0


command.add_command(check, "check")
command.add_command(upgrade, "upgrade")
