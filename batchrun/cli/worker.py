"""`batchrun worker`: a process that works, and one that starts it anew when it dies or stands still."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from batchrun.cli.context import Context
from batchrun.cli.context import command as make_command
from batchrun.cli.logs import make_log

if TYPE_CHECKING:
    from batchrun.runner.gear import Voice


@make_command("batchrun worker -c 64")
@click.option(
    "-c", "--concurrency", type=click.IntRange(1, 10_000), default=64, show_default=True, metavar="N",
    help="Requests of this worker in flight at once, at the most.",
)  # fmt: skip
@click.option("-n", "--name", metavar="NAME", help="A label for this worker (default: host and process number).")
@click.option(
    "--drain-timeout", type=click.FloatRange(min=0), metavar="SECONDS",
    help="How long SIGTERM waits for what is in flight (default: the job's timeout_s).",
)  # fmt: skip
@click.option("--heartbeat-file", type=click.Path(path_type=Path), metavar="FILE", help="Touched while it works.")
@click.option("--alone", is_flag=True, hidden=True, help="Work in this very process, without a supervisor.")
@click.option("--leash", type=int, hidden=True, help="A pipe's end that closes with the supervisor.")
def command(
    context: Context,
    concurrency: int,
    name: str | None,
    drain_timeout: float | None,
    heartbeat_file: Path | None,
    alone: bool,
    leash: int | None,
) -> int:
    """Work on the jobs that were submitted with the same BATCHRUN_BROKER and BATCHRUN_DB.

    Start as many as you like, on any number of hosts. SIGTERM finishes what is in flight, takes nothing new and leaves.
    """
    if not alone:
        return _supervise(context, drain_timeout=drain_timeout, heartbeat_file=heartbeat_file)
    from batchrun.runner.crew import work

    settings = context.settings()
    changes = {"worker_name": name, "drain_timeout_s": drain_timeout}
    settings = settings.model_copy(update={key: value for key, value in changes.items() if value is not None})
    from batchrun.wiring import open_house

    with open_house(settings, makes_ledger=True) as house:
        queue = house.broker_queue()
        return work(
            house.ledger,
            house.gear(),
            queue,
            _voice(context, settings.worker_name),
            slots=concurrency,
            heartbeat_file=heartbeat_file,
            leash=leash,
        )


def _voice(context: Context, name: str | None) -> "Voice":
    """Return a voice without a person: what is worth a word goes to stderr, one line each."""
    import time

    from batchrun.runner.gear import Voice

    label = f" {name}" if name else ""

    def say(text: str) -> None:
        if not context.quiet:
            print(f"{time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime())}{label} {text}", file=sys.stderr, flush=True)

    return Voice(
        watch=lambda progress: None,
        say=say,
        log=make_log(context),
        show_trial=lambda report: None,
        go_on=lambda report: True,
        asks=lambda job: False,
    )


def _supervise(context: Context, *, drain_timeout: float | None, heartbeat_file: Path | None) -> int:
    from batchrun.cli.supervisor import Supervisor

    context.settings()  # what is wrong with them is said once, and not by every child
    given = context.arguments
    at = given.index("worker") + 1
    return Supervisor(
        [sys.executable, "-m", "batchrun", *given[:at], "--alone", *given[at:]],
        heartbeat_file=heartbeat_file,
        drain_s=drain_timeout,
    ).run()
