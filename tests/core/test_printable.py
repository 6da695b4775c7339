"""What others wrote reaches a terminal as text, in known columns, and never as an order to it."""

import json
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchrun.core.printable import clip, columns_taken, one_line, visible

ORDERS = [
    "\x1b[2J\x1b[31mred",  # clears the screen
    "\x1b]0;title\x07",  # sets the window's title
    "\x9b31m",  # the same in one character of C1
    "over\rwritten",
    "back\x08\x08\x08space",
    "evil\u202egnp.exe",  # turns the direction of the text
    "zero\u200bwidth\ufeff",
    "half \ud83d",
    "tag\U000e0041",
    "line\u2028end",
]


@pytest.mark.parametrize("text", ORDERS)
@pytest.mark.parametrize("make", [visible, one_line])
def test_no_terminal_obeys_it(text: str, make: object) -> None:
    shown = make(text)  # type: ignore[operator]
    assert shown.isprintable()
    shown.encode()  # no half of a surrogate pair is left


def test_escapes_are_those_of_json() -> None:
    assert visible("a\x1b[0m\ud83d\U000e0041") == r"a\u001b[0m\ud83d\udb40\udc41"


@given(st.text())
def test_json_means_the_same_afterwards(text: str) -> None:
    written = json.dumps({"a": text}, ensure_ascii=False)
    assert json.loads(visible(written)) == {"a": text}


@given(st.text())
def test_nothing_is_left_that_a_terminal_obeys(text: str) -> None:
    left = {unicodedata.category(character) for character in visible(text) if character not in "\n\t\u200c\u200d"}
    assert not left & {"Cc", "Cs", "Zl", "Zp"}
    assert "\n" not in one_line(text)


@pytest.mark.parametrize(
    "text",
    ["plain", "zwei Zeilen\nund\tTab", "漢字かな", "\u0646\u06cc\u0645\u200c\u0641\u0627", "👩\u200d💻", "a\u00a0b"],
)
def test_honest_text_stays_as_it_is(text: str) -> None:
    assert visible(text) == text


def test_windows_line_ends_become_lines() -> None:
    assert visible("one\r\ntwo") == "one\ntwo"
    assert one_line(" one\r\n\ttwo ") == "one two"


@pytest.mark.parametrize(
    ("text", "columns", "cut"),
    [
        ("short", 10, "short"),
        ("exactly ten", 11, "exactly ten"),
        ("a longer line", 10, "a longe..."),
        ("漢字漢字漢字", 12, "漢字漢字漢字"),
        ("漢字漢字漢字", 11, "漢字漢字..."),
        ("e\u0301e\u0301e\u0301e\u0301e\u0301", 5, "e\u0301e\u0301e\u0301e\u0301e\u0301"),
    ],
)
def test_a_line_is_cut_by_the_columns_it_takes(text: str, columns: int, cut: str) -> None:
    assert clip(text, columns) == cut


@given(st.text(), st.integers(3, 80))
def test_a_cut_line_fits(text: str, columns: int) -> None:
    assert columns_taken(clip(one_line(text), columns)) <= columns
