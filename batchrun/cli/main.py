"""The command group: which commands there are, and how every end of a command becomes an exit code."""

import errno
import importlib
import logging
import os
import signal
import sys
import threading
import traceback
from collections.abc import Sequence
from types import FrameType
from typing import NoReturn

import click

from batchrun import __version__
from batchrun.cli.context import HELP, Context, global_options
from batchrun.cli.say import say_error, say_unexpected
from batchrun.errors import BatchrunError

# Name -> (module, what it does). The modules are imported when their command is called, so that --help is quick.
COMMANDS: dict[str, tuple[str, str]] = {
    "init": ("init", "Make a project: folders, a job, a sample input."),
    "demo": ("demo", "See it work offline: faults, a kill, a resume, and the proof."),
    "chaos": ("chaos", "Try to make it bill twice: kills, faults, resumes, a verdict."),
    "validate": ("validate", "Check a spec and its whole input, without network."),
    "doctor": ("doctor", "Look at all that a job needs: ok, warn or fail, each with its mend."),
    "trial": ("trial", "Try a few items for real; the results are kept."),
    "submit": ("submit", "Register a job, try it, and run it to the end."),
    "status": ("status", "Show where a job stands."),
    "ls": ("ls", "List the jobs of this ledger."),
    "resume": ("resume", "Go on after any interruption, pause or gate stop."),
    "failures": ("failures", "Group what failed by cause, with a hint for each."),
    "show": ("show", "Show one item with all its attempts."),
    "cost": ("cost", "Show what a job cost, by cause and by endpoint."),
    "retry-failed": ("retry_failed", "Send failed items again."),
    "revalidate": ("revalidate", "Judge stored answers by another schema; no request is made."),
    "reconcile": ("reconcile", "Settle items in doubt."),
    "pause": ("pause", "Stop sending for now; resume goes on."),
    "set": ("set", "Change a job's limits while it runs."),
    "cancel": ("cancel", "Cancel what was not sent yet."),
    "report": ("report", "Write a report of a job or a measurement, as a page, Markdown or a table."),
    "compare": ("compare", "Put two measurements or two jobs side by side, with their answers."),
    "diagnose": ("diagnose", "Say where a job or a measurement is slow, and what to try."),
    "export": ("export", "Write the outputs anew from the ledger."),
    "worker": ("worker", "Work on the jobs of a broker, with others."),
    "purge": ("purge", "Delete a job's prompts and answers; keep counts and money."),
    "bench": ("bench", "Measure an endpoint: latencies, throughput, goodput, load by load."),
    "mock-server": ("mock_server", "Serve a mock endpoint to try things against."),
    "db": ("db", "Check, upgrade or move the ledger's database."),
    "config": ("config", "Show every setting, and where its value came from."),
    "completion": ("completion", "Print the completion script of a shell."),
    "schema": ("schema", "Print JSON Schemas: of the spec, of every --json object."),
}


class LazyGroup(click.Group):
    """A group that imports a command's module only when that command is wanted."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"batchrun.cli.{COMMANDS[cmd_name][0]}")
        command: click.Command = module.command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            import difflib

            close = difflib.get_close_matches(args[0], COMMANDS, n=1)
            hint = f" Did you mean {close[0]!r}?" if close else " See batchrun --help."
            raise click.UsageError(f"No such command {args[0]!r}.{hint}", ctx)
        return super().resolve_command(ctx, args)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, does) for name, (_, does) in COMMANDS.items()])
        with formatter.section("Options of every command"):
            records = [param.get_help_record(ctx) for param in self.get_params(ctx)]
            formatter.write_dl([record for record in records if record is not None])


@click.command(
    cls=LazyGroup,
    context_settings=HELP,
    help="\b\nExample:\n  batchrun submit jobs/job.json\n\n"
    "Run a batch of prompts through any OpenAI-compatible endpoint, and never pay twice without being told.",
)
@click.version_option(__version__, "-V", "--version", prog_name="batchrun")
@global_options
def cli() -> None:
    """Hold the commands together."""


class Terminated(KeyboardInterrupt):
    """SIGTERM: it ends a command as Ctrl-C does, with its own exit code."""


def _terminate(number: int, frame: FrameType | None) -> NoReturn:
    raise Terminated


def _deliver_again(swallowed: "sys.UnraisableHookArgs") -> None:
    """Send a stop once more that was raised in a destructor or a weak reference's callback, where Python drops it."""
    if not issubclass(swallowed.exc_type, KeyboardInterrupt):
        sys.__unraisablehook__(swallowed)
        return
    number = signal.SIGTERM if issubclass(swallowed.exc_type, Terminated) else signal.SIGINT
    threading.Timer(0.01, os.kill, (os.getpid(), number)).start()


def _stopped(context: Context, stop: BaseException) -> int:
    exit_code = 143 if isinstance(stop, Terminated) or isinstance(stop.__cause__, Terminated) else 130
    if context.json:
        say_error(context, "stopped by a signal", kind="interrupted", exit_code=exit_code)
    return exit_code


def _show_usage(context: Context, error: click.ClickException) -> None:
    if not context.json:
        error.show()
        return
    where = error.ctx.command_path if isinstance(error, click.UsageError) and error.ctx else "batchrun"
    say_error(context, error.format_message(), kind="usage", exit_code=2, hint=f"{where} -h")


def _refused(context: Context, error: BatchrunError) -> int:
    from batchrun.cli.names import explained

    error = explained(context, error)
    say_error(
        context,
        error.message,
        kind=error.kind,
        exit_code=error.exit_code,
        hint=error.hint,
        faults=getattr(error, "faults", ()),
        total=getattr(error, "total", 0),
    )
    return error.exit_code


def run(arguments: Sequence[str]) -> int:
    """Run one command and return its exit code (UX.md). Deliberate errors are said in words, never as a traceback."""
    logging.basicConfig(level=logging.WARNING, handlers=[logging.NullHandler()])
    signal.signal(signal.SIGTERM, _terminate)
    sys.unraisablehook = _deliver_again
    context = Context.of(arguments)
    try:
        code = cli.main(list(arguments), prog_name="batchrun", standalone_mode=False, obj=context)
        sys.stdout.flush()  # what cannot be written is said here, and not by the interpreter on its way out
        return code if isinstance(code, int) else 0
    except click.exceptions.Exit as end:
        return end.exit_code
    except click.ClickException as error:
        _show_usage(context, error)
        return 2
    except (click.Abort, KeyboardInterrupt) as stop:
        return _stopped(context, stop)
    except BatchrunError as error:
        return _refused(context, error)
    except Exception as error:
        if isinstance(error, OSError) and error.filename is None and error.errno in _STDOUT_TROUBLE:
            return _without_stdout(error)
        if context.verbose >= 2:
            traceback.print_exc()
        say_unexpected(context, error)
        return 1


_STDOUT_TROUBLE = (errno.EPIPE, errno.EIO, errno.ENOSPC)


def _without_stdout(error: OSError) -> int:
    """End quietly where nobody reads any more (a closed pipe, a terminal gone); say it where the disk is full."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    if error.errno != errno.ENOSPC:
        return 0
    click.echo(f"error: stdout cannot be written: {error.strerror}", err=True)
    return 1
