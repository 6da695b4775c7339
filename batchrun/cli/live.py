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
        from rich.live import Live as RichLive

        if self._display is None:
            console = Console(stderr=True, no_color=bool(os.environ.get("NO_COLOR")) or None)
            self._display = RichLive(console=console, transient=True, auto_refresh=False)
            self._display.start()
        self._display.update(panel(progress), refresh=True)


def panel(progress: "Progress") -> Any:
    """Return the display: a bar, the counts, the rates, and what went wrong last."""
    from rich.console import Group
    from rich.progress_bar import ProgressBar
    from rich.table import Table
    from rich.text import Text

    counts = {state.value: count for state, count in progress.counts.items()}
    head = Table.grid(padding=(0, 1), expand=False)
    share = progress.scope_done / progress.scope_total if progress.scope_total else 0.0
    # Never 100 % while something is left.
    percent = 100 if progress.scope_done >= progress.scope_total else min(99, int(share * 100))
    head.add_row(
        Text(progress.task_id, style="bold"),
        Text(progress.phase),
        ProgressBar(total=max(1, progress.scope_total), completed=progress.scope_done, width=24),
        Text(f"{progress.scope_done:,}/{progress.scope_total:,}"),
        Text(f"{percent} %"),
        Text(_left(progress)),
    )
    tally = Text("  ")
    for name, style in (("completed", "green"), ("failed", "red"), ("in_doubt", "yellow")):
        tally.append(f"{name.replace('_', ' ')} {counts[name]:,}   ", style=style if counts[name] else "dim")
    tally.append(f"in flight {progress.in_flight}/{progress.concurrency}")
    if progress.items_per_s is not None:
        tally.append(f"   {progress.items_per_s:,.1f} items/s   {progress.tokens_per_s or 0:,.0f} out tok/s")
    lines: list[Any] = [head, tally]
    if progress.e2el_p50_s is not None:
        times = f"  e2e p50 {duration(progress.e2el_p50_s)}  p95 {duration(progress.e2el_p95_s)}"
        if progress.spent_pusd:
            budget = f" of {dollars(progress.budget_pusd)}" if progress.budget_pusd else ""
            times += f"   cost {dollars(progress.spent_pusd)}{budget}"
        lines.append(Text(times))
    for label, text in (("waiting", progress.note), ("last failure", progress.last_failure)):
        if text:
            lines.append(Text(f"  {label}: {text}", no_wrap=True, overflow="ellipsis", style="yellow"))
    return Group(*lines)


def _left(progress: "Progress") -> str:
    if progress.left_s is None:
        return ""
    low, high = progress.left_s
    return f"left {duration(low)} to {duration(high)}"


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
