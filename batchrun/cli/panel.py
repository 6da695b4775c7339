"""What the live display says: how far a job is, in lines that keep their places while the figures change."""

import textwrap
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from batchrun.cli.say import dollars, duration

if TYPE_CHECKING:
    from rich.text import Text

    from batchrun.runner.progress import Progress

PHASE_COLUMNS = len("validating")  # the longest name of a phase: the bar keeps its place when the phase changes
LONGEST_BAR, SHORTEST_BAR = 40, 6
LABEL = 9  # columns of a figure's label and the space behind it
PLACES = ((2, 44, 77, 110), (2, 44), (2,))  # where figures begin: four on a line, two, or one
NARROW = 36  # below, only what matters most
SILENT_S = 10.0
MOST_LINES = 2  # of one message

Figure = tuple[str, list[str]]  # its label, and its values


def panel(progress: "Progress", *, columns: int, has_unicode: bool = True) -> "list[Text]":
    """Return the display's lines, none wider than `columns`."""
    lines = [*_head(progress, columns, has_unicode), *_tally(progress, columns), *_figures(progress, columns)]
    if columns >= NARROW:
        lines += _remarks(progress, columns)
    for line in lines:
        line.truncate(columns, overflow="ellipsis")
    return lines


# -- how far ----------------------------------------------------------------------------------------------------------


def _head(progress: "Progress", columns: int, has_unicode: bool) -> "Iterator[Text]":
    """The name, the phase, a bar and how far it is; on two lines where one is too short."""
    from rich.text import Text

    from batchrun.core.printable import clip, one_line

    told = _how_far(progress)
    name = one_line(progress.task_id)
    room = columns - PHASE_COLUMNS - len(told) - SHORTEST_BAR - 5
    if room < 8:
        yield Text(clip(f"{name} {progress.phase}", columns), style="bold")
        if told:
            bar = columns - len(told) - 4
            yield _bar(progress, bar, has_unicode).append(f"  {told}") if bar >= SHORTEST_BAR else Text(told.strip())
        return
    name = clip(name, room)
    head = Text(f"{name} {progress.phase:<{PHASE_COLUMNS}}", style="bold")
    if told:
        bar = min(LONGEST_BAR, columns - head.cell_len - len(told) - 4)
        head.append_text(_bar(progress, bar, has_unicode))
        head.append(f"  {told}", style="not bold")
    yield head


def _bar(progress: "Progress", columns: int, has_unicode: bool) -> "Text":
    from rich.text import Text

    full, empty = "━─" if has_unicode else "#-"
    done = columns * progress.scope_done // progress.scope_total
    done = min(columns - 1, max(done, 1 if progress.scope_done else 0))
    return Text.assemble("  ", (full * done, "green"), (empty * (columns - done), "bright_black not bold"))


def _how_far(progress: "Progress") -> str:
    if progress.percent is None:
        return ""
    done, total = f"{progress.scope_done:,}", f"{progress.scope_total:,}"
    if progress.unit == "bytes":
        done, total = f"{progress.scope_done / 1e6:,.1f}", f"{progress.scope_total / 1e6:,.1f}"
    unit = {"bytes": " MB", "lines": " lines"}.get(progress.unit, "")
    return f"{progress.percent:>2} %  {done:>{len(total)}}/{total}{unit}"


def _tally(progress: "Progress", columns: int) -> "Iterator[Text]":
    """The counts, each in a place as wide as it can become."""
    from rich.text import Text

    counts = {state.value: count for state, count in progress.counts.items()}
    if not counts:
        return
    most = f"{sum(counts.values()):,}"
    parts, widths = [], []
    for state, style in _STATES.items():
        if counts[state] or state in ("completed", "failed", "in_doubt"):
            name = state.replace("_", " ")
            parts.append(Text(f"{name} {counts[state]:,}", style=style if counts[state] else "dim"))
            widths.append(len(f"{name} {most}"))
    if progress.phase != "finalizing":
        parts.append(Text(f"in flight {progress.in_flight}/{progress.concurrency}"))
        widths.append(parts[-1].cell_len)
    gap = "   " if 2 + sum(widths) + 3 * (len(widths) - 1) <= columns else "  "
    if 2 + sum(widths) + len(gap) * (len(widths) - 1) <= columns:
        for part, width in zip(parts[:-1], widths[:-1], strict=True):
            part.pad_right(width - part.cell_len)
    yield from _flow(parts, columns, gap=gap)


_STATES = {"completed": "green", "failed": "red", "in_doubt": "yellow", "rejected": "red", "cancelled": ""}


def _flow(parts: "Iterable[Text]", columns: int, *, gap: str) -> "Iterator[Text]":
    """Put as many parts on each line as fit."""
    from rich.text import Text

    indent = "  " if columns >= NARROW else ""
    line = Text(indent)
    for part in parts:
        if line.cell_len > len(indent):
            if line.cell_len + len(gap) + part.cell_len <= columns:
                line.append(gap)
            else:
                yield line
                line = Text(indent)
        line.append_text(part)
    yield line


# -- figures ----------------------------------------------------------------------------------------------------------


def _figures(progress: "Progress", columns: int) -> "Iterator[Text]":
    """Speed, latency, cost and the time left, in columns where they fit."""
    from rich.text import Text

    figures = list(_measured(progress))
    if columns < NARROW:
        yield from (Text(f"left {value[0]}" if label == "left" else value[0]) for label, value in figures)
        return
    for places in PLACES:
        cells = [f"{label:<{LABEL}}{', '.join(values)}" for label, values in figures]
        if len(places) == 1 or _fit(cells, places, columns):
            break
    if len(places) == 1:
        for label, values in figures:
            yield from _stacked(label, values, columns)
        return
    for start in range(0, len(cells), len(places)):
        line = ""
        for place, cell in zip(places, cells[start : start + len(places)], strict=False):
            line = f"{line:<{place}}{cell}"
        yield Text(line)


