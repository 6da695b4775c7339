"""The key: cleaned, named when it cannot be one, and masked wherever it could be recorded."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchrun.endpoint.key import MASKED, Mask, clean_key
from batchrun.errors import EndpointFault

LOCAL = "http://127.0.0.1:8000/v1"
REMOTE = "https://api.openai.com/v1"
KEY = "sk-SECRET-7f3a9"
LONG_KEY = "sk-proj-Ab3dE5fG7hJ9kL1mN2pQ4rS6tU8vW0xYz_Zq-9"


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


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        (f"bad key {KEY}!", "bad key ***!"),
        ("Incorrect key: sk-SEC...7f3a9", "Incorrect key: ***...7f3a9"),
        ("ending in T-7f3a9.", "ending in ***."),
        (f"{KEY}{KEY} and {KEY}", "*** and ***"),
        ("SECRET", "***"),
        ("SECRE", "SECRE"),
        ("sk-SECRET", "***"),
        ("xxSECRETxx7f3a9", "xx***xx7f3a9"),
        ("", ""),
        ("nothing here", "nothing here"),
        ("lone \ud800 SECRET", "lone \ud800 ***"),
    ],
)
def test_the_key_and_its_parts_are_masked(text: str, masked: str) -> None:
    assert Mask(KEY).text(text) == masked
    if text.isascii():
        assert Mask(KEY).raw(text.encode()) == masked.encode()


def test_nothing_is_copied_where_nothing_is_found() -> None:
    body = b'{"id": "x"}' * 100
    assert Mask(KEY).raw(body) is body
    assert Mask(KEY).answer(body) is body


@pytest.mark.parametrize("key", ["EMPTY", "x", "abc12", "ollama", "lm-studio", "none"])
def test_what_is_no_secret_is_not_masked(key: str) -> None:
    text = f"the key {key} was refused; is {key} running?"
    assert Mask(key).text(text) == text
    assert Mask(key).answer(text.encode()) == text.encode()


def test_an_answer_keeps_honest_words_and_loses_the_key() -> None:
    mask = Mask(LONG_KEY)
    honest = b'{"content": "keys of OpenAI begin with sk-proj-Ab"}'
    assert mask.answer(honest) == honest
    assert mask.answer(f'{{"content": "{LONG_KEY}"}}'.encode()) == b'{"content": "***"}'
    assert mask.answer(f'"{LONG_KEY[5:30]}"'.encode()) == b'"***"'


KEYS = st.text(alphabet="abcdefghijklmnopqrstuvwxyzABC0123456789-_", min_size=6, max_size=60).filter(
    lambda key: key.lower() not in ("ollama", "lm-studio")
)


@given(key=KEYS, data=st.data(), before=st.text(max_size=30), after=st.text(max_size=30))
def test_no_part_of_six_or_more_characters_is_ever_left(key: str, data: st.DataObject, before: str, after: str) -> None:
    start = data.draw(st.integers(0, len(key) - 6))
    end = data.draw(st.integers(start + 6, len(key)))
    text = Mask(key).text(before + key[start:end] + after)
    assert not any(key[at : at + 6] in text for at in range(len(key) - 5))
    assert MASKED in text


@given(key=st.text(alphabet="ab-", min_size=6, max_size=40), text=st.text(alphabet="ab-c", max_size=80))
def test_what_is_left_of_a_text_stood_in_it_outside_the_key(key: str, text: str) -> None:
    masked = Mask(key).text(text)
    pieces = masked.split(MASKED)
    assert not any(key[at : at + 6] in piece for piece in pieces for at in range(len(key) - 5))
    position = 0
    for piece in pieces:
        position = text.index(piece, position) + len(piece)
