"""A chart of stacked bars: of what a whole consists, one bar a row."""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from batchrun.bench.charts.lines import CHAR, COLOURS, FONT, LINE_HEIGHT, WIDTH
from batchrun.bench.charts.scale import linear, number
from batchrun.core.printable import visible

BAR = 20
ROW = 46
RIGHT = 14


@dataclass(frozen=True, slots=True)
class Bar:
    """One bar: its name and its parts, each as long as its value says. Parts of one name have one colour."""

    name: str
    parts: tuple[tuple[str, float], ...]

    @property
    def total(self) -> float:
        return sum(value for _, value in self.parts)


def stacked(title: str, bars: Sequence[Bar], *, x_label: str, names: Sequence[str]) -> str:
    """Draw the bars below each other, on one scale that begins at 0, with a legend above.

    Args:
        names: of all parts that there can be, in the legend's order.
    """
    there = {name for bar in bars for name, _ in bar.parts}
    names = [name for name in names if name in there]
    legend, top = _legend(names)
    bottom = top + ROW * len(bars)
    height = bottom + 44
    x = linear([bar.total for bar in bars], start=4, size=WIDTH - 4 - RIGHT)
    said = "; ".join(
        f"{bar.name}: " + ", ".join(f"{name} {number(value)}" for name, value in bar.parts) for bar in bars
    )
    parts = [
        f'<svg class="chart" viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{_text(title)}" '
        f'font-size="{FONT}" xmlns="http://www.w3.org/2000/svg">',
        f"<title>{_text(title)}</title><desc>{_text(f'{x_label}. {said}')}</desc>",
        *legend,
    ]
    muted = 'fill="var(--muted, #57606a)"'
    for tick in x.ticks:
        place = x.place(tick)
        anchor = "start" if tick == x.ticks[0] else "end" if tick == x.ticks[-1] else "middle"
        parts.append(f'<path d="M{place:.1f} {top}V{bottom}" stroke="var(--grid, #d0d7de)"/>')
        parts.append(f'<text x="{place:.1f}" y="{bottom + 16}" text-anchor="{anchor}" {muted}>{number(tick)}</text>')
    parts.append(f'<text x="{WIDTH / 2:.1f}" y="{bottom + 36}" text-anchor="middle" {muted}>{_text(x_label)}</text>')
    for row, bar in enumerate(bars):
        y = top + row * ROW
        total = f" ({number(bar.total)})" if len(bar.parts) > 1 else ""
        parts.append(
            f'<text x="4" y="{y + 14}" class="halo" fill="var(--ink, #1c2128)">{_text(bar.name)}{total}</text>'
        )
        begin = 0.0
        for name, value in bar.parts:
            left, right = x.place(begin), x.place(begin + value)
            begin += value
            if right - left >= 0.3:
                colour = f"var(--c{names.index(name) % COLOURS + 1}, #0b62c4)"
                parts.append(
                    f'<path d="M{left:.1f} {y + 20}H{right:.1f}v{BAR}H{left:.1f}z" fill="{colour}" '
                    f'stroke="var(--paper, #fff)" stroke-width="1"/>'
                )
    return "".join([*parts, "</svg>"])


def _legend(names: Sequence[str]) -> tuple[list[str], int]:
    parts, left, row = [], 4.0, 0
    for index, name in enumerate(names):
        width = 22 + len(name) * CHAR
        if left > 4 and left + width > WIDTH:
            left, row = 4.0, row + 1
        y = 4 + row * LINE_HEIGHT
        colour = f"var(--c{index % COLOURS + 1}, #0b62c4)"
        parts.append(f'<path d="M{left:.1f} {y}h12v12h-12z" fill="{colour}"/>')
        parts.append(f'<text x="{left + 17:.1f}" y="{y + 11}" fill="var(--ink, #1c2128)">{_text(name)}</text>')
        left += width + 10
    return parts, 12 + (row + 1) * LINE_HEIGHT


def _text(words: str) -> str:
    return escape(visible(words))
