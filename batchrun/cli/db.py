"""`batchrun db`."""

import time
from typing import TYPE_CHECKING

import click

from batchrun.cli.context import HELP, Context
from batchrun.cli.context import command as make_command
from batchrun.cli.say import emit, next_lines, put, say

if TYPE_CHECKING:
    from batchrun.ledger.move import Moved, Progress

SAID_EVERY_S = 2.0


@click.group(
    context_settings=HELP, help="\b\nExample:\n  batchrun db check\n\nCheck, upgrade or move the ledger's database."
)
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
        if found.closed:
            put(f"  closed  {found.closed}")
    return 0 if found.is_usable else 1


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


@make_command("batchrun db move --to postgresql://USER:PASSWORD@HOST/DATABASE")
@click.option("--to", "target", required=True, metavar="URL", help="Where to: an empty database, or a new SQLite file.")
def move(context: Context, target: str) -> int:
    """Move a SQLite ledger to another database, with all its jobs, also in the middle of them.

    Stop what works on it first. The old ledger is closed for good before the new one opens, and says where it went. If
    the move is interrupted after that, the same command finishes it.
    """
    from batchrun.ledger.move import is_sealed
    from batchrun.ledger.move import move as move_ledger
    from batchrun.runner.moving import clear_up

    address = context.settings().db
    if not is_sealed(address):
        with context.house() as house:
            clear_up(house.ledger, house.gear(), say=lambda text: say(context, text))
    telling = _Telling(context)
    try:
        moved = move_ledger(address, target, watch=telling)
    except BaseException:
        if telling.is_half_done:
            say(context, "the old ledger is closed already: the same command again goes on from here")
        raise
    _show(context, moved)
    return 0


class _Telling:
    """Tells a person how far the move is, not too often."""

    def __init__(self, context: Context) -> None:
        self.is_half_done = False
        self._context = context
        self._next_at = time.monotonic() + SAID_EVERY_S

    def __call__(self, progress: "Progress") -> None:
        if progress.step in ("ready", "sealed", "done"):
            self.is_half_done = progress.step == "sealed"
        elif progress.total and time.monotonic() >= self._next_at:
            self._next_at = time.monotonic() + SAID_EVERY_S
            say(self._context, f"{progress.step}: {progress.rows:,} of {progress.total:,} rows")


def _show(context: Context, moved: "Moved") -> None:
    rows, was_applied = moved.rows, moved.was_applied
    if context.json:
        values = {"ledger_id": moved.ledger_id, "from": moved.source, "to": moved.target, "rows": rows}
        emit("move", {**values, "took_s": round(moved.took_s, 3), "applied": was_applied})
        return
    if was_applied:
        noun = "job" if rows["jobs"] == 1 else "jobs"
        what = f"{rows['jobs']:,} {noun}, {rows['items']:,} items, {rows['answers']:,} answers in {moved.took_s:.1f} s"
        put(f"moved to {moved.target}: {what}; every row was compared")
        put("  the old ledger is closed for good, and no command uses it any more")
    else:
        put(f"moved to {moved.target} already")
    for line in next_lines([f"export BATCHRUN_DB={moved.target}", "batchrun ls"]):
        put(line)


command.add_command(check, "check")
command.add_command(upgrade, "upgrade")
command.add_command(move, "move")
