"""What people read: lines folded between words, durations and money in few figures."""

import pytest

from batchrun.cli.say import dollars, duration, fold, next_lines


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
