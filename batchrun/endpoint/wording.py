"""A server's words, made fit to be recorded: short, printable, without the key."""

import html
import re
from collections.abc import Mapping
from http import HTTPStatus

from batchrun.endpoint.mask import Mask

LONGEST = 300  # characters of a server's text that are recorded
READ = 8_000  # characters of it that are looked at
TITLE = re.compile(r"<(title|h1)\b[^>]*>(.*?)</\1", re.IGNORECASE | re.DOTALL)
NOT_TEXT = re.compile(r"<(script|style)\b.*?(</\1\s*>|\Z)|<!--.*?(-->|\Z)|<[^>]*(>|\Z)", re.IGNORECASE | re.DOTALL)


def tidy(text: str, mask: Mask, *, longest: int = LONGEST) -> str:
    """Mask the key, make white space and whatever cannot be printed one blank, and cut at `longest` characters."""
    text = mask.text(text[:READ])
    if not text.isprintable():
        text = "".join(character if character.isprintable() else " " for character in text)
    text = " ".join(text.split())
    return text if len(text) <= longest else text[: longest - 3].rstrip() + "..."


def page_words(page: str) -> str:
    """Take the title of a web page, or else its text without tags."""
    page = page[:READ]
    for found in TITLE.finditer(page):
        if words := html.unescape(NOT_TEXT.sub(" ", found[2])).strip():
            return words
    return html.unescape(NOT_TEXT.sub(" ", page))


def looks_like_page(body: bytes, headers: Mapping[str, str]) -> bool:
    """Say whether a body is a web page, whatever its headers call it."""
    start = body[:200].removeprefix(b"\xef\xbb\xbf").lstrip().lower()
    if start.startswith((b"<!doctype html", b"<html", b"<head", b"<body")):
        return True
    return start.startswith(b"<") and "html" in headers.get("content-type", "").lower()


def body_words(body: bytes, headers: Mapping[str, str]) -> str:
    """Take the words of a body that is not the API's JSON: a page's title, or plain text; "" for anything binary."""
    if "content-encoding" in headers or b"\x00" in body[:READ]:
        return ""
    text = body[:READ].decode("utf-8", "replace")
    return page_words(text) if looks_like_page(body, headers) else text


def status_words(status: int) -> str:
    """Name a status as people know it: "429 Too Many Requests"."""
    try:
        return f"{status} {HTTPStatus(status).phrase}"
    except ValueError:
        return str(status)
