"""Live progress: a calm display at the foot of a terminal, one plain line every ten seconds elsewhere."""

import sys
import time
from contextlib import suppress
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, Self, TextIO

from batchrun.cli.context import Context
from batchrun.cli.streams import can_take, takes_a_display

if TYPE_CHECKING:
    from batchrun.cli.area import Area
    from batchrun.runner.progress import Progress
    from batchrun.runner.tally import Failure

PLAIN_EVERY_S = 10.0
LIVE_EVERY_S = 0.2
REMARK_S = 3.0  # a remark stays so long, to be read
SOON_S = 0.5  # a check that is over by then is not worth a display


class Live:
    """Shows progress while it is open. Call it with each new moment; it draws as often as is good."""

    def __init__(self, context: Context, *, lines_to: TextIO | None = None, is_looking_on: bool = False) -> None:
        """Make it ready; nothing is written yet.

        Args:
            is_looking_on: whoever stops looking keeps the last moment on the screen: no closing words follow.
            lines_to: where plain lines are what was asked for, and no talk: there they go, the first one at once.
        """
        is_wanted = not (context.quiet or context.no_progress or context.json)
        self._is_live = lines_to is None and is_wanted and takes_a_display(sys.stderr)
        self._is_plain = lines_to is not None or not (self._is_live or context.quiet or sys.stderr is None)
        self._lines_to = lines_to
        self._is_looking_on = is_looking_on
        self._area: Area | None = None
        self._phase: str | None = None
        self._born = time.monotonic()
        self._failure: Failure | None = None  # what is shown as the last one
        self._failure_until = 0.0
        self._note: str | None = None
        self._note_until = 0.0
        self._next_at = 0.0 if self._is_live or lines_to is not None else time.monotonic() + PLAIN_EVERY_S

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        area, self._area = self._area, None
        if area is not None:
            with suppress(OSError):  # a terminal that is gone must not end the run
                is_left = kind is not None and issubclass(kind, KeyboardInterrupt)
                area.close(leaves_lines=self._is_looking_on and is_left)

    def pause(self) -> None:
        """Take the display away, so that something can be said; the next moment draws it again."""
        if self._area is not None:
            with suppress(OSError):
                self._area.clear()

    def __call__(self, progress: "Progress") -> None:
        now = time.monotonic()
        is_new = self._is_live and progress.phase != self._phase
        if (now < self._next_at and not is_new) or (progress.phase == "validating" and now < self._born + SOON_S):
            return
        self._phase = progress.phase
        if self._is_live:
            self._next_at = now + LIVE_EVERY_S
            self._draw(progress)
        elif self._is_plain:
            self._next_at = now + PLAIN_EVERY_S
            self._print(plain_line(progress))

    def _draw(self, progress: "Progress") -> None:
        from batchrun.cli.area import Area
        from batchrun.cli.panel import panel

        if self._area is None:
            self._area = Area(sys.stderr)
        area = self._area
        progress = self._steady(progress)
        with suppress(OSError):
            area.draw(panel(progress, columns=area.columns, has_unicode=area.has_unicode))

    def _steady(self, progress: "Progress") -> "Progress":
        """Let a remark stand for a while: what comes and goes several times a second, nobody can read."""
        now = time.monotonic()
        if progress.last_failure != self._failure and now >= self._failure_until:
            self._failure, self._failure_until = progress.last_failure, now + REMARK_S
        if progress.note is not None:
            self._note, self._note_until = progress.note, now + REMARK_S
        elif now >= self._note_until:
            self._note = None
        return replace(progress, last_failure=self._failure, note=self._note)

    def _print(self, line: str) -> None:
        if self._lines_to is not None:
            print(line, file=self._lines_to, flush=True)
        elif can_take(sys.stderr):
            with suppress(OSError):
                print(line, file=sys.stderr, flush=True)


def show_checking(live: Live, where: str, read_bytes: int, whole_bytes: int) -> None:
    """Show how far the check of a spec's input is."""
    from batchrun.runner.progress import Progress

    note = "checking every line before the first request"
    live(Progress(where, "validating", whole_bytes, read_bytes, unit="bytes", note=note))


def show_registering(live: Live, task_id: str, written: int, total: int) -> None:
    """Show how many of a job's items stand in the ledger."""
    from batchrun.runner.progress import Progress

    live(Progress(task_id, "validating", total, written, note="writing the items to the ledger"))


def plain_line(progress: "Progress") -> str:
    """Return one line of key=value."""
    from batchrun.core.printable import one_line

    at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    words = [at, progress.task_id, f"phase={progress.phase}"]
    if progress.scope_total:
        words.append(f"done={progress.scope_done}/{progress.scope_total}")
        words += [f"unit={progress.unit}"] if progress.unit != "items" else []
    if progress.counts:
        counts = {state.value: count for state, count in progress.counts.items()}
        words += [f"{state}={counts[state]}" for state in ("completed", "failed", "in_doubt")]
        words.append(f"in_flight={progress.in_flight}")
    if progress.items_per_s is not None:
        words += [f"rate={progress.items_per_s:.1f}/s", f"tokens={progress.tokens_per_s or 0:.0f}/s"]
    if progress.e2el_p50_s is not None and progress.e2el_p95_s is not None:
        words += [f"p50={progress.e2el_p50_s:.2f}s", f"p95={progress.e2el_p95_s:.2f}s"]
    if progress.spent_pusd is not None and progress.counts:
        words.append(f"cost={progress.spent_pusd / 1e12:.4f}")
    if progress.budget_pusd is not None and progress.counts:
        words.append(f"budget={progress.budget_pusd / 1e12:.2f}")
    if progress.left_s is not None:
        words.append(f"left={progress.left_s[0]:.0f}-{progress.left_s[1]:.0f}s")
    if progress.note:
        words.append(f"{'waiting' if progress.phase == 'waiting' else 'note'}={one_line(progress.note)!r}")
    if progress.last_failure is not None:
        failure = progress.last_failure
        words.append(f"last_failure={one_line(f'{failure.custom_id}: {failure.message}')!r}")
    return " ".join(words)
