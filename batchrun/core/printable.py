"""Text of others (answers, prompts, ids, a server's words) made fit for a terminal: it obeys none of it."""

import re
import unicodedata

# What a terminal obeys or hides: control characters but line feed and tab, C1, text direction, zero width, line and
# paragraph separators, halves of surrogate pairs, tags. The joiners U+200C and U+200D stay: emoji and scripts need them
# to be written at all.
_OBEYED = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\ud800-\udfff\U000e0000-\U000e007f]"
)
LOOKED_AT = 20_000  # characters of a text of which one line is made


def visible(text: str) -> str:
    r"""Return the text with whatever a terminal would obey or hide written as JSON does: ``\u001b``.

    Lines and tabs stay. Where the text is JSON, it means the same as before.
    """
    return text if text.isprintable() else _OBEYED.sub(_escaped, text.replace("\r\n", "\n"))


def _escaped(found: re.Match[str]) -> str:
    code = ord(found[0])
    if code < 0x10000:
        return f"\\u{code:04x}"
    high, low = divmod(code - 0x10000, 0x400)
    return f"\\u{0xD800 + high:04x}\\u{0xDC00 + low:04x}"


def one_line(text: str) -> str:
    """Return the text in one line: any white space is one blank, and the rest is visible. A long one is cut."""
    return visible(" ".join(text[:LOOKED_AT].split()))


def columns_taken(text: str) -> int:
    """Return how many columns a terminal takes for the text: two for a wide character, none for a combining one."""
    return len(text) if text.isascii() else sum(map(_columns, text))


def _columns(character: str) -> int:
    if unicodedata.category(character) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def clip(text: str, columns: int) -> str:
    """Cut a line to so many columns, the dots at its end included."""
    if columns_taken(text) <= columns:
        return text
    room, end = columns - 3, 0
    for character in text:
        room -= _columns(character)
        if room < 0:
            break
        end += 1
    return text[:end].rstrip() + "..."
