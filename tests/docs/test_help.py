"""`--help` is quick, and of every command it begins with an example that is right."""

import os
import shlex
import statistics
import subprocess
import sys
from collections.abc import Iterator

import click
import pytest

from batchrun.cli.context import Context
from batchrun.cli.main import COMMANDS, cli

HEAVY = ("sqlalchemy", "alembic", "celery", "kombu", "redis", "openai", "httptools", "pydantic", "rich", "jinja2")


def open_context(command: click.Command, parent: click.Context | None, name: str) -> click.Context:
    return click.Context(command, parent=parent, info_name=name, obj=Context(), terminal_width=80)


def every_command() -> Iterator[tuple[str, click.Command, click.Context]]:
    top = open_context(cli, None, "batchrun")
    yield "batchrun", cli, top
    for name in COMMANDS:
        command = cli.get_command(top, name)
        assert command is not None
        context = open_context(command, top, name)
        yield f"batchrun {name}", command, context
        if isinstance(command, click.Group):
            for below in command.list_commands(context):
                inner = command.get_command(context, below)
                assert inner is not None
                yield f"batchrun {name} {below}", inner, open_context(inner, context, below)


EVERY = list(every_command())
NAMES = [name for name, _, _ in EVERY]


def example_of(help_text: str) -> str:
    """Return the example with which a help begins, after its usage line."""
    lines = [line.strip() for line in help_text.splitlines() if line.strip()]
    start = next(number for number, line in enumerate(lines) if line.startswith("Usage:"))
    after = lines[start + 1 :]
    while after and after[0] != "Example:" and after[0].startswith("["):
        after = after[1:]  # the usage line's second half
    assert after[0] == "Example:", help_text
    return after[1]


@pytest.mark.parametrize(("name", "command", "context"), EVERY, ids=NAMES)
def test_help_begins_with_an_example_that_parses(name: str, command: click.Command, context: click.Context) -> None:
    program, *arguments = shlex.split(example_of(command.get_help(context)))
    assert program == "batchrun"
    assert " ".join(["batchrun", *arguments]).startswith(name)
    parse(cli, arguments)


def parse(group: click.Group, arguments: list[str], parent: click.Context | None = None) -> None:
    """Parse a command line without running anything; a wrong one raises."""
    context = group.make_context("batchrun", list(arguments), parent=parent, obj=Context())
    name, command, rest = group.resolve_command(context, [*context._protected_args, *context.args])
    assert command is not None
    if isinstance(command, click.Group):
        parse(command, rest, context)
    else:
        command.make_context(name, rest, parent=context, obj=Context())


def test_an_example_that_does_not_parse_is_seen() -> None:
    with pytest.raises(click.UsageError):
        parse(cli, ["submit", "jobs/job.json", "--no-such-option"])


@pytest.mark.parametrize("width", [80, 100])
@pytest.mark.parametrize(("name", "command", "context"), EVERY, ids=NAMES)
def test_help_fits_the_terminal(name: str, command: click.Command, context: click.Context, width: int) -> None:
    context.terminal_width = width
    assert [line for line in command.get_help(context).splitlines() if len(line) > width] == []


def test_every_option_says_what_it_does() -> None:
    silent = [
        f"{name} {param.opts[0]}"
        for name, command, _ in EVERY
        for param in command.params
        if isinstance(param, click.Option) and not param.help
    ]
    assert silent == []


def test_help_imports_nothing_heavy(capsys: pytest.CaptureFixture[str]) -> None:
    look = "import sys; from batchrun.cli.main import run; run(['--help']); print(*sys.modules)"
    shown = subprocess.run([sys.executable, "-c", look], capture_output=True, text=True, check=True).stdout
    loaded = set(shown.splitlines()[-1].split())
    assert loaded & set(HEAVY) == set()
    with capsys.disabled():
        print(f"\nbatchrun --help: {1000 * statistics.median(cpu_s() for _ in range(5)):.0f} ms of CPU (limit 200)")


def cpu_s() -> float:
    """Return the CPU time of one `batchrun --help`, in seconds."""
    child = subprocess.Popen([sys.executable, "-m", "batchrun", "--help"], stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    assert child.returncode == 0
    return usage.ru_utime + usage.ru_stime
