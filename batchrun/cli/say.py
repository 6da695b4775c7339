"""How a command speaks: data on stdout, talk on stderr, one JSON object where JSON is wanted."""

import json
import re
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

import click

from batchrun.cli.context import Context
from batchrun.cli.streams import size_of
from batchrun.core.printable import columns_taken, visible
from batchrun.errors import Fault, UsageFault

SCHEMA = "batchrun/1"
_LABEL = re.compile(r"\s*\S+\s{2,}|\s+\S+ \S+\s{2,}")


def say(context: Context, text: str) -> None:
    """Tell the person something on stderr, unless they want quiet. No terminal obeys what others wrote in it."""
    if not context.quiet:
        with suppress(OSError):  # talk is for whoever listens: a closed pipe must not end a run
            click.echo(fold(visible(text), columns_of(sys.stderr)), err=True)


def put(text: str) -> None:
    """Print a line of what was asked for on stdout. No terminal obeys what others wrote in it."""
    click.echo(fold(visible(text), columns_of(sys.stdout)))


def put_whole(text: str) -> None:
    """Print a text of others on stdout as it is, unfolded, but for what a terminal would obey or hide."""
    click.echo(visible(text))


def columns_of(stream: Any) -> int | None:
    """Return how wide the terminal behind a stream is; None where there is none, and nothing is to be folded."""
    return size_of(stream).columns if stream is not None and stream.isatty() else None


def fold(text: str, columns: int | None) -> str:
    """Fold lines that a terminal would break anywhere: between words, each further line under the text of the first.

    The text begins after the label ("  sample    ...", at least two spaces), else two columns in.
    """
    return text if columns is None else "\n".join(_fold_line(line, columns) for line in text.split("\n"))


def _fold_line(line: str, columns: int) -> str:
    if columns_taken(line) <= columns:
        return line
    label = _LABEL.match(line)
    lead = len(line) - len(line.lstrip())
    indent = label.end() if label and label.end() < columns // 2 else lead + 2
    folded = [line[:lead]]
    for word in re.findall(r"\S+\s*", line[lead:]):
        if folded[-1].strip() and columns_taken(folded[-1] + word.rstrip()) > columns:
            folded[-1] = folded[-1].rstrip()
            folded.append(" " * indent)
        folded[-1] += word
    return "\n".join(folded).rstrip()


def next_lines(commands: Sequence[str]) -> list[str]:
    """Return what to type next, each command on a line of its own: a bar between them would be a shell's pipe."""
    return [f"{'next:  ' if number == 0 else '       '}{command}" for number, command in enumerate(commands)]


def emit(kind: str, values: Mapping[str, Any]) -> None:
    """Print a command's one JSON object."""
    click.echo(_dumped({"schema": SCHEMA, "kind": kind, **values}))


def _dumped(value: Mapping[str, Any]) -> str:
    """Write JSON for scripts that a terminal can show as well: what it would obey is escaped, and means the same."""
    return visible(json.dumps(value, ensure_ascii=False, default=str))


def say_error(
    context: Context,
    message: str,
    *,
    kind: str,
    exit_code: int,
    hint: str | None = None,
    faults: Sequence[Fault] = (),
    total: int = 0,
) -> None:
    """Say what is wrong, why, and what to type next; as JSON on stdout where that is wanted."""
    if context.json:
        error: dict[str, Any] = {"kind": kind, "message": message, "hint": hint, "exit_code": exit_code}
        if faults:
            error["faults"] = [{"where": fault.where, "what": fault.what, "hint": fault.hint} for fault in faults]
            error["total"] = total
        click.echo(_dumped({"schema": SCHEMA, "error": error}))
        return
    columns = columns_of(sys.stderr)
    for fault in faults:
        click.echo(fold(visible(f"  {fault}"), columns), err=True)
        click.echo(fold(visible(f"    hint: {fault.hint}"), columns), err=True)
    if total > len(faults):
        more = f"  ... and {total - len(faults):,} more: `batchrun validate` lists them with --max-errors {total}"
        click.echo(fold(more, columns), err=True)
    click.echo(fold(visible(f"error: {message}"), columns), err=True)
    if hint:
        click.echo(fold(visible(f"  try: {hint}"), columns), err=True)


def say_unexpected(context: Context, error: Exception) -> None:
    """Say that this is a fault of ours, without a traceback."""
    text = str(error).splitlines()[0] if str(error) else "no message"
    message = f"unexpected {type(error).__name__}: {text}"
    say_error(context, message, kind="unexpected", exit_code=1, hint="the same command with -vv shows the traceback")


def ask(context: Context, question: str) -> bool:
    """Ask a person on a terminal once; yes without asking where `-y` says so, or where nobody is there to ask."""
    if context.yes or not context.is_terminal:
        return True
    sys.stderr.flush()
    return click.confirm(question, default=True, err=True)


def ask_to_delete(context: Context, question: str, *, command: str) -> bool:
    """Ask before something is deleted for good. The answer is no unless it is given, by a person or by `-y`.

    Args:
        command: what was typed, without `-y`.

    Raises:
        UsageFault: nobody is there to ask.
    """
    if context.yes:
        return True
    if not context.is_terminal:
        raise UsageFault("this deletes for good, and there is nobody to ask", hint=f"{command} -y")
    sys.stderr.flush()
    return click.confirm(question, default=False, err=True)


def rfc3339(at: float | None) -> str | None:
    """Write a UTC unix time for JSON."""
    return (
        None
        if at is None
        else datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    )


def duration(seconds: float | None) -> str:
    """Write a duration for people."""
    if seconds is None:
        return "-"
    if seconds < 0.9995:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 60:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    minutes, rest = divmod(int(seconds + 0.5), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} m" if hours else f"{minutes} m {rest} s"


def dollars(pusd: int | None) -> str:
    """Write picodollars for people: cents for large sums, three digits for small ones."""
    if pusd is None:
        return "unknown"
    amount = pusd / 1e12
    if amount >= 1 or amount <= 0:
        return f"${amount:,.2f}"
    places = 2
    while places < 12 and amount * 10**places < 100:
        places += 1
    return f"${amount:.{places}f}"