def _fit(cells: list[str], places: tuple[int, ...], columns: int) -> bool:
    ends = [*(place - 2 for place in places[1:]), columns]
    return (
        all(places[number % len(places)] + len(cell) <= ends[number % len(places)] for number, cell in enumerate(cells))
        and columns >= places[-1] + LABEL
    )


def _stacked(label: str, values: list[str], columns: int) -> "Iterator[Text]":
    """A figure on a line of its own; its values one below the other where they do not fit beside each other."""
    from rich.text import Text

    whole = ", ".join(values)
    rows = [whole] if 2 + LABEL + len(whole) <= columns else values
    for number, row in enumerate(rows):
        yield Text(f"  {label if number == 0 else '':<{LABEL}}{row}")


def _measured(progress: "Progress") -> Iterator[Figure]:
    """Yield the figures that this phase has; what was not measured is a dash, and keeps its place."""
    if progress.phase in ("trial", "running", "waiting", "draining"):
        yield "speed", _speed(progress)
        p50_s, p95_s = progress.e2el_p50_s, progress.e2el_p95_s
        yield "latency", ["-"] if p50_s is None or p95_s is None else [f"p50 {_short(p50_s)}", f"p95 {_short(p95_s)}"]
    if progress.spent_pusd is not None and progress.counts:
        budget = "" if progress.budget_pusd is None else f" of {dollars(progress.budget_pusd)}"
        yield "cost", [f"{dollars(progress.spent_pusd)}{budget}"]
    if progress.phase in ("running", "waiting"):
        yield "left", [_left(progress)]


def _left(progress: "Progress") -> str:
    left = progress.scope_total - progress.scope_done
    if left == 0:
        return "-"
    if left <= progress.in_flight:
        return f"the last {left:,} {'is' if left == 1 else 'are'} in flight"
    return span(*progress.left_s) if progress.left_s else "not known yet"


def _speed(progress: "Progress") -> list[str]:
    if progress.items_per_s is None:
        is_silent = progress.in_flight and progress.silent_s >= SILENT_S
        return [f"no answer for {duration(progress.silent_s)}"] if is_silent else ["-"]
    rate = progress.items_per_s
    return [
        f"{rate:,.0f} items/s" if rate >= 1_000 else f"{rate:.1f} items/s",
        f"{progress.tokens_per_s or 0:,.0f} tokens/s",
    ]


def span(low_s: float, high_s: float) -> str:
    """Write a range of durations for people, as rough as such a range is."""
    low, high = _rough(low_s), _rough(high_s)
    if low == high:
        return f"about {low}"
    low_figure, _, low_unit = low.rpartition(" ")
    same_unit = high.count(" ") == 1 and high.endswith(f" {low_unit}") and low.count(" ") == 1
    return f"{low_figure} to {high}" if same_unit else f"{low} to {high}"


def _rough(seconds: float) -> str:
    for below, step in ((10, 1), (60, 5), (600, 10), (3_600, 60), (36_000, 600)):
        if seconds < below - step / 2:
            break
    else:
        step = 3_600
    rounded = max(1, int(seconds / step + 0.5) * step)
    return duration(rounded).removesuffix(" 0 s").removesuffix(" 0 m") if rounded >= 60 else f"{rounded} s"


def _short(seconds: float) -> str:
    """Write a latency in one unit, so that p50 and p95 are compared at a glance."""
    return duration(seconds) if seconds < 60 else f"{seconds:,.0f} s"


# -- words ------------------------------------------------------------------------------------------------------------


def _remarks(progress: "Progress", columns: int) -> "Iterator[Text]":
    is_waiting = progress.phase not in ("validating", "finalizing")
    if progress.note:
        label, style = ("waiting", "yellow") if is_waiting else ("now", "")
        yield from _told(label, [progress.note], columns, style)
    failure = progress.last_failure
    if failure is not None and not (is_waiting and failure.message in (progress.note or "")):
        yield from _told(
            "last failure", [f"{failure.custom_id}: {failure.message}", meaning(progress)], columns, "yellow"
        )


def _told(label: str, texts: Iterable[str], columns: int, style: str) -> "Iterator[Text]":
    """A label and texts beside it, each folded between words, and cut when it is long."""
    from rich.text import Text

    from batchrun.core.printable import one_line

    head = f"  {label:<{LABEL}}" if len(label) < LABEL else f"  {label}  "
    indent = len(head) if columns >= 60 else 4
    lead = head
    for text in texts:
        folded = textwrap.wrap(
            f"{lead}{one_line(text)}",
            columns,
            subsequent_indent=" " * indent,
            max_lines=MOST_LINES,
            placeholder=" ...",
            drop_whitespace=True,
        )
        yield from (Text(line, style=style) for line in folded)
        lead = " " * indent


def meaning(progress: "Progress") -> str:
    """Say what the last failure means for its item."""
    from batchrun.core.outcome import CAUSES
    from batchrun.core.states import ItemState

    failure = progress.last_failure
    assert failure is not None
    cause = CAUSES.get(failure.cause or "")
    hint = f": {cause.hint}" if cause else ""
    match failure.to:
        case ItemState.FAILED:
            means = f"failed for good{hint}"
        case ItemState.IN_DOUBT:
            means = f"in doubt, perhaps billed, and not sent again by itself{hint}"
        case ItemState.COMPLETED:
            means = "answered since"
        case ItemState.CANCELLED:
            means = "cancelled since"
        case _:
            means = "sent again by itself"
    ago_s = progress.failed_ago_s or 0.0
    return means if ago_s < 60 else f"{means} ({span(ago_s, ago_s)} ago)"
