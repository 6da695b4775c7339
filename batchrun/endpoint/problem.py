"""A server's JSON error in any of its shapes, and what its spelling says."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

QUOTA_CODES = {
    "insufficient_quota",
    "credit_balance_exhausted",
    "billing_hard_limit_reached",
    "organization_usage_limit_exceeded",
    "billing_not_active",
    "insufficient_balance",
    "insufficient_credits",
    "insufficient_user_quota",
}
QUOTA_ENDING = "_spend_limit_exceeded"
QUOTA_WORDS = re.compile(
    r"exceeded your current quota|credit balance is (too low|exhausted)|billing hard limit"
    r"|insufficient (account )?(balance|credits?|funds)|(out of|run out of|no remaining) credits"
    r"|exceeded your monthly included credits|reached your specified (api )?usage limits?"
)
# Gemini's per-minute limit speaks of "your current quota" too, but says when to come back.
COMES_BACK = re.compile(r"(re)?try (again )?in |per minute|per second")

MODEL_CODES = {
    "model_not_found",
    "model_not_available",
    "model_decommissioned",
    "invalid_model",
    "deploymentnotfound",
}
MODEL_WORDS = re.compile(
    # "model", perhaps a name, and the verb: a "not found" further away may be about something else.
    r"models?\b\W{0,3}[\w./:@-]{0,200}\W{0,3}\b"
    r"(does not exist|not exist|(is |was )?not found|is not available|has been (deprecated|decommissioned))"
    r"|(invalid|unknown) model\b|not a valid model|no such model|no endpoints found for|unable to access model"
    r"|model identifier is invalid|failed to load model|llm provider not provided|\Amodel: \S+\Z"
)

CONTEXT_CODES = {
    "context_length_exceeded",
    "exceed_context_size_error",
    "string_above_max_length",
    "context_window_exceeded",
}
CONTEXT_WORDS = re.compile(
    r"context (length|window|size)|contextwindowexceeded|max(imum)?[ _](model|sequence|input|prompt)[ _]len"
    r"|prompt is too long|prompt (tokens )?exceeds|input (is )?too long|(input|prompt) length"
    r"|longer than the (model|max)|reduce the length|inputs?`? tokens|input token count|too many (input )?tokens"
    r"|exceeds? the (model's )?max(imum)? (number of )?(input )?tokens?\b"
)

FILTER_CODES = {
    "content_filter",
    "content_policy_violation",
    "contentfilter",
    "responsibleaipolicyviolation",
    "moderation_blocked",
    "data_inspection_failed",
    "invalid_prompt",
    "content_moderation",
}
FILTER_WORDS = re.compile(
    r"content management policy|content (policy|filter)|(prompt|input|request|content|message) (was |is )?flagged"
    r"|your (prompt|input)\b.{0,60}usage polic|inappropriate content"
    r"|\bguardrails?\b"  # a gateway's; one that checks answers refuses what is already paid for
)

TOO_LARGE_WORDS = re.compile(r"request too large for")
# vLLM's under a 500 while it drains, of Python's executor: the work was not even begun.
STOPPING_WORDS = re.compile(r"cannot schedule new futures after shutdown")
LOADING_WORDS = re.compile(r"loading (the )?model|model (\S+ )?(is )?(currently )?(still )?loading")

# Codes that stand in place of a status inside a 200.
STATUS_OF_CODE = {
    "rate_limit_exceeded": 429,
    "rate_limit_error": 429,
    "rate_limited": 429,
    "too_many_requests": 429,
    "insufficient_quota": 429,
    "invalid_api_key": 401,
    "authentication_error": 401,
    "permission_error": 403,
    "permission_denied": 403,
    "model_not_found": 404,
    "not_found_error": 404,
    "context_length_exceeded": 400,
    "invalid_request_error": 400,
    "content_filter": 400,
    "content_policy_violation": 400,
    "overloaded_error": 529,
}


@dataclass(frozen=True, slots=True)
class Problem:
    """An error as a server words it."""

    message: str  # "" where it gives none
    codes: tuple[str, ...]  # its `code`, `type`, `status` and inner code, in lower case
    status: int | None  # a number among them that is an HTTP status

    @property
    def words(self) -> str:
        """Its message, or else its code."""
        return self.message or next(iter(self.codes), "")

    def is_quota(self, *, comes_back: bool) -> bool:
        """Say whether money or quota has run out; said only in words, a time to come back speaks against it."""
        if any(code in QUOTA_CODES or code.endswith(QUOTA_ENDING) for code in self.codes):
            return True
        text = self._text
        return QUOTA_WORDS.search(text) is not None and not comes_back and COMES_BACK.search(text) is None

    def is_model_not_found(self) -> bool:
        return self._is(MODEL_CODES, MODEL_WORDS)

    def is_context_length(self) -> bool:
        return self._is(CONTEXT_CODES, CONTEXT_WORDS)

    def is_content_filter(self) -> bool:
        return self._is(FILTER_CODES, FILTER_WORDS)

    def is_too_large(self) -> bool:
        """Say whether this one request is above a limit of rate, so that waiting cannot help."""
        return TOO_LARGE_WORDS.search(self._text) is not None

    def is_loading(self) -> bool:
        return LOADING_WORDS.search(self._text) is not None

    def is_stopping(self) -> bool:
        """Say whether the server is shutting down, and has not begun the work."""
        return STOPPING_WORDS.search(self._text) is not None

    def _is(self, codes: set[str], words: re.Pattern[str]) -> bool:
        return not codes.isdisjoint(self.codes) or words.search(self._text) is not None

    @property
    def _text(self) -> str:
        return self.message[:4_000].lower()


def problem_of(value: Any) -> Problem | None:
    """Find the error in a JSON body, or None where it holds none.

    Known shapes: {"error": {...}} (OpenAI), {"error": "..."} (Ollama, TGI), flat {"object": "error", "message": ...}
    (older vLLM), {"detail": ...} (FastAPI), {"message": ...} (gateways), or any of them alone in a list (Gemini).
    """
    if isinstance(value, list) and len(value) == 1:
        value = value[0]
    if not isinstance(value, dict):
        return None
    error = value.get("error")
    if isinstance(error, dict) and error:
        return _problem(error, value)
    if isinstance(error, str) and error.strip():
        return _problem({"message": error}, value)
    if _first_text(value, ("message", "detail", "msg", "errors", "title")):
        return _problem(value, value)
    return None


def problem_inside(value: Any) -> Problem | None:
    """Find the error in the body of a 200: unlike `problem_of`, a lone "message" or "detail" is not taken for one."""
    body = value[0] if isinstance(value, list) and len(value) == 1 else value
    if isinstance(body, dict) and (body.get("error") or "error" in (body.get("object"), body.get("type"))):
        return problem_of(body) or Problem("", (), None)
    return None


def _problem(error: dict[str, Any], around: dict[str, Any]) -> Problem:
    message = _first_text(error, ("message", "detail", "msg", "errors", "title", "error_description"))
    inner = error.get("innererror", error.get("inner_error"))
    spots = [error, around, inner if isinstance(inner, dict) else {}]
    values = [spot.get(name) for spot in spots for name in ("code", "type", "status", "error_type", "status_code")]
    statuses = (status for status in map(_as_status, values) if status is not None)
    codes = tuple(
        dict.fromkeys(value.strip().lower()[:200] for value in values if isinstance(value, str) and value.strip())
    )
    numbers = next(statuses, None)
    named = next((STATUS_OF_CODE[code] for code in codes if code in STATUS_OF_CODE), None)
    return Problem(message, codes, numbers or named)


def _as_status(value: object) -> int | None:
    if isinstance(value, str) and re.fullmatch(r"[3-5][0-9][0-9]", value.strip()):
        value = int(value)
    if isinstance(value, int) and not isinstance(value, bool) and 300 <= value <= 599:
        return value
    return None


def _first_text(error: dict[str, Any], names: tuple[str, ...]) -> str:
    for name in names:
        if text := "; ".join(_texts(error.get(name), depth=3)).strip():
            return text
    return ""


def _texts(value: object, *, depth: int) -> Iterator[str]:
    """Yield the texts in a message that may be a string, or FastAPI's list of {"loc", "msg"}, or an object again."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list) and depth:
        for element in value[:5]:
            yield from _texts(element, depth=depth - 1)
    elif isinstance(value, dict) and depth:
        place = value.get("loc")
        where = ".".join(str(step) for step in place[:8]) + ": " if isinstance(place, list) else ""
        for name in ("message", "msg", "detail", "error", "reason"):
            if texts := list(_texts(value.get(name), depth=depth - 1)):
                yield where + "; ".join(texts)
                return


# How servers word the most tokens that a model takes; the number is the first group.
LIMITS = tuple(
    re.compile(pattern)
    for pattern in (
        r"(?:maximum|max) (?:context|model|sequence) (?:length|len|size)\D{0,20}(\d[\d,]*)",
        r"(\d[\d,]*)(?: tokens?)? (?:maximum|max)(?: context| model)?(?: length| size)?\b",
        r"context (?:size|window|length)\D{0,20}(\d[\d,]*) tokens",
        r"max\w* number of (?:input )?tokens(?: allowed)?\D{0,4}(\d[\d,]*)",
        r"must be <= (\d[\d,]*)",
    )
)


def context_limit(words: str) -> int | None:
    """Find the most tokens a model takes in a server's refusal of a prompt as too long; None where it does not say."""
    for pattern in LIMITS:
        if (found := pattern.search(words.lower())) is not None:
            limit = int(found[1].replace(",", ""))
            return limit if 0 < limit <= 10**8 else None
    return None
