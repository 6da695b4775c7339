"""What a person sees of an answer: text, calls, reasoning or vectors, of whichever of the four endpoints it is."""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

THINKS, HAS_THOUGHT = "<think>", "</think>"  # where the server leaves the reasoning in the text
JSON_FORMATS = frozenset({"json_object", "json_schema"})


@dataclass(frozen=True, slots=True)
class Choice:
    """One of an answer's choices. What it does not have is ""."""

    text: str = ""
    reasoning: str = ""
    refusal: str = ""  # the model's own words for not answering
    calls: tuple[str, ...] = ()  # of tools, as name(arguments)
    other: tuple[str, ...] = ()  # further kinds of content, by their type: "audio", "web_search_call"

    @property
    def is_unfinished_thought(self) -> bool:
        return self.text.lstrip().startswith(THINKS) and HAS_THOUGHT not in self.text

    @property
    def is_empty(self) -> bool:
        """True where it holds nothing a user wants; reasoning alone is nothing."""
        return self.is_unfinished_thought or not (self.text.strip() or self.refusal or self.calls or self.other)

    @property
    def is_reasoning_only(self) -> bool:
        return self.is_empty and bool(self.reasoning.strip() or self.text.strip())

    @property
    def words(self) -> str:
        """What to show of it in a line."""
        if self.is_reasoning_only:
            return f"(only reasoning) {self.reasoning or self.text}"
        if self.text.strip():
            return self.text
        marked = [f"(refused) {self.refusal}"] if self.refusal else []
        marked += [f"(calls) {call}" for call in self.calls] + [f"({kind})" for kind in self.other]
        return " ".join(marked) or "(no text)"


@dataclass(frozen=True, slots=True)
class AnswerView:
    """What stands in one answer: choices, or vectors."""

    choices: tuple[Choice, ...] = ()
    vectors: int = 0
    dimension: int | None = None  # of the first vector
    mark: bytes = b""  # equal for answers that say the same

    @property
    def text(self) -> str | None:
        """The first choice's text; None where it has none."""
        return (self.choices[0].text or None) if self.choices else None

    @property
    def is_empty(self) -> bool:
        """True where a choice holds nothing a user wants, or where there is nothing at all."""
        return not self.vectors and (not self.choices or any(choice.is_empty for choice in self.choices))

    @property
    def is_reasoning_only(self) -> bool:
        return any(choice.is_reasoning_only for choice in self.choices)

    @property
    def is_refused(self) -> bool:
        return any(choice.refusal for choice in self.choices)

    @property
    def words(self) -> str:
        """What to show of it in a line."""
        if self.vectors:
            noun = "1 vector" if self.vectors == 1 else f"{self.vectors:,} vectors"
            return f"({noun} of {self.dimension:,} numbers)" if self.dimension else f"({noun})"
        if not self.choices:
            return "(no text)"
        more = len(self.choices) - 1
        return self.choices[0].words if not more else f"(1 of {more + 1} choices) {self.choices[0].words}"


def view_answer(raw: bytes) -> AnswerView | None:
    """Read the body of an answer; None where it is none of the four endpoints' JSON. Never raises."""
    try:
        body = json.loads(raw)
    except (ValueError, RecursionError):
        return None
    if not isinstance(body, dict):
        return None
    if isinstance(body.get("choices"), list):
        return _of_choices(tuple(map(_choice, _objects(body["choices"]))))
    if isinstance(body.get("output"), list):
        return _of_choices((_response(list(_objects(body["output"]))),))
    if isinstance(body.get("data"), list):
        return _vectors([one["embedding"] for one in _objects(body["data"]) if "embedding" in one])
    return None


def answer_text(raw: bytes) -> str | None:
    """Return the text of an answer's first choice; None where it has none."""
    view = view_answer(raw)
    return None if view is None else view.text


def asks_for_json(body: Mapping[str, Any]) -> bool:
    """Say whether a request asks for an answer in JSON, in OpenAI's words or in vLLM's."""
    text = body.get("text")
    wanted = [body.get("response_format"), text.get("format") if isinstance(text, dict) else None]
    if any(isinstance(one, dict) and one.get("type") in JSON_FORMATS for one in wanted):
        return True
    structured = body.get("structured_outputs")
    asked = structured.get("json") if isinstance(structured, dict) else None
    return body.get("guided_json") is not None or asked is not None


def is_json(text: str) -> bool:
    """Say whether a text is JSON and nothing else."""
    try:
        json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return False
    return True


def _refuse(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _objects(values: Iterable[object]) -> Iterable[dict[str, Any]]:
    return (value for value in values if isinstance(value, dict))


def _of_choices(choices: tuple[Choice, ...]) -> AnswerView:
    return AnswerView(choices, mark=_mark([[one.text, one.refusal, *one.calls, *one.other] for one in choices]))


def _mark(value: object) -> bytes:
    return hashlib.blake2b(json.dumps(value).encode(), digest_size=16).digest()


def _vectors(found: list[Any]) -> AnswerView:
    first = found[0] if found else None
    dimension = len(first) if isinstance(first, list) else None
    if isinstance(first, str):  # base64 of 32-bit floats
        dimension = (len(first.rstrip("=")) * 3 // 4) // 4
    return AnswerView(vectors=len(found), dimension=dimension, mark=_mark(found))


def _choice(choice: dict[str, Any]) -> Choice:
    message = choice.get("message")
    if not isinstance(message, dict):
        return Choice(_text(choice.get("text")), _reasoning(choice))
    calls = [*_objects(_listed(message.get("tool_calls"))), {"function": message.get("function_call")}]
    called = [_call(one["function"]) for one in calls if isinstance(one.get("function"), dict)]
    content = message.get("content")
    return Choice(
        text=_text(content),
        reasoning=_reasoning(message),
        refusal=_text(message.get("refusal")) or _parts(content, "refusal"),
        calls=tuple(called),
        other=("audio",) if message.get("audio") else (),
    )


def _reasoning(message: dict[str, Any]) -> str:
    return next((text for name in ("reasoning_content", "reasoning") if (text := _text(message.get(name)))), "")


def _response(output: list[dict[str, Any]]) -> Choice:
    by_type: dict[str, list[dict[str, Any]]] = {}
    for item in output:
        by_type.setdefault(str(item.get("type", "message")), []).append(item)
    messages, thoughts = by_type.pop("message", []), by_type.pop("reasoning", [])
    calls = by_type.pop("function_call", [])
    return Choice(
        text="".join(_text(one.get("content")) for one in messages),
        reasoning="".join(_text(one.get("content")) or _text(one.get("summary")) for one in thoughts),
        refusal="".join(_parts(one.get("content"), "refusal") for one in messages),
        calls=tuple(map(_call, calls)),
        other=tuple(by_type),
    )


def _call(function: dict[str, Any]) -> str:
    return f"{_text(function.get('name')) or '?'}({_text(function.get('arguments'))})"


def _text(value: object) -> str:
    """Return a text that may be given whole or as a list of parts."""
    return value if isinstance(value, str) else _parts(value, "text")


def _parts(value: object, name: str) -> str:
    found = (part.get(name) for part in _objects(_listed(value)))
    return "".join(text for text in found if isinstance(text, str))


def _listed(value: object) -> list[Any]:
    return value if isinstance(value, list) else []
