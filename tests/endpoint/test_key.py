"""The key: cleaned, and named when it cannot be one."""

import pytest

from batchrun.endpoint.key import clean_key
from batchrun.errors import EndpointFault

LOCAL = "http://127.0.0.1:8000/v1"
REMOTE = "https://api.openai.com/v1"
KEY = "sk-SECRET-7f3a9"


@pytest.mark.parametrize(
    "raw", [KEY, f"{KEY}\n", f" {KEY}\r\n", f"\t{KEY} ", f"\ufeff{KEY}", f"'{KEY}'", f'"{KEY}"\n', f"{KEY}\u200b"]
)
def test_what_stands_around_a_key_is_removed(raw: str) -> None:
    assert clean_key(raw, base_url=REMOTE) == KEY


@pytest.mark.parametrize("raw", [None, "", " \n", '""'])
def test_a_local_endpoint_needs_no_key_and_another_one_does(raw: str | None) -> None:
    assert clean_key(raw, base_url=LOCAL) == "EMPTY"
    with pytest.raises(EndpointFault, match="no API key is set for https://api") as caught:
        clean_key(raw, base_url=REMOTE)
    assert "OPENAI_API_KEY" in (caught.value.hint or "")


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        ("sk-SEC\nRET-7f3a9", "a line break as character 7"),
        ("sk-SEC RET-7f3a9", "white space as character 7"),
        ("sk-SEC\u00a0RET-7f3a9", "white space"),
        ("\u201csk-SECRET-7f3a9\u201d", "a curly quote (U+201C) as character 1"),
        ("sk-SECRET-7f3a\u2019", "a curly quote (U+2019)"),
        ("sk-SECRET\u20137f3a9", "not plain ASCII (U+2013, en dash)"),
        ("sk-SECRET\x007f3a9", "not plain ASCII (U+0000)"),
        ("Bearer sk-SECRET-7f3a9", "begins with 'Bearer '"),
    ],
)
def test_what_no_key_holds_is_named_and_the_key_is_not(raw: str, words: str) -> None:
    with pytest.raises(EndpointFault) as caught:
        clean_key(raw, base_url=REMOTE)
    assert words in caught.value.message
    assert "SEC" not in caught.value.message
    assert (caught.value.kind, caught.value.exit_code) == ("auth", 2)
    assert caught.value.hint
