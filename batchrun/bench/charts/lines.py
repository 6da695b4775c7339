"""A chart of lines: over a ladder of loads, over time, or as the share of requests that were done within a time."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from html import escape
from itertools import pairwise

from batchrun.bench.charts.scale import Scale, fitting, linear, number, stepped
from batchrun.core.printable import visible

WIDTH, HEIGHT = 420, 270
LEFT, RIGHT, BOTTOM = 54, 14, 44
FONT, LINE_HEIGHT = 13, 18
CHAR = 6.9  # of a character in this size, about
COLOURS = 6
DASHES = ("", "7 4", "2 3", "9 3 2 3", "4 4", "1 4")
MOST_POINTS = 240  # of one line: more than there are columns to draw them in


@dataclass(frozen=True, slots=True)
class Line:
    """One line: its points from left to right, and how far the values of each went."""

    name: str
    points: tuple[tuple[float, float], ...]
    ranges: tuple[tuple[float, float, float], ...] = ()  # place, lowest, highest

    @property
    def xs(self) -> list[float]:
        return [x for x, _ in self.points]

    @property
    def ys(self) -> list[float]:
        return [y for _, y in self.points] + [value for _, *ends in self.ranges for value in ends]


@dataclass(frozen=True, slots=True)
class Mark:
    """A vertical line with a word, such as the knee of a ladder."""

    x: float
    word: str


def over_levels(
    title: str, lines: Sequence[Line], *, x_label: str, y_label: str, marks: Sequence[Mark] = (), log_y: bool = True
) -> str:
    """Draw values over the steps of a ladder, each with the range over its rounds."""
    xs = [x for line in lines for x in line.xs]
    ys = [y for line in lines for y in line.ys]
    scale_y = fitting if log_y else linear
    return _draw(
        title,
        lines,
        x_of=lambda start, size: stepped(xs, start=start, size=size),
        y_of=lambda start, size: scale_y(ys, start=start, size=size),
        labels=(x_label, y_label),
        marks=marks,
        has_points=True,
    )


def over_time(title: str, lines: Sequence[Line], *, y_label: str, most: float | None = None) -> str:
    """Draw values over the seconds of a run; of many points in one place the highest is kept."""
    thin = [Line(line.name, _thinned(line.points)) for line in lines]
    ys = [y for line in thin for y in line.ys]
    return _draw(
        title,
        thin,
        x_of=lambda start, size: linear((x for line in thin for x in line.xs), start=start, size=size),
        y_of=lambda start, size: linear(ys, start=start, size=size, most=most),
        labels=("seconds since the beginning", y_label),
    )


def shares(
    title: str, values: Sequence[tuple[str, Sequence[float]]], *, x_label: str, marks: Sequence[Mark] = ()
) -> str:
    """Draw for each name the share of its values (0 to 100 %) that are no greater than what the x axis says."""
    lines = []
    for name, found in values:
        ordered = sorted(found)
        stairs = [(value, (at + 1) / len(ordered) * 100) for at, value in enumerate(ordered)]
        lines.append(Line(name, _thinned(tuple(stairs))))
    return _draw(
        title,
        lines,
        x_of=lambda start, size: fitting([x for line in lines for x in line.xs], start=start, size=size),
        y_of=lambda start, size: linear((), start=start, size=size, most=100.0),
        labels=(x_label, "% of requests"),
        marks=marks,
    )


def _thinned(points: tuple[tuple[float, float], ...]) -> tuple[tuple[float, float], ...]:
    """Keep of each stretch of a long line its highest point, so that peaks stay."""
    if len(points) <= MOST_POINTS:
        return points
    width = -(-len(points) // MOST_POINTS)
    kept = [max(points[at : at + width], key=lambda point: point[1]) for at in range(0, len(points), width)]
    return tuple(kept) if kept[-1] == points[-1] else (*kept, points[-1])


# -- drawing ----------------------------------------------------------------------------------------------------------


def _draw(
    title: str,
    lines: Sequence[Line],
    *,
    x_of: Callable[[float, float], Scale],
    y_of: Callable[[float, float], Scale],
    labels: tuple[str, str],
    marks: Sequence[Mark] = (),
    has_points: bool = False,
) -> str:
    legend, top = _legend([line.name for line in lines])
    height = HEIGHT + top - 2 * LINE_HEIGHT
    x = x_of(LEFT, WIDTH - LEFT - RIGHT)
    y = y_of(height - BOTTOM, -(height - BOTTOM - top))
    parts = [
        f'<svg class="chart" viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{_text(title)}" '
        f'font-size="{FONT}" xmlns="http://www.w3.org/2000/svg">',
        f"<title>{_text(title)}</title><desc>{_text(_describe(lines, labels))}</desc>",
        *legend,
        *_axes(x, y, labels, top=top, bottom=height - BOTTOM),
        *(part for mark in marks for part in _mark(mark, x, top=top, bottom=height - BOTTOM)),
        *(part for index, line in enumerate(lines) for part in _line(line, index, x, y, has_points=has_points)),
        "</svg>",
    ]
    return "".join(parts)


def _describe(lines: Sequence[Line], labels: tuple[str, str]) -> str:
    """Say in words what is to be seen, for those who do not see it."""
    said = [f"{labels[1]} over {labels[0]}."]
    for line in lines:
        if line.points:
            (x0, y0), (x1, y1) = line.points[0], line.points[-1]
            most = max(y for _, y in line.points)
            said.append(
                f"{line.name or 'values'}: {number(y0)} at {number(x0)}, {number(y1)} at {number(x1)}, "
                f"at most {number(most)}."
            )
    return " ".join(said)


def _legend(names: Sequence[str]) -> tuple[list[str], int]:
    """Return the legend's parts, in as many rows as it needs, and where the chart below it begins."""
    if len(names) < 2 and not any(names):
        return [], 2 * LINE_HEIGHT - 8
    parts, left, row = [], float(LEFT), 0
    for index, name in enumerate(names):
        shown = name if len(name) <= 40 else f"{name[:39]}…"
        width = 30 + len(shown) * CHAR
        if left > LEFT and left + width > WIDTH:
            left, row = float(LEFT), row + 1
        y = 28 + row * LINE_HEIGHT
        parts.append(f'<path d="M{left:.1f} {y}h20" {_stroke(index)}/>{_point(index, left + 10, y)}')
        parts.append(f'<text x="{left + 25:.1f}" y="{y + 4}" fill="var(--ink, #1c2128)">{_text(shown)}</text>')
        left += width + 8
    return parts, 28 + (row + 1) * LINE_HEIGHT


