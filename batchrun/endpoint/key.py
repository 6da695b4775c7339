"""The API key: cleaned before it is used, and kept out of everything that is recorded."""

import unicodedata
from collections.abc import Iterator

from batchrun.endpoint.address import is_local
from batchrun.errors import EndpointFault

NO_KEY = "EMPTY"  # what vLLM's users send where no key is asked for
# What people write because a client insists on a key. They guard nothing, and masking them would spoil plain words.
PLACEHOLDERS = frozenset(
    {
        NO_KEY.lower(),
        "none",
        "null",
        "dummy",
        "dummy-key",
        "no-key",
        "not-needed",
        "no-key-needed",
        "not-used",
        "unused",
    }
    | {"ollama", "lm-studio", "vllm", "local", "localhost", "llama.cpp", "placeholder", "anything", "password"}
)
SHORTEST_SECRET = 6  # characters; a part this long must not be recorded either
MASKED = "***"


class KeyFault(EndpointFault):
    """The API key is missing or cannot be one. Nothing was sent."""

    kind = "auth"


def clean_key(raw: str | None, *, base_url: str) -> str:
    """Return the key to send: white space and quotes at its ends are removed; a local endpoint needs none.

    Raises:
        KeyFault: there is none and the endpoint is not local, or a character stands in it that no key has.
    """
    key = (raw or "").strip().strip("\ufeff\u200b").strip()
    if len(key) >= 2 and key[0] == key[-1] and key[0] in "\"'":
        key = key[1:-1].strip()
    if not key:
        if is_local(base_url):
            return NO_KEY
        raise KeyFault(
            f"no API key is set for {base_url}", hint="set OPENAI_API_KEY, or name its variable in api_key_env"
        )
    if key.lower().startswith("bearer "):
        raise KeyFault("the API key begins with 'Bearer '", hint="set OPENAI_API_KEY to the key alone")
    for place, character in enumerate(key, start=1):
        if not "!" <= character <= "~":
            what = _name(character)
            raise KeyFault(
                f"the API key has {what} as character {place}", hint="copy the key once more into OPENAI_API_KEY"
            )
    return key


def _name(character: str) -> str:
    if character in "\r\n":
        return "a line break"
    if character.isspace():
        return "white space"
    point = f"U+{ord(character):04X}"
    if character in "\u2018\u2019\u201c\u201d":
        return f"a curly quote ({point})"
    name = unicodedata.name(character, "").lower()
    return f"a character that is not plain ASCII ({point}{f', {name}' if name else ''})"


class Mask:
    """Takes a key, and any part of it of six or more characters, out of text that could be recorded.

    In an answer (`answer`) only parts of twelve or more are replaced: an answer is kept as it came, and common
    beginnings such as "sk-or-v1-" stand in honest ones. Placeholders and keys under six characters are no secrets.
    """

    def __init__(self, key: str) -> None:
        is_secret = len(key) >= SHORTEST_SECRET and key.lower() not in PLACEHOLDERS
        self._finder = _Finder(key, part=SHORTEST_SECRET, probe=4) if is_secret else None
        self._strict = _Finder(key, part=12, probe=8) if is_secret and len(key) >= 12 else None

    def text(self, text: str) -> str:
        """Return the text with `***` in place of every part of the key."""
        if self._finder is None:
            return text
        # A lone surrogate must survive the way to bytes and back; the key itself is ASCII.
        raw = text.encode("utf-8", "surrogatepass")
        masked = self._finder.replace(raw)
        return text if masked is raw else masked.decode("utf-8", "surrogatepass")

    def raw(self, body: bytes) -> bytes:
        """Return the bytes with `***` in place of every part of the key."""
        return body if self._finder is None else self._finder.replace(body)

    def answer(self, body: bytes) -> bytes:
        """Return the bytes with `***` in place of the key and of its long parts only."""
        return body if self._strict is None else self._strict.replace(body)


class _Finder:
    """Finds parts of a key. Every part of `part` bytes holds one of a few probes, and those are quick to look for."""

    def __init__(self, key: str, *, part: int, probe: int) -> None:
        secret = key.encode()
        self._part = part
        self._slack = part - probe
        self._parts = frozenset(secret[at : at + part] for at in range(len(secret) - part + 1))
        steps = range(0, len(secret) - probe + 1, self._slack + 1)
        self._probes = tuple(dict.fromkeys(secret[at : at + probe] for at in steps))

    def replace(self, data: bytes) -> bytes:
        """Return the very same object where nothing is found."""
        for probe in self._probes:
            if probe in data:
                return self._replace(data)
        return data

    def _replace(self, data: bytes) -> bytes:
        pieces: list[bytes] = []
        end = 0
        for start in sorted(set(self._places(data))):
            if start > end or not pieces:
                pieces += [data[end:start], MASKED.encode()]
            end = start + self._part
        return b"".join([*pieces, data[end:]]) if pieces else data

    def _places(self, data: bytes) -> Iterator[int]:
        for probe in self._probes:
            at = data.find(probe)
            while at >= 0:
                for start in range(max(0, at - self._slack), at + 1):
                    if data[start : start + self._part] in self._parts:
                        yield start
                at = data.find(probe, at + 1)
