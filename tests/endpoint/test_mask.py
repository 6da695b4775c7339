"""The mask: no part of a key that could be recorded, in whatever spelling a server echoes it."""

import base64
import html
import json
import urllib.parse

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchrun.endpoint.classify import Profile
from batchrun.endpoint.key import PLACEHOLDERS
from batchrun.endpoint.mask import Mask
from batchrun.wiring import Judge
from tests.endpoint.replies import CHAT, MASK, chat, error, evidence, reply
from tests.endpoint.replies import KEY as REPLY_KEY

MASKED = "***"
KEY = "sk-SECRET-7f3a9"
LONG_KEY = "sk-proj-Ab3dE5fG7hJ9kL1mN2pQ4rS6tU8vW0xYz_Zq-9"
ODD_KEY = """Zk3+/f"4&a=9<x>'Qm7w%tR"""


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


@pytest.mark.parametrize(
    ("key", "answer", "kept"),
    [
        ("sk-local-1", "the key is sk-local-1", "the key is ***"),  # short, and a key all the same
        ("sk-local-1", "keys begin with sk-local", "keys begin with sk-local"),
        ("secret", "a secret is no secret", "a secret is no secret"),  # a word
    ],
)
def test_of_a_short_key_an_answer_loses_the_whole(key: str, answer: str, kept: str) -> None:
    assert Mask(key).answer(answer.encode()) == kept.encode()


SPELLINGS = {
    "json": lambda text: json.dumps(text)[1:-1],
    "json, every character": lambda text: "".join(f"\\u{ord(character):04x}" for character in text),
    "json, every second character": lambda text: "".join(
        f"\\u{ord(character):04X}" if place % 2 else character for place, character in enumerate(text)
    ),
    "json, slashes": lambda text: json.dumps(text)[1:-1].replace("/", "\\/"),
    "url": lambda text: urllib.parse.quote(text, safe=""),
    "url, every character": lambda text: "".join(f"%{ord(character):02x}" for character in text),
    "form": urllib.parse.quote_plus,
    "html": html.escape,
    "html, numbers": lambda text: "".join(f"&#{ord(character)};" for character in text),
    "base64": lambda text: base64.b64encode(text.encode()).decode(),
    "basic": lambda text: base64.b64encode(b"user:" + text.encode()).decode(),
    "base64 within more": lambda text: base64.b64encode(b"Authorization: Bearer " + text.encode() + b"\r\n").decode(),
    "base64 for urls": lambda text: base64.urlsafe_b64encode(b"{" + text.encode() + b"}").decode(),
}


@pytest.mark.parametrize("key", [LONG_KEY, ODD_KEY])
@pytest.mark.parametrize("spelling", SPELLINGS)
def test_a_key_is_masked_in_every_spelling(key: str, spelling: str) -> None:
    spell, mask = SPELLINGS[spelling], Mask(key)
    for masked in (mask.text(f"a {spell(key)} b"), mask.answer(f"a {spell(key)} b".encode()).decode()):
        assert MASKED in masked
        assert masked.startswith("a ")
        assert masked.endswith(" b")
        left = masked.replace(MASKED, "")[2:-2]
        # What remains of base64 is what stood before and behind the key, and at most a character of it at each end.
        assert len(left) <= (len(spell("")) + 8 if "base64" in spelling or spelling == "basic" else 0), left


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_a_part_of_a_key_is_masked_in_every_spelling(spelling: str) -> None:
    spell, mask = SPELLINGS[spelling], Mask(LONG_KEY)
    for start in range(len(LONG_KEY) - 12):
        assert MASKED in mask.text(f"<{spell(LONG_KEY[start : start + 12])}>"), start


def test_escapes_that_are_not_of_the_key_stay_as_they_are() -> None:
    body = json.dumps({"content": "50 % of \u00e9t\u00e9 \\ & <b> \u0001 %41 &amp; \u0073"}).encode()
    assert Mask(LONG_KEY).answer(body) is body
    assert Mask(LONG_KEY).raw(body) is body


KEYS = st.text(alphabet="abcdefghijklmnopqrstuvwxyzABC0123456789-_", min_size=6, max_size=60).filter(
    lambda key: key.lower() not in PLACEHOLDERS
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


JUDGE = Judge(Profile(), MASK, check=None)


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (400, error(f"you sent {REPLY_KEY[:9]}")),
        (500, f"<html>{REPLY_KEY[4:12]}"),
        (200, error(f"you sent {REPLY_KEY[:9]}")),
        (200, f"<html>{REPLY_KEY[4:12]}"),
        (200, chat(f"your key is {REPLY_KEY}")),
        (200, chat(f"keys may begin with {REPLY_KEY[:9]}")),
        (200, "not json: " + REPLY_KEY[2:9]),
    ],
)
def test_what_may_lie_on_disk_before_it_is_judged_is_what_the_ledger_will_keep(status: int, body: object) -> None:
    answer = reply(status, body, x_request_id=f"for {REPLY_KEY}", server=REPLY_KEY[:9])
    found = JUDGE.clean(answer, CHAT)
    assert found.headers == {"x-request-id": "for ***", "server": "***"}
    raw = evidence(answer).raw
    assert raw is None or raw == found.body
    again, first = evidence(found), evidence(answer)
    assert (again.outcome, again.cause, again.charge, again.raw) == (first.outcome, first.cause, first.charge, raw)


def test_a_reply_without_the_key_is_not_copied() -> None:
    answer = reply(200, chat(), x_request_id="r-1")
    assert JUDGE.clean(answer, CHAT) is answer
