"""`batchrun demo`: the main job offline, with faults, a kill, a resume, and the proof from the endpoint's own log."""

import os
import shutil
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from batchrun.cli.context import Context
from batchrun.cli.context import command as make_command
from batchrun.cli.say import emit
from batchrun.cli.stage import kept_apart
from batchrun.errors import UsageFault

if TYPE_CHECKING:
    from batchrun.cli.proof import Check
    from batchrun.cli.tour import Tour


@make_command("batchrun demo")
@click.option(
    "--items", default=300, show_default=True, type=click.IntRange(40, 100_000), metavar="N", help="Items in the job."
)
@click.option("--keep", is_flag=True, help="Make the folder here, and keep it.")
def command(context: Context, items: int, keep: bool) -> int:
    """See it work offline: a mock endpoint with faults, a kill -9 in the middle, a resume, and the proof.

    The proof is held against the endpoint's own log: was any item billed twice? Exit 7 if the promise was broken.
    """
    from batchrun.cli.tour import Tour

    if context.db or context.broker:
        raise UsageFault(
            "the demo has a ledger of its own: --db and --broker do not go with it", hint="batchrun demo, without them"
        )
    began = time.monotonic()
    with kept_apart("demo", keep=keep) as folder:
        tour = Tour(context, folder.path, items)
        checks = tour.run()
        folder.is_kept = keep or not all(check.holds for check in checks)
        return close(tour, checks, kept=folder.is_kept, elapsed_s=time.monotonic() - began)


def close(tour: "Tour", checks: "list[Check]", *, kept: bool, elapsed_s: float) -> int:
    """Give the verdict, and say what comes next; return the exit code."""
    broken = [check for check in checks if not check.holds]
    if tour.context.json:
        values = {"ok": not broken, "items": tour.items, **tour.facts}
        emit("demo", values | {"folder": str(tour.folder) if kept else None, "elapsed_s": round(elapsed_s, 3)})
        return 7 if broken else 0
    click.echo("")
    if broken:
        click.echo(f"verdict: BROKEN: {'; '.join(f'{check.claim} ({check.seen})' for check in broken)}")
        click.echo(f"  the evidence is kept in {tour.folder}; please report it")
        return 7
    click.echo(f"verdict: no silent second bill ({len(checks)} checks, {elapsed_s:.0f} s)")
    if kept:
        click.echo(f"  kept in {tour.folder}: try `batchrun show demo {tour.ids[0]}` there")
    for line in _next_steps():
        tour.say(line)
    return 0


def _next_steps() -> list[str]:
    """Return what to do with one's own endpoint."""
    lines = ["", "next, with an endpoint of your own:"]
    activate = Path(sys.prefix) / "bin" / "activate"
    if shutil.which("batchrun") is None and activate.is_file():
        shown = os.path.relpath(activate) if activate.is_relative_to(Path.cwd()) else str(activate)
        lines.append(f"  . {shown}")
    return [
        *lines,
        "  export OPENAI_BASE_URL=http://127.0.0.1:8000/v1   # any OpenAI-compatible one",
        "  export OPENAI_API_KEY=...                         # a local one needs none",
        "  batchrun submit jobs/job.json                     # your model, your input",
    ]