def _axes(x: Scale, y: Scale, labels: tuple[str, str], *, top: int, bottom: int) -> Iterable[str]:
    muted = 'fill="var(--muted, #57606a)"'
    yield f'<text x="2" y="12" {muted}>{_text(labels[1])}</text>'
    middle = (LEFT + WIDTH - RIGHT) / 2
    yield f'<text x="{middle:.1f}" y="{bottom + 38}" text-anchor="middle" {muted}>{_text(labels[0])}</text>'
    for tick in y.ticks:
        place = y.place(tick)
        yield f'<path d="M{LEFT} {place:.1f}H{WIDTH - RIGHT}" stroke="var(--grid, #d0d7de)"/>'
        yield f'<text x="{LEFT - 6}" y="{place + 4:.1f}" text-anchor="end" {muted}>{number(tick)}</text>'
    yield f'<path d="M{LEFT} {bottom}H{WIDTH - RIGHT}" stroke="var(--muted, #57606a)"/>'
    for tick in _apart(x):
        place = x.place(tick)
        yield f'<path d="M{place:.1f} {bottom}v5" stroke="var(--muted, #57606a)"/>'
        anchor = "end" if place > WIDTH - RIGHT - 8 and len(number(tick)) > 2 else "middle"
        edge = WIDTH - 2 if anchor == "end" else place
        yield f'<text x="{edge:.1f}" y="{bottom + 19}" text-anchor="{anchor}" {muted}>{number(tick)}</text>'


def _apart(x: Scale) -> list[float]:
    """Return the ticks whose words do not run into each other."""
    kept: list[float] = []
    for tick in x.ticks:
        if not kept or x.place(tick) - x.place(kept[-1]) >= (len(number(tick)) + len(number(kept[-1]))) / 2 * CHAR + 6:
            kept.append(tick)
    return kept


def _mark(mark: Mark, x: Scale, *, top: int, bottom: int) -> Iterable[str]:
    place = x.place(mark.x)
    anchor = "end" if place > WIDTH * 0.3 else "start"
    shift = -5 if anchor == "end" else 5
    yield f'<path d="M{place:.1f} {top}V{bottom}" stroke="var(--muted, #57606a)" stroke-dasharray="3 3"/>'
    yield (
        f'<text x="{place + shift:.1f}" y="{top + 11}" text-anchor="{anchor}" class="halo" '
        f'fill="var(--ink, #1c2128)">{_text(mark.word)}</text>'
    )


def _line(line: Line, index: int, x: Scale, y: Scale, *, has_points: bool) -> Iterable[str]:
    places = [(x.place(a), y.place(b)) for a, b in line.points]
    for at, low, high in line.ranges:
        if high > low:
            reach = f"M{x.place(at):.1f} {y.place(low):.1f}V{y.place(high):.1f}"
            yield f'<path d="{reach}" {_stroke(index, dashed=False)}/>'
    if len(places) > 1:
        path = f"M{places[0][0]:.1f} {places[0][1]:.1f}" + "".join(
            f"L{a:.1f} {b:.1f}" for _, (a, b) in pairwise(places)
        )
        yield f'<path d="{path}" {_stroke(index)}/>'
    if has_points or len(places) == 1:
        yield from (_point(index, a, b) for a, b in places)


def _stroke(index: int, *, dashed: bool = True) -> str:
    dash = DASHES[index % len(DASHES)]
    style = f' stroke-dasharray="{dash}"' if dash and dashed else ""
    return f'fill="none" stroke="{_colour(index)}" stroke-width="2" stroke-linejoin="round"{style}'


def _colour(index: int) -> str:
    return f"var(--c{index % COLOURS + 1}, #0b62c4)"


def _point(index: int, x: float, y: float) -> str:
    """Draw the mark of a line's points: a circle, a square, a triangle or a diamond."""
    fill = f'fill="{_colour(index)}"'
    shapes = (
        f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" {fill}/>',
        f'<path d="M{x - 3.5:.1f} {y - 3.5:.1f}h7v7h-7z" {fill}/>',
        f'<path d="M{x:.1f} {y - 4.5:.1f}l4.5 8h-9z" {fill}/>',
        f'<path d="M{x:.1f} {y - 5:.1f}l5 5l-5 5l-5 -5z" {fill}/>',
    )
    return shapes[index % len(shapes)]


def _text(words: str) -> str:
    return escape(visible(words))
