"""The benchmarks' own sums: what a figure says, which goal it meets, and the table that a document gets."""

import re
from pathlib import Path

import pytest

from benchmarks.bench import DOCUMENT, PARTS
from benchmarks.figures import Board, Figure, Sample, in_turn
from benchmarks.jobs import sharing
from benchmarks.report import BEGIN, END, Conditions, write_table

NAMED = re.compile(r'PARTS="?([a-z ]+)"?')


@pytest.mark.parametrize(
    ("goal", "is_met"),
    [({"least": 2.0}, True), ({"least": 2.1}, False), ({"most": 2.0}, True), ({"most": 1.9}, False), ({}, None)],
)
def test_the_median_of_the_runs_meets_a_goal_or_misses_it(goal: dict[str, float], is_met: bool | None) -> None:
    assert Figure("limit", "some work", [9.0, 2.0, 1.0], "x", **goal).is_met is is_met


def test_a_row_tells_the_median_the_range_the_goal_and_what_it_cost() -> None:
    figure = Figure("limit", "some work", [0.9, 0.951, 0.96], "of the limit", least=0.95, cpu_ms=0.256, rss_mb=113.2)
    assert figure.row() == "| some work | 0.951 (0.9-0.96) of the limit | ≥ 0.95 | met | 0.26 | 113 |"
    missed = Figure("large", "a submit", [31.26], "s", most=25.0, note="slow")
    assert missed.row() == "| a submit; slow | 31.3 s | ≤ 25 | **missed** |  |  |"


def test_contenders_take_turns() -> None:
    order: list[str] = []

    def run(name: str) -> Sample:
        order.append(name)
        return Sample(len(order), 1.0, 1.0)

    found = in_turn(2, {name: lambda name=name: run(name) for name in "ab"})  # type: ignore[misc]
    assert order == ["a", "b", "a", "b"]
    assert [sample.rate for sample in found["b"]] == [2, 4]


def test_each_prefix_is_shared_by_as_many_lines_as_were_asked_for() -> None:
    lines = list(sharing(3, 4, prefix_bytes=50, shuffle=lambda numbers: numbers.reverse()))
    systems = [line["body"]["messages"][0]["content"] for line in lines]
    assert sorted(systems.count(system) for system in set(systems)) == [4, 4, 4]
    assert lines[0]["custom_id"] == "r0000011"


def test_a_document_keeps_all_but_its_old_table(tmp_path: Path) -> None:
    document = tmp_path / "performance.md"
    document.write_text(f"before\n{BEGIN}\nold\n{END}\nbehind\n")
    board = Board([Figure("limit", "some work", [1.0], "x")], ["a peer: it could not be installed"])
    write_table(document, Conditions.now("make bench", sqlite="SQLite 3"), board)
    text = document.read_text()
    assert text.startswith("before\n")
    assert text.endswith("behind\n")
    assert "old" not in text
    for told in ("make bench", "| some work | 1 x |", "Not measured: a peer: it could not be installed."):
        assert told in text


def test_make_bench_finds_every_part_that_the_documents_name() -> None:
    named = {word for line in NAMED.findall(DOCUMENT.read_text()) for word in line.split()}
    assert named
    assert named <= set(PARTS)
