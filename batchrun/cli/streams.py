"""What a standard stream is, and whether it takes something now."""

import os
import select
from contextlib import suppress
from typing import TextIO

COLUMNS, ROWS = 80, 24  # of a terminal that does not say


def takes_a_display(stream: TextIO | None) -> bool:
    """Say whether lines can be drawn over and over on a stream: a terminal that can do it, with a person before it."""
    is_terminal = stream is not None and stream.isatty()
    return is_terminal and not os.environ.get("CI") and os.environ.get("TERM") not in ("dumb", "unknown")


def can_take(stream: TextIO) -> bool:
    """Say whether a line can be written without waiting: a reader that reads nothing must not stop a run."""
    poll = select.poll()
    try:
        poll.register(stream.fileno(), select.POLLOUT)
        return bool(poll.poll(0))
    except (OSError, ValueError):
        return True  # what is wrong with it, writing will say


def size_of(stream: TextIO) -> os.terminal_size:
    """Return the columns and rows of the terminal behind a stream; COLUMNS and LINES are believed first."""
    columns, rows = (int(value) if value.isdecimal() else 0 for value in map(_variable, ("COLUMNS", "LINES")))
    if not (columns and rows):
        seen = os.terminal_size((0, 0))
        with suppress(OSError, ValueError):
            seen = os.get_terminal_size(stream.fileno())
        columns, rows = columns or seen.columns or COLUMNS, rows or seen.lines or ROWS
    return os.terminal_size((columns, rows))


def _variable(name: str) -> str:
    return os.environ.get(name, "")
