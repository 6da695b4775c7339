"""Live progress on stderr: a calm display on a terminal, one plain line every ten seconds elsewhere."""

import os
import sys
import time
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from batchrun.cli.context import Context
from batchrun.cli.say import dollars, duration

if TYPE_CHECKING:
    from batchrun.runner.progress import Progress

PLAIN_EVERY_S = 10.0
LIVE_EVERY_S = 0.2


class Live:
    """Shows progress while it is open. Call it with each new moment; it draws as often as is good."""

    def __init__(self, context: Context) -> None:
        wanted = not (context.quiet or context.no_progress or context.json)
        self._is_live = wanted and sys.stderr.isatty() and not os.environ.get("CI") and os.environ.get("TERM") != "dumb"
        self._is_plain = not self._is_live and not context.quiet
        self._display: Any = None
        self._next_at = 0.0 if self._is_live else time.monotonic() + PLAIN_EVERY_S

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.pause()

    def pause(self) -> None:
        """Take the display away, so that something can be said; the next moment draws it again."""
        display, self._display = self._display, None
        if display is not None:
            display.stop()

    def __call__(self, progress: "Progress") -> None:
        now = time.monotonic()
        if now < self._next_at:
            return
        if self._is_live:
            self._next_at = now + LIVE_EVERY_S
            self._draw(progress)
        elif self._is_plain:
            self._next_at = now + PLAIN_EVERY_S
            print(plain_line(progress), file=sys.stderr, flush=True)

    def _draw(self, progress: "Progress") -> None:
        from rich.console import Console
        from rich.constrain import Constrain
        from rich.live import Live as RichLive

        if self._display is None:
            console = Console(stderr=True, no_color=bool(os.environ.get("NO_COLOR")) or None)
            self._display = RichLive(console=console, transient=True, auto_refresh=False)
            self._display.start()
        # Never to the last column: the terminal's own "^C" there would break the line, and the display with it.
        columns = max(20, self._display.console.width - 3)
        self._display.update(Constrain(panel(progress, columns=columns), columns), refresh=True)


def panel(progress: "Progress", *, columns: int) -> Any:
    """Return the display, each line within `columns`: the bar, the counts, the rates, and what went wrong last."""
    from rich.console import Group
    from rich.progress_bar import ProgressBar
    from rich.table import Table
    from rich.text import Text

    done, total = progress.scope_done, progress.scope_total
    # Never 100 % while something is left.
    percent = 100 if done >= total else min(99, int(100 * done / total))
    name = f"{progress.task_id} {progress.phase}"
    told = f"{done:,}/{total:,}  {percent} %"
    bar = max(4, min(24, columns - len(name) - len(told) - 4))
    name = name[: max(1, columns - len(told) - bar - 4)]
    head = Table.grid(padding=(0, 2, 0, 0))
    head.add_row(
        Text(name, style="bold", no_wrap=True, overflow="ellipsis"),
        ProgressBar(total=max(1, total), completed=done, width=bar),
        Text(told, no_wrap=True),
    )
    lines: list[Any] = [head, _tally(progress), *_rates(progress, columns)]
    for label, text in (("waiting", progress.note), ("last failure", progress.last_failure)):
        if text:
            lines.append(Text(f"  {label}: {text}", no_wrap=True, overflow="ellipsis", style="yellow"))
    return Group(*lines)


def _tally(progress: "Progress") -> Any:
    from rich.text import Text

    counts = {state.value: count for state, count in progress.counts.items()}
    tally = Text("  ", no_wrap=True, overflow="ellipsis")
    for name, style in (("completed", "green"), ("failed", "red"), ("in_doubt", "yellow")):
        tally.append(f"{name.replace('_', ' ')} {counts[name]:,}   ", style=style if counts[name] else "dim")
    return tally.append(f"in flight {progress.in_flight}/{progress.concurrency}")


def _rates(progress: "Progress", columns: int) -> list[Any]:
    """Return the figures that are known, as many on a line as fit."""
    from rich.text import Text

    parts = []
    if progress.items_per_s is not None:
        parts.append(f"{progress.items_per_s:,.1f} items/s")
        parts.append(f"{progress.tokens_per_s or 0:,.0f} out tokens/s")
    if progress.left_s is not None:
        parts.append("left {} to {}".format(*map(duration, progress.left_s)))
    if progress.e2el_p50_s is not None:
        parts.append(f"p50 {duration(progress.e2el_p50_s)}, p95 {duration(progress.e2el_p95_s)}")
    if progress.spent_pusd:
        budget = f" of {dollars(progress.budget_pusd)}" if progress.budget_pusd else ""
        parts.append(f"cost {dollars(progress.spent_pusd)}{budget}")
    lines: list[str] = []
    for part in parts:
        if lines and len(lines[-1]) + 3 + len(part) <= columns:
            lines[-1] += f"   {part}"
        else:
            lines.append(f"  {part}")
    return [Text(line, no_wrap=True, overflow="ellipsis") for line in lines]


def plain_line(progress: "Progress") -> str:
    """Return one line of key=value."""
    counts = {state.value: count for state, count in progress.counts.items()}
    at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    words = [
        at,
        progress.task_id,
        f"phase={progress.phase}",
        f"{progress.scope_done}/{progress.scope_total}",
        f"completed={counts['completed']}",
        f"failed={counts['failed']}",
        f"in_doubt={counts['in_doubt']}",
        f"in_flight={progress.in_flight}",
    ]
    if progress.items_per_s is not None:
        words.append(f"rate={progress.items_per_s:.1f}/s")
    if progress.e2el_p95_s is not None:
        words.append(f"p95={progress.e2el_p95_s:.2f}s")
    if progress.spent_pusd:
        words.append(f"cost={progress.spent_pusd / 1e12:.4f}")
    if progress.left_s is not None:
        words.append(f"eta={progress.left_s[0]:.0f}-{progress.left_s[1]:.0f}s")
    if progress.note:
        words.append(f"waiting={progress.note!r}")
    return " ".join(words)
