"""The lines at the foot of a terminal that are drawn again and again in place.

The cursor rests below them and is never hidden, so no death of the process can lose it. A frame is one write, line over
line, so nothing flickers. Nothing is drawn where it would have to wait: a terminal that takes nothing must not stop a
run.
"""

import os
import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING, TextIO

from batchrun.cli.streams import can_take, size_of

if TYPE_CHECKING:
    from rich.text import Text

_ERASE_REST_OF_LINE, _ERASE_BELOW = "\x1b[K", "\x1b[J"


class Area:
    """The lines of one terminal. Whoever writes there otherwise calls `clear` first."""

    def __init__(self, stream: TextIO) -> None:
        from rich.console import Console

        self._stream = stream
        # What rich would find out of the environment is decided already, but for the colours.
        self._console = Console(
            file=stream,
            force_terminal=True,
            no_color=bool(os.environ.get("NO_COLOR")),
            legacy_windows=False,
        )
        self._was_stopped = False  # since the last frame
        self._drawn: list[int] = []  # how many columns each line on the screen takes
        self._frame = ""
        self._before = self._listen()

    @property
    def columns(self) -> int:
        """Columns to draw in: the last one is left free, where terminals differ in when they break a line."""
        return max(1, size_of(self._stream).columns - 1)

    @property
    def has_unicode(self) -> bool:
        return (self._console.encoding or "").lower().startswith("utf")

    def draw(self, lines: "Sequence[Text]") -> None:
        """Show these lines instead of the last ones. None may be wider than `columns`."""
        if not self._can_draw():
            return
        height = size_of(self._stream).lines
        lines = lines[: max(1, height - 1)]
        with self._console.capture() as capture:
            for line in lines:
                self._console.print(line, end=f"{_ERASE_REST_OF_LINE}\n", soft_wrap=True, highlight=False)
        frame = capture.get()
        sizes = [line.cell_len for line in lines]
        if frame == self._frame and self._rows(sizes) == len(lines):
            return
        with _undisturbed():
            self._write(f"{self._up()}{frame}{_ERASE_BELOW}")
            self._drawn, self._frame = sizes, frame

    def clear(self) -> None:
        """Take the lines away."""
        with _undisturbed():
            if self._drawn and self._is_foreground():
                self._write(self._up() + _ERASE_BELOW)
            self.forget()

    def forget(self) -> None:
        """Leave what is on the screen; the next lines are drawn below."""
        self._drawn, self._frame, self._was_stopped = [], "", False

    def close(self, *, leaves_lines: bool = False) -> None:
        """Draw no more: take the lines away, or leave the last ones where they are."""
        self.forget() if leaves_lines else self.clear()
        if self._before is not None:
            signal.signal(signal.SIGCONT, self._before)

    def _up(self) -> str:
        if self._was_stopped:
            self.forget()
        rows = min(self._rows(self._drawn), size_of(self._stream).lines - 1)
        return "\r" + (f"\x1b[{rows}A" if rows > 0 else "")

    def _rows(self, sizes: Sequence[int]) -> int:
        """Count the rows that lines take now: a terminal made narrower has broken those that were wider."""
        width = max(1, size_of(self._stream).columns)
        return sum(max(1, -(-size // width)) for size in sizes)

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()

    def _can_draw(self) -> bool:
        if not self._is_foreground():
            self.forget()  # the shell has the terminal, and writes where it likes
            return False
        return can_take(self._stream)

    def _is_foreground(self) -> bool:
        try:
            return os.tcgetpgrp(self._stream.fileno()) == os.getpgrp()
        except OSError:
            return True  # not this process' own terminal: nobody else has it in hand

    def _listen(self) -> "signal._HANDLER":
        """After a stop (Ctrl-Z) the shell has written below the lines: draw anew, and leave them."""
        if threading.current_thread() is not threading.main_thread():
            return None
        return signal.signal(signal.SIGCONT, self._continued)

    def _continued(self, _number: int, _frame: FrameType | None) -> None:
        self._was_stopped = True  # and no more: this may come in the middle of a frame


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Hold signals back for a moment: a Ctrl-C must not come between what is written and what is known of it."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGCONT))
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
