"""The API key, cleaned before it is used."""

import unicodedata
from hashlib import blake2b

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


def fingerprint(key: str, *, salt: str) -> str:
    """Return what tells one key from another and gives none away: 32 bits fit to one in four thousand million."""
    return blake2b(key.encode(), digest_size=4, salt=salt.encode()[:16]).hexdigest()


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
