"""Charts: where values stand, what is written at the axes, and that any words can stand in them."""

from xml.etree import ElementTree

import pytest

from batchrun.bench.charts.bars import Bar, stacked
from batchrun.bench.charts.lines import MOST_POINTS, Line, Mark, over_levels, over_time, shares
from batchrun.bench.charts.scale import fitting, linear, logarithmic, number, stepped

SVG = "{http://www.w3.org/2000/svg}"
HOSTILE = "</svg><script>alert(1)</script> \x1b[31m \x00 \u202e & \"quoted\" 'so'"


def texts(svg: str) -> list[str]:
    return [node.text or "" for node in ElementTree.fromstring(svg).iter(f"{SVG}text")]


@pytest.mark.parametrize(
    ("most", "ticks"),
    [
        (10, (0, 2, 4, 6, 8, 10)),
        (653, (0, 200, 400, 600, 800)),
        (0.034, (0, 0.01, 0.02, 0.03, 0.04)),
        (0, (0, 0.2, 0.4, 0.6, 0.8, 1)),
    ],
)
def test_a_linear_axis_begins_at_nothing_and_has_round_steps(most: float, ticks: tuple[float, ...]) -> None:
    scale = linear([most], start=0, size=100)
    assert scale.ticks == pytest.approx(ticks)
    assert (scale.place(0), scale.place(scale.high)) == (0, 100)


def test_a_logarithmic_axis_encloses_its_values() -> None:
    scale = logarithmic([3, 4_000], start=0, size=100)
    assert (scale.low, scale.high, scale.ticks) == (1, 10_000, (1, 10, 100, 1_000, 10_000))
    assert scale.place(100) == pytest.approx(50)


def test_values_far_apart_stand_on_a_logarithmic_axis() -> None:
    assert fitting([1, 100], start=0, size=1).is_log
    assert not fitting([1, 20], start=0, size=1).is_log
    assert not fitting([0, 0], start=0, size=1).is_log


def test_the_steps_of_a_ladder_are_its_ticks() -> None:
    assert stepped([1, 4, 8, 16, 32], start=0, size=100).ticks == (1, 4, 8, 16, 32)
    assert stepped([4, 5], start=0, size=100).is_log is False
    assert stepped([8], start=0, size=100).place(8) == 50


@pytest.mark.parametrize(
    ("value", "written"), [(0, "0"), (0.25, "0.25"), (12.5, "12.5"), (2_000, "2,000"), (12_000, "12k"), (3e6, "3M")]
)
def test_a_number_is_written_short(value: float, written: str) -> None:
    assert number(value) == written


def test_a_chart_says_its_units_and_has_a_description_for_those_who_do_not_see_it() -> None:
    line = Line("p50", ((1, 80.0), (8, 90.0), (32, 900.0)), ((1, 70.0, 90.0),))
    svg = over_levels("TTFT over concurrency", [line], x_label="concurrency", y_label="ms", marks=[Mark(8, "knee 8")])
    assert {"concurrency", "ms", "knee 8", "p50", "1", "8", "32"} <= set(texts(svg))
    described = ElementTree.fromstring(svg).find(f"{SVG}desc")
    assert described is not None
    assert described.text == "ms over concurrency. p50: 80 at 1, 900 at 32, at most 900."


def test_a_point_stands_where_its_axes_say() -> None:
    svg = over_levels("t", [Line("a", ((1, 0.0), (2, 100.0)))], x_label="x", y_label="y", log_y=False)
    circles = ElementTree.fromstring(svg).findall(f"{SVG}circle")[-2:]
    bottom, top = (float(circle.attrib["cy"]) for circle in circles)
    ticks = {node.text: float(node.attrib["y"]) - 4 for node in ElementTree.fromstring(svg).iter(f"{SVG}text")}
    assert (bottom, top) == pytest.approx((ticks["0"], ticks["100"]), abs=0.2)


@pytest.mark.parametrize("draw", ["levels", "time", "shares", "bars"])
def test_no_word_can_leave_its_place(draw: str) -> None:
    line = Line(HOSTILE, ((0, 1.0), (1, 2.0)))
    svg = {
        "levels": lambda: over_levels(HOSTILE, [line], x_label=HOSTILE, y_label=HOSTILE, marks=[Mark(1, HOSTILE)]),
        "time": lambda: over_time(HOSTILE, [line, line], y_label=HOSTILE),
        "shares": lambda: shares(HOSTILE, [(HOSTILE, [1.0, 2.0])], x_label=HOSTILE),
        "bars": lambda: stacked(HOSTILE, [Bar(HOSTILE, ((HOSTILE, 1.0),))], x_label=HOSTILE, names=[HOSTILE]),
    }[draw]()
    tree = ElementTree.fromstring(svg)
    assert {node.tag.removeprefix(SVG) for node in tree.iter()} <= {"svg", "title", "desc", "path", "text", "circle"}


def test_the_peak_of_a_long_line_stays() -> None:
    points = tuple((float(at), 1000.0 if at == 7_777 else 1.0) for at in range(10_000))
    svg = over_time("t", [Line("", points)], y_label="y")
    assert "at most 1,000" in svg
    assert svg.count("L") <= MOST_POINTS + 1


def test_a_chart_of_nothing_is_a_chart() -> None:
    assert texts(over_time("t", [Line("", ())], y_label="y"))
    assert texts(over_time("t", [Line("", ((0.0, 0.0),))], y_label="y"))
