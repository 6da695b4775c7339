"""A key that came with something that no key holds: named as such, before anything is sent or written, never shown."""

from pathlib import Path

import pytest

from tests.corpus.gate import GOOD, Gate

KEY = "sk-Wq83nVzL0pTr5KyB"
STRAY: list[tuple[str, str, str]] = [
    ("newline", "\n", "a line break"),
    ("carriage return", "\r", "a line break"),
    ("space", " ", "white space"),
    ("tab", "\t", "white space"),
    ("no-break space", "\u00a0", "white space"),
    ("ideographic space", "\u3000", "white space"),
    ("left curly quote", "\u201c", "a curly quote"),
    ("right curly quote", "\u201d", "a curly quote"),
    ("left single curly quote", "\u2018", "a curly quote"),
    ("apostrophe", "\u2019", "a curly quote"),
    ("en dash", "\u2013", "not plain ASCII"),
    ("umlaut", "\u00fc", "not plain ASCII"),
    ("escape", "\x1b", "not plain ASCII"),
    ("emoji", "\U0001f511", "not plain ASCII"),
]


@pytest.fixture
def remote(gate: Gate, tmp_path: Path) -> Gate:
    """A gate with a good job for an endpoint that wants a key."""
    gate = Gate(tmp_path, {})
    gate.write(spec=GOOD | {"base_url": "https://api.example.invalid/v1", "api_key_env": "THE_KEY"})
    return gate


@pytest.mark.parametrize(("stray", "words"), [case[1:] for case in STRAY], ids=[case[0] for case in STRAY])
@pytest.mark.parametrize("at", [3, 9, len(KEY) - 1])
def test_what_no_key_holds_is_named_with_its_place(at: int, stray: str, words: str, remote: Gate) -> None:
    remote.variables = {"THE_KEY": KEY[:at] + stray + KEY[at:]}
    error = remote.refuses([]).error
    assert (error["kind"], error["exit_code"]) == ("auth", 2)
    assert words in error["message"]
    assert f"character {at + 1}" in error["message"]
    assert not any(part in str(error) for part in (KEY[:at], KEY[at:]) if len(part) > 3)
    assert error["hint"]


@pytest.mark.parametrize(
    ("key", "words"),
    [
        (None, "is not set"),
        ("", "no API key"),
        (" \n", "no API key"),
        (f"Bearer {KEY}", "begins with 'Bearer '"),
        (f"\u201c{KEY}\u201d", "a curly quote (U+201C) as character 1"),
    ],
)
def test_a_key_that_is_none_is_named(key: str | None, words: str, remote: Gate) -> None:
    remote.variables = {} if key is None else {"THE_KEY": key}
    error = remote.refuses([]).error
    assert words in error["message"]
    assert KEY not in str(error)
