"""What people see: nothing wraps badly at 80 columns, and nothing says 100 % while something is left."""

import io
from typing import Any

import pytest
from rich.console import Console
from rich.constrain import Constrain

from batchrun.cli.live import panel, plain_line
from batchrun.cli.say import dollars, duration, fold, next_lines
from batchrun.core.states import ItemState
from batchrun.runner.progress import Progress


def progress(**changes: Any) -> Progress:
    values: dict[str, Any] = {
        "task_id": "a-job-with-a-rather-long-name-2026-11-29",
        "phase": "running",
        "counts": {**dict.fromkeys(ItemState, 0), ItemState.COMPLETED: 1_234_000, ItemState.FAILED: 12_000},
        "scope_total": 2_000_000,
        "scope_done": 1_246_000,
        "in_flight": 256,
        "concurrency": 256,
        "items_per_s": 1_204.5,
        "tokens_per_s": 123_456.0,
        "e2el_p50_s": 0.21,
        "e2el_p95_s": 1.9,
        "spent_pusd": 12 * 10**12,
        "budget_pusd": 50 * 10**12,
        "last_failure": "ticket-000123: 429 Too Many Requests: " + "please slow down " * 10,
        "note": "the endpoint asked for a pause of 1.1 s",
    }
    return Progress(**values | changes)


def drawn(moment: Progress, columns: int) -> list[str]:
    console = Console(file=io.StringIO(), width=200, no_color=True)
    console.print(Constrain(panel(moment, columns=columns), columns))
    return str(console.file.getvalue()).rstrip("\n").split("\n")  # type: ignore[attr-defined]


@pytest.mark.parametrize("columns", [77, 117])
def test_the_display_keeps_to_its_columns(columns: int) -> None:
    lines = [line.rstrip() for line in drawn(progress(), columns)]
    assert [line for line in lines if len(line) > columns] == []
    assert "left 8 m 21 s to 13 m 34 s" in "\n".join(lines)


def test_it_is_never_done_while_something_is_left() -> None:
    almost = progress(scope_total=100_000, scope_done=99_999)
    assert "99 %" in drawn(almost, 77)[0]
    assert "100 %" in drawn(progress(scope_total=5, scope_done=5), 77)[0]


def test_the_plain_line_is_words_of_key_and_value() -> None:
    line = plain_line(progress(note=None))
    assert " 1246000/2000000 completed=1234000 failed=12000 in_doubt=0 in_flight=256 " in line
    assert "rate=1204.5/s" in line


@pytest.mark.parametrize(
    ("line", "folded"),
    [
        ("short", "short"),
        ("  sample    one two three four", "  sample    one two three\n            four"),
        ("error: one two three four", "error: one two\n  three four"),
        ("one\ntwo", "one\ntwo"),
        ("an-item-whose-name-is-longer-than-the-line", "an-item-whose-name-is-longer-than-the-line"),
    ],
)
def test_a_long_line_is_folded_between_words_under_its_own_text(line: str, folded: str) -> None:
    assert fold(line, 26 if "sample" in line else 18) == folded
    assert fold(line, None) == line


def test_the_next_commands_stand_on_one_line_or_each_on_its_own() -> None:
    assert next_lines(["batchrun ls"]) == ["next:  batchrun ls"]
    many = next_lines([f"batchrun some-command a-job-{number}" for number in range(3)])
    assert many[0].startswith("next:  batchrun")
    assert many[1].startswith("       batchrun")
    assert len(many) == 3


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (None, "-"),
        (0.0004, "0 ms"),
        (0.061, "61 ms"),
        (0.9996, "1.0 s"),
        (9.94, "9.9 s"),
        (61, "1 m 1 s"),
        (3_700, "1 h 1 m"),
    ],
)
def test_durations_are_short(seconds: float | None, words: str) -> None:
    assert duration(seconds) == words


@pytest.mark.parametrize(
    ("usd", "words"),
    [
        (0, "$0.00"),
        (0.00018, "$0.000180"),
        (0.0294331, "$0.0294"),
        (0.5, "$0.500"),
        (2.094, "$2.09"),
        (1234.5, "$1,234.50"),
    ],
)
def test_money_has_three_digits_or_cents(usd: float, words: str) -> None:
    assert dollars(int(usd * 10**12)) == words
