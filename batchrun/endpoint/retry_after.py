"""How long a server asks us to wait, in any of its spellings."""

import re
from collections.abc import Mapping
from datetime import UTC
from email.utils import parsedate_to_datetime

LONGEST_S = 86_400.0  # a server that asks for more is taken to mean a day
NUMBER = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)\Z")
INFINITE = re.compile(r"\+?inf(inity)?\Z", re.IGNORECASE)
# Milliseconds are the finer word and win; LiteLLM passes its provider's headers on under a prefix.
SPELLINGS = (
    ("retry-after-ms", 0.001),
    ("retry-after", 1.0),
    ("llm_provider-retry-after-ms", 0.001),
    ("llm_provider-retry-after", 1.0),
)


def retry_after_s(headers: Mapping[str, str], *, now: float) -> float | None:
    """Read the wait a reply asks for, in seconds from 0 to a day, or None where it names none that can be read.

    Args:
        headers: the reply's, names in lower case.
        now: when the reply came, in unix seconds; an HTTP date is counted from it.
    """
    for name, unit_s in SPELLINGS:
        text = headers.get(name, "").strip()
        if not text:
            continue
        wait_s = _number(text, unit_s)
        if wait_s is None and unit_s == 1.0:
            wait_s = _until(text, now)
        if wait_s is not None:
            return min(max(wait_s, 0.0), LONGEST_S)
    return None


def _number(text: str, unit_s: float) -> float | None:
    if NUMBER.match(text):
        return float(text) * unit_s
    return LONGEST_S if INFINITE.match(text) else None


def _until(date: str, now: float) -> float | None:
    try:
        at = parsedate_to_datetime(date)
        at = at.replace(tzinfo=UTC) if at.tzinfo is None else at
        return at.timestamp() - now
    except (ValueError, OverflowError, TypeError, IndexError):
        return None
