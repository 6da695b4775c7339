"""A terminal for tests: a pty with a `batchrun` process on it, and the screen that it would paint."""

import fcntl
import os
import pty
import re
import select
import struct
import sys
import termios
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from tests.lab import Lab

_SEQUENCE = re.compile(rb"\x1b\[(?P<private>\??)(?P<numbers>[\d;]*)(?P<final>[@-~])")
# Nothing of the terminal that the tests themselves run on.
PLAIN = {"TERM": "xterm-256color", "LC_ALL": "C.UTF-8"} | dict.fromkeys(
    ("NO_COLOR", "FORCE_COLOR", "CI", "COLUMNS", "LINES", "COLORTERM"), ""
)
COLOUR = range(30, 110)  # parameters of SGR that are colours; bold and dim are none


class Screen:
    """What a terminal shows. It breaks long lines, scrolls, and reflows as common ones do when made narrower."""

    def __init__(self, columns: int, rows: int) -> None:
        self.columns, self.rows = columns, rows
        self.lines = [""]  # all that was ever shown; the last `rows` of it are the screen
        self.row = self.column = 0
        self.has_cursor = True
        self.broken: list[str] = []  # lines that were wider than the terminal
        self.colours: set[int] = set()
        self.unknown: list[bytes] = []
        self._rest = b""

    @property
    def text(self) -> str:
        return "\n".join(line.rstrip() for line in self.lines).rstrip()

    def feed(self, data: bytes) -> None:
        """Take what was written."""
        data = self._rest + data
        at = 0
        while at < len(data):
            if data[at : at + 1] == b"\x1b":
                found = _SEQUENCE.match(data, at)
                if found is None:
                    break
                self._obey(found)
                at = found.end()
            else:
                end = data.find(b"\x1b", at)
                end = len(data) if end < 0 else end
                try:
                    text = data[at:end].decode()
                except UnicodeDecodeError as error:
                    if end < len(data) or error.end < end - at:
                        raise
                    end = at + error.start
                    text = data[at:end].decode()
                    self._print(text)
                    at = end
                    break
                self._print(text)
                at = end
        self._rest = data[at:]

    def resize(self, columns: int) -> None:
        """Become narrower or wider; lines that no longer fit are broken, and the cursor stays where it was."""
        above = self.lines[: self.row]
        cut = [_pieces(line.rstrip(), columns) for line in self.lines]
        self.row = sum(len(_pieces(line.rstrip(), columns)) for line in above)
        self.lines = [piece for pieces in cut for piece in pieces]
        self.columns = columns

    def _print(self, text: str) -> None:
        for character in text:
            if character == "\r":
                self.column = 0
            elif character == "\n":
                self._down()
            elif character == "\b":
                self.column = max(0, self.column - 1)
            elif character == "\x07":
                continue
            else:
                if self.column >= self.columns:
                    self.broken.append(self.lines[self.row])
                    self.column = 0
                    self._down()
                line = self.lines[self.row].ljust(self.column)
                self.lines[self.row] = line[: self.column] + character + line[self.column + 1 :]
                self.column += 1

    def _down(self) -> None:
        self.row += 1
        if self.row == len(self.lines):
            self.lines.append("")

    def _obey(self, found: "re.Match[bytes]") -> None:
        numbers = [int(number) for number in found["numbers"].split(b";") if number]
        count = numbers[0] if numbers else 1
        match found["private"] + found["final"]:
            case b"A":
                top = max(0, len(self.lines) - self.rows)
                self.row = max(top, self.row - count)
            case b"K":
                self.lines[self.row] = self.lines[self.row][: self.column]
            case b"J":
                self.lines[self.row] = self.lines[self.row][: self.column]
                del self.lines[self.row + 1 :]
            case b"m":
                self.colours |= {number for number in numbers if number in COLOUR}
            case b"?l" | b"?h" if numbers == [25]:
                self.has_cursor = found["final"] == b"h"
            case _:
                self.unknown.append(found[0])


def _pieces(line: str, columns: int) -> list[str]:
    return [line[start : start + columns] for start in range(0, len(line), columns)] or [""]


def take_terminal(then: Callable[[], None] | None) -> None:
    """Make the terminal this process' own: its keys are signals then. Opening it for writing alone does not do that."""
    os.close(os.open(os.ttyname(1), os.O_RDWR))
    if then is not None:
        then()


def has_more(fd: int, within_s: float) -> bool:
    """Say whether there is something to read, waiting for it a little."""
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    return bool(poll.poll(1_000 * within_s))


def take_keys() -> None:
    """Make the terminal this process' stdin too: it may ask then."""
    sys.stdin = open(os.ttyname(1))  # noqa: SIM115


class Terminal:
    """A process with a person before it. Its stdin is nobody's, so it asks no questions, unless it takes the keys."""

    def __init__(
        self,
        lab: Lab,
        arguments: tuple[str, ...],
        columns: int,
        rows: int,
        env: Mapping[str, str],
        before: Callable[[], None] | None,
    ) -> None:
        self.screen = Screen(columns, rows)
        self.written = b""
        self._hand, self._person = pty.openpty()
        self._size(columns, rows)
        self.run = lab.start(
            *arguments, env={**PLAIN, **env}, before=partial(take_terminal, before), on=Path(os.ttyname(self._person))
        )

    def _size(self, columns: int, rows: int) -> None:
        fcntl.ioctl(self._hand, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def resize(self, columns: int) -> None:
        """Make the window narrower or wider."""
        self.read()
        self.screen.resize(columns)
        self._size(columns, self.screen.rows)

    def press(self, keys: bytes) -> None:
        """Type something: `b"\\x03"` is Ctrl-C."""
        os.write(self._hand, keys)

    def read(self, within_s: float = 0.0) -> None:
        """Take what was written meanwhile."""
        while has_more(self._hand, within_s):
            within_s = 0.0
            data = os.read(self._hand, 1 << 16)
            self.written += data
            self.screen.feed(data)

    def until(self, holds: Callable[[str], object], what: str, *, timeout_s: float = 60.0) -> str:
        """Wait until the screen shows something, and return its text."""
        deadline = time.monotonic() + timeout_s
        while not holds(self.screen.text):
            assert time.monotonic() < deadline, f"waited in vain until {what}\n{self.screen.text}"
            is_over = not self.run.process.is_alive()
            self.read(0.02)
            assert not is_over or holds(self.screen.text), f"it ended before {what}\n{self.screen.text}"
        return self.screen.text

    def wait(self, timeout_s: float = 60.0) -> int:
        """Wait for the end and return the exit code, negative for a signal's."""
        deadline = time.monotonic() + timeout_s
        while self.run.process.is_alive():
            assert time.monotonic() < deadline, f"it does not end\n{self.screen.text}"
            self.read(0.02)
        self.read(0.02)
        return self.run.wait()

    def close(self) -> None:
        """Take the terminal away, and the process with it."""
        self.run.kill()
        self.run.process.join(60)
        os.close(self._hand)
        os.close(self._person)


@contextmanager
def terminal(
    lab: Lab,
    *arguments: str,
    columns: int = 80,
    rows: int = 30,
    env: Mapping[str, str] | None = None,
    before: Callable[[], None] | None = None,
) -> Iterator[Terminal]:
    """Run `batchrun ARGUMENTS...` on a terminal; `before` is called in its process first, and can be pickled."""
    opened = Terminal(lab, arguments, columns, rows, env or {}, before)
    try:
        yield opened
    finally:
        opened.close()
