"""The JSON of a 200: whether it is an answer of its kind, and what the ledger needs of it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from batchrun.core.answer_view import choices_of
from batchrun.core.outcome import Usage
from batchrun.core.quick import quick
from batchrun.endpoint.problem import problem_of
from batchrun.endpoint.usage import read_usage

ENDINGS = ("length", "content_filter")  # reasons to look at an answer
# A choice that ended so is no answer: vLLM and SGLang write "abort" where the server stopped, half-way, under a 200.
BROKEN_OFF = {"error": "ended in an error", "abort": "was broken off by the endpoint"}
FINISHES = {"max_output_tokens": "length", "max_tokens": "length", "content_filter": "content_filter"}


@quick
@dataclass(frozen=True, slots=True)
class Answer:
    """What stands in an answer, or, with a fault, in what should have been one."""

    fault: str | None = None  # why it is of no use
    cause: str = "no_choices"  # of the fault
    finish_reason: str | None = None  # in chat's words
    is_empty: bool = False  # a choice holds nothing a user wants

    def warning(self, usage: Usage) -> str | None:
        """Name what makes it worth a look; missing usage only where there is nothing else."""
        found = [self.finish_reason] if self.finish_reason in ENDINGS else []
        if self.is_empty:
            found.append("empty")
        if not found and not usage.is_known:
            found.append("no_usage")
        return ", ".join(found) or None


def shows_work(body: object) -> bool:
    """Say whether a body holds an answer or counts generated tokens, whatever its status says."""
    if not isinstance(body, dict):
        return False
    return bool(body.get("choices") or body.get("output") or read_usage(body).completion_tokens)


def read_answer(body: dict[str, Any], path: str) -> Answer:
    """Check a body against the shape its path promises; a path of another kind is not checked."""
    route = path.rstrip("/")
    for ending, check in CHECKS:
        if route.endswith(ending):
            return check(body)
    return Answer()


def _chat(body: dict[str, Any]) -> Answer:
    return _choices(body, _message_fault)


def _completion(body: dict[str, Any]) -> Answer:
    return _choices(body, _text_fault)


def _choices(body: dict[str, Any], fault_of: Callable[[dict[str, Any]], str | None]) -> Answer:
    choices = body.get("choices")
    if not isinstance(choices, list) or not choices:
        return Answer("it has no 'choices'" if not choices else "its 'choices' is no list")
    for number, choice in enumerate(choices):
        fault = fault_of(choice) if isinstance(choice, dict) else "is no object"
        if fault:
            return Answer(f"its choices[{number}] {fault}")
        if words := _broken_off(choice):
            return Answer(f"its choices[{number}] {words}", cause="error_in_answer")
    seen = choices_of(body)
    if len(seen) == 1:
        return Answer(finish_reason=seen[0].finish_reason, is_empty=seen[0].is_empty)
    reasons = [choice.finish_reason for choice in seen if choice.finish_reason is not None]
    # Of several choices the one that did not end well is the one to report.
    finish = next((reason for reason in reasons if reason in ENDINGS), reasons[0] if reasons else None)
    return Answer(finish_reason=finish, is_empty=any(choice.is_empty for choice in seen))


def _broken_off(choice: dict[str, Any]) -> str | None:
    """Say how a choice ended that is no answer, whatever text it holds; None where it ended by itself."""
    finish = "error" if choice.get("error") else choice.get("finish_reason")
    words = BROKEN_OFF.get(finish) if isinstance(finish, str) else None
    return words and f"{words}{_error_words(choice)}"


def _error_words(choice: dict[str, Any]) -> str:
    problem = problem_of({"error": choice.get("error")})
    return f": {problem.words}" if problem and problem.words else ""


def _message_fault(choice: dict[str, Any]) -> str | None:
    message = choice.get("message")
    if not isinstance(message, dict):
        return "has no 'message'"
    if not isinstance(message.get("content"), str | list | None):
        return "has a 'message.content' that is neither text, list nor null"
    if not isinstance(message.get("tool_calls"), list | None):
        return "has a 'message.tool_calls' that is no list"
    return None


def _text_fault(choice: dict[str, Any]) -> str | None:
    return None if isinstance(choice.get("text"), str) else "has no 'text'"


def _embeddings(body: dict[str, Any]) -> Answer:
    data = body.get("data")
    if not isinstance(data, list) or not data:
        return Answer("it has no 'data'")
    for number, element in enumerate(data):
        vector = element.get("embedding") if isinstance(element, dict) else None
        if not isinstance(vector, list | str) or not vector:
            return Answer(f"its data[{number}] has no 'embedding'")
    return Answer()


def _response(body: dict[str, Any]) -> Answer:
    output = body.get("output")
    if not isinstance(output, list) or not all(isinstance(element, dict) for element in output):
        return Answer("it has no 'output'")
    status, details = body.get("status"), body.get("incomplete_details")
    reason = details.get("reason") if status == "incomplete" and isinstance(details, dict) else None
    if not output and reason is None:
        return Answer("its 'output' holds nothing")
    if status not in ("completed", "incomplete", None):
        return Answer(f"its status is not 'completed' but {_quoted(status)}")
    finish = FINISHES.get(reason, reason) if isinstance(reason, str) else None
    return Answer(finish_reason=finish, is_empty=any(choice.is_empty for choice in choices_of(body)))


def _quoted(status: object) -> str:
    return f"'{status[:40]}'" if isinstance(status, str) else "something else"


CHECKS: tuple[tuple[str, Callable[[dict[str, Any]], Answer]], ...] = (
    ("/chat/completions", _chat),
    ("/completions", _completion),
    ("/embeddings", _embeddings),
    ("/responses", _response),
)
