"""What every command shares: the global options, the settings they lead to, and the house they open."""

import inspect
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from batchrun.ledger.ledger import Ledger
    from batchrun.settings import Origin, Settings
    from batchrun.wiring import House

Function = TypeVar("Function", bound=Callable[..., Any])
HELP = {"help_option_names": ["-h", "--help"], "max_content_width": 100}


@dataclass
class Context:
    """The global options of one call."""

    db: str | None = None
    broker: str | None = None
    env_file: str | None = None
    quiet: bool = False
    verbose: int = 0
    no_progress: bool = False
    yes: bool = False
    json: bool = False
    arguments: tuple[str, ...] = ()  # as they were given

    @classmethod
    def of(cls, arguments: Sequence[str]) -> "Context":
        """Make the context of a call; whether errors are to be JSON must be known before anything is parsed."""
        return cls(json="--json" in arguments, arguments=tuple(arguments))

    @property
    def is_terminal(self) -> bool:
        """True where a person can be asked: input and talk are both on a terminal, and nothing says otherwise."""
        return sys.stdin is not None and sys.stdin.isatty() and sys.stderr.isatty() and not os.environ.get("CI")

    def settings(self) -> "Settings":
        """Read the settings, flags on top."""
        from batchrun.settings import load_settings

        return load_settings(env_file=self.env_file, db=self.db, broker=self.broker)

    def origins(self) -> "dict[str, Origin]":
        """Say of every setting where it came from."""
        from batchrun.settings import origins

        return origins(env_file=self.env_file, db=self.db, broker=self.broker)

    @contextmanager
    def ledger(self) -> "Iterator[Ledger]":
        """Open the ledger alone, for commands that only look: without what performing needs they start quickly.

        Raises:
            JobNotFound: there is no ledger yet.
        """
        from batchrun.ledger.opening import open_ledger

        with open_ledger(self.settings()) as ledger:
            yield ledger

    @contextmanager
    def house(self, *, makes_ledger: bool = False) -> "Iterator[House]":
        """Open the ledger and all that belongs to it; only a command that registers jobs makes one.

        Raises:
            JobNotFound: there is no ledger yet.
        """
        from batchrun.wiring import open_house

        with open_house(self.settings(), makes_ledger=makes_ledger) as house:
            yield house


class JobName(click.ParamType[str]):
    """The name of a job; a shell completes it from the ledger, where there is one."""

    name = "job"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Take a job's name, or the path of its spec."""
        from batchrun.cli.names import job_named

        return job_named(str(value))

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> "list[click.shell_completion.CompletionItem]":
        from click.shell_completion import CompletionItem

        from batchrun.ledger.names import job_names

        if "/" in incomplete:
            return [CompletionItem(incomplete, type="file")]
        given = Context(db=_typed(ctx, "db"), env_file=_typed(ctx, "env_file"))
        try:
            return [CompletionItem(name) for name in job_names(given.settings().db, incomplete)]
        except Exception:  # while a word is completed nothing can be said: the command itself says what is wrong
            return []


JOB = JobName()


def _typed(ctx: click.Context | None, name: str) -> str | None:
    """Return a global option of a line that is being typed: it may stand before the command's name, or after."""
    while ctx is not None:
        if value := ctx.params.get(name):
            return str(value)
        ctx = ctx.parent
    return None


_OPTIONS = (
    click.option("--db", metavar="URL", help="The ledger (default sqlite:///.batchrun/ledger.db, or BATCHRUN_DB)."),
    click.option("--broker", metavar="URL", help="redis://...; without it everything runs in this process."),
    click.option("--env-file", metavar="FILE", help="Read variables from here instead of .env."),
    click.option("-q", "--quiet", is_flag=True, help="Say only what matters."),
    click.option("-v", "--verbose", count=True, help="Say more; twice shows tracebacks."),
    click.option("--no-progress", is_flag=True, help="No live display."),
    click.option("-y", "--yes", is_flag=True, help="Answer yes to every question."),
    click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout."),
)
SHARED_NAMES = ("db", "broker", "env_file", "quiet", "verbose", "no_progress", "yes", "as_json")


def global_options(function: Function) -> Function:
    """Give a command the global options; they may stand before or after the command's name."""

    @wraps(function)
    def take(*args: Any, **options: Any) -> Any:
        context: Context = click.get_current_context().obj
        for name in ("db", "broker", "env_file", "quiet", "verbose", "no_progress", "yes"):
            context.__dict__[name] = options.pop(name) or context.__dict__[name]
        context.json = options.pop("as_json") or context.json
        return function(*args, **options)

    for option in reversed(_OPTIONS):
        take = option(take)
    return take  # type: ignore[return-value]


class Command(click.Command):
    """A command whose help lists its own options first, and after them those that every command has."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        own: list[tuple[str, str]] = []
        shared: list[tuple[str, str]] = []
        for param in self.get_params(ctx):
            record = None if isinstance(param, click.Argument) else param.get_help_record(ctx)
            if record is not None:
                (shared if param.name in SHARED_NAMES or "--help" in param.opts else own).append(record)
        for title, records in (("Options", own), ("Options of every command", shared)):
            if records:
                with formatter.section(title):
                    formatter.write_dl(records)


def command(example: str) -> Callable[[Function], click.Command]:
    """Make a command whose help begins with an example, and which gets the context first."""

    def make(function: Function) -> click.Command:
        does = inspect.cleandoc(function.__doc__ or "")
        text = f"\b\nExample:\n  {example}\n\n{does}"
        shared = global_options(click.pass_obj(function))
        short = does.partition("\n")[0].rstrip(".")
        return click.command(cls=Command, context_settings=HELP, help=text, short_help=short)(shared)

    return make
