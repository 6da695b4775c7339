"""Keeps the API key out of everything that is recorded, however a server spells it when it echoes it."""

import base64
import html
import re
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

from ahocorasick_rs import BytesAhoCorasick, Implementation

from batchrun.core.outcome import Reply
from batchrun.endpoint.key import PLACEHOLDERS

SHORTEST_SECRET = 6  # characters; a part this long must not be recorded either
IN_ANSWERS = 12  # characters; what is shorter stands in honest answers too ("sk-or-v1-")
MASKED = b"***"
Span = tuple[int, int]


class Mask:
    """Takes keys, and any part of them of six or more characters, out of text that could be recorded.

    A key is found as it is, in base64, and with any of its characters escaped as in JSON, a URL or HTML. In an answer
    (`answer`) only parts of twelve or more are replaced, since an answer is kept as it came. Placeholders and keys
    under six characters are no secrets, and of a key that is one short word an honest answer may hold the word.
    """

    def __init__(self, *keys: str) -> None:
        secrets = [
            key for key in dict.fromkeys(keys) if len(key) >= SHORTEST_SECRET and key.lower() not in PLACEHOLDERS
        ]
        self._finders = [_Finder(key, part=SHORTEST_SECRET) for key in secrets]
        self._strict = [_Finder(key, part=min(IN_ANSWERS, len(key))) for key in secrets if not _is_word(key)]

    def text(self, text: str) -> str:
        """Return the text with `***` in place of every part of a key; the very same object where there is none."""
        if not self._finders or len(text) < SHORTEST_SECRET:
            return text
        # A lone surrogate must survive the way to bytes and back; the key itself is ASCII.
        raw = text.encode("utf-8", "surrogatepass")
        masked = self.raw(raw)
        return text if masked is raw else masked.decode("utf-8", "surrogatepass")

    def raw(self, body: bytes) -> bytes:
        """Return the bytes with `***` in place of every part of a key; the very same object where there is none."""
        for finder in self._finders:
            body = finder.replace(body)
        return body

    def answer(self, body: bytes) -> bytes:
        """Return the bytes with `***` in place of the keys and of their long parts only."""
        for finder in self._strict:
            body = finder.replace(body)
        return body

    def reply(self, reply: Reply, *, is_answer: Callable[[], bool]) -> Reply:
        """Return a reply as it may lie on a disk before it is judged; the very same object where nothing is found.

        Args:
            reply: with no more of the key, afterwards, than the ledger will keep of it.
            is_answer: asked only where a part of the key stands in the body, which nothing but an answer may keep.
        """
        body = self.raw(reply.body)
        if body is not reply.body and is_answer():
            body = self.answer(reply.body)
        head = "\n".join([*reply.headers, *reply.headers.values()])
        if self.text(head) is head:
            return reply if body is reply.body else replace(reply, body=body)
        headers = {self.text(name): self.text(value) for name, value in reply.headers.items()}
        return replace(reply, body=body, headers=headers)


def _is_secret(key: str) -> bool:
    return len(key) >= SHORTEST_SECRET and key.lower() not in PLACEHOLDERS


def _is_word(key: str) -> bool:
    return len(key) < IN_ANSWERS and key.isalpha()


class _Finder:
    """Finds parts of a key of `part` characters or more, in any spelling."""

    def __init__(self, key: str, *, part: int) -> None:
        secret = key.encode()
        # Who writes base64 writes whole headers: there only a long part is looked for.
        coded = _in_base64(secret)
        coded_part = min(part * 5 // 2, *map(len, coded))
        self._plain = _search(_parts([secret], part))
        self._any = _search(_parts([secret], part) + _parts(coded, coded_part))
        self._escapes = _Escapes(key)

    def replace(self, data: bytes) -> bytes:
        """Return the very same object where nothing is found."""
        found = self._any.find_matches_as_indexes(data, overlapping=True)
        spans = [(start, end) for _, start, end in found]
        if undone := self._escapes.undo(data):
            plain, places = undone
            found = self._plain.find_matches_as_indexes(plain, overlapping=True)
            spans += [(places[start], places[end]) for _, start, end in found]
        return _masked(data, spans) if spans else data


def _search(parts: list[bytes]) -> BytesAhoCorasick:
    return BytesAhoCorasick(parts, implementation=Implementation.DFA)  # made once, asked for every answer


def _parts(secrets: list[bytes], size: int) -> list[bytes]:
    """List every part of this size: whatever is longer holds one."""
    return list(dict.fromkeys(secret[at : at + size] for secret in secrets for at in range(len(secret) - size + 1)))


def _masked(data: bytes, spans: list[Span]) -> bytes:
    pieces: list[bytes] = []
    end = 0
    for start, until in sorted(spans):
        if start > end or not pieces:
            pieces += [data[end:start], MASKED]
        end = max(end, until)
    return b"".join([*pieces, data[end:]])


def _in_base64(secret: bytes) -> list[bytes]:
    """Spell a secret in base64: at each of the three places in a group where it may begin, less what others touch."""
    spelled = []
    for before in range(3):
        coded = base64.b64encode(bytes(before) + secret)
        whole = coded[-(-before * 4 // 3) : (before + len(secret)) * 4 // 3]
        spelled += [whole, whole.replace(b"+", b"-").replace(b"/", b"_")]
    return list(dict.fromkeys(spelled))


class _Escapes:
    """Undoes the escapes of a key's characters: those of JSON strings, of URLs and of HTML."""

    def __init__(self, key: str) -> None:
        self._characters = {escape: character.encode() for character in set(key) for escape in _escapes_of(character)}
        begins = {escape[:2] if escape.startswith(b"\\") else escape[:1] for escape in self._characters}
        self._signs = tuple(b"\\u00" if begin == b"\\u" else begin for begin in begins)
        rest = b"|".join(re.escape(escape[1:]) for escape in sorted(self._characters, key=len, reverse=True))
        self._pattern = re.compile(rb"[\\%&](?:" + rest + b")")

    def undo(self, data: bytes) -> tuple[bytes, list[int]] | None:
        """Return the data without the escapes, with the place of each of its bytes in the data and of its end.

        None where it holds none.
        """
        if not any(sign in data for sign in self._signs):
            return None
        found = [(match.start(), match.end(), match[0]) for match in self._pattern.finditer(data)]
        if not found:
            return None
        pieces, places = [], []
        for (_, begin, _), (start, _, escape) in pairwise([(0, 0, b""), *found, (len(data), len(data), b"")]):
            pieces += [data[begin:start], self._characters.get(escape, b"")]
            places += [*range(begin, start), start]
        return b"".join(pieces), places


def _escapes_of(character: str) -> list[bytes]:
    """List the ways to write a printable ASCII character that do not show it."""
    number = ord(character)
    codes = dict.fromkeys((f"{number:02x}", f"{number:02X}"))
    ways = [f"&#{number};"]
    for code in codes:
        ways += [f"\\u00{code}", f"\\x{code}", f"%{code}", f"&#x{code};", f"&#X{code};"]
    if character in '"\\/':
        ways.append(f"\\{character}")
    named = html.escape(character)
    return [way.encode() for way in (ways if named == character else [*ways, named])]
