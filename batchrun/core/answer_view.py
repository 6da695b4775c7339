"""What stands in an answer: text, calls, reasoning or vectors, of whichever of the four endpoints it is."""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from batchrun.core.loose_json import objects_in, read_json
from batchrun.core.quick import quick

THINKS, HAS_THOUGHT = "<think>", "</think>"  # where the server leaves the reasoning in the text
JSON_FORMATS = frozenset({"json_object", "json_schema"})
# Kinds of content that are neither something else than words, nor words for the user.
_WORDS = frozenset({"text", "output_text", "refusal"})
_THOUGHTS = frozenset({"thinking", "reasoning"})
_PLAIN = frozenset({"role", "content"})  # fields of a message that add nothing to its text


@quick
@dataclass(frozen=True, slots=True)
class Choice:
    """One of an answer's choices. What it does not have is ""."""

    text: str = ""
    reasoning: str = ""
    refusal: str = ""  # the model's own words for not answering
    calls: tuple[Mapping[str, Any], ...] = ()  # of tools, as they came
    other: tuple[str, ...] = ()  # further kinds of content, by their type: "audio", "image_url"
    finish_reason: str | None = None  # None where the endpoint gives none, or one for the whole answer

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
    def said(self) -> str:
        """What it says to the user, be it an answer or a refusal; blanks before a refusal are nothing said."""
        return self.refusal if self.refusal and not self.text.strip() else self.text + self.refusal

    @property
    def words(self) -> str:
        """What to show of it in a line."""
        if self.is_reasoning_only:
            return f"(only reasoning) {self.reasoning or self.text}"
        parts = [self.text] if self.text.strip() else []
        parts += [f"(refused) {self.refusal}"] if self.refusal else []
        parts += [*map(_call_words, self.calls), *(f"({kind})" for kind in self.other)]
        return " ".join(parts) or "(no text)"


@dataclass(frozen=True, slots=True)
class AnswerView:
    """What stands in one answer: choices, or vectors."""

    choices: tuple[Choice, ...] = ()
    vectors: tuple[object, ...] = ()  # as they came: lists of numbers, or 32-bit floats in base64

    @property
    def dimension(self) -> int | None:
        """Of the first vector; None where there is none."""
        first = self.vectors[0] if self.vectors else None
        if isinstance(first, str):
            return (len(first.rstrip("=")) * 3 // 4) // 4
        return len(first) if isinstance(first, list) else None

    @property
    def mark(self) -> bytes:
        """Equal for answers that say the same, whatever their ids are; b"" where nothing is said."""
        if self.vectors:
            return _mark(self.vectors)
        told = [[one.text, one.refusal, *map(_call_words, one.calls), *one.other] for one in self.choices]
        return _mark(told) if told else b""

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
            noun = "1 vector" if len(self.vectors) == 1 else f"{len(self.vectors):,} vectors"
            return f"({noun} of {self.dimension:,} numbers)" if self.dimension else f"({noun})"
        if not self.choices:
            return "(no text)"
        more = len(self.choices) - 1
        return self.choices[0].words if not more else f"(1 of {more + 1} choices) {self.choices[0].words}"


def view_answer(raw: bytes) -> AnswerView | None:
    """Read the body of an answer; None where it is none of the four endpoints' JSON. Never raises."""
    body = read_json(raw)
    if not isinstance(body, dict):
        return None
    if isinstance(body.get("choices"), list) or isinstance(body.get("output"), list):
        return AnswerView(choices_of(body))
    if isinstance(data := body.get("data"), list):
        vectors = tuple(one.get("embedding") if isinstance(one, dict) else None for one in data)
        return AnswerView(vectors=vectors if any(one is not None for one in vectors) else ())
    return None


def choices_of(body: Mapping[str, Any]) -> tuple[Choice, ...]:
    """Return the choices of an answer that was parsed, in its order; of vectors, or of no answer, there are none."""
    if isinstance(choices := body.get("choices"), list):
        return tuple([_choice(one) if isinstance(one, dict) else Choice() for one in choices])
    if isinstance(output := body.get("output"), list):
        return (_response(objects_in(output)),)
    return ()


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


def _mark(value: object) -> bytes:
    return hashlib.blake2b(json.dumps(value).encode(), digest_size=16).digest()


def _choice(choice: dict[str, Any]) -> Choice:
    finish = choice.get("finish_reason")
    finish_reason = finish if isinstance(finish, str) else None
    message = choice.get("message")
    if not isinstance(message, dict):
        return Choice(_text(choice.get("text")), _reasoning(choice), finish_reason=finish_reason)
    content = message.get("content")
    if isinstance(content, str) and not [name for name, value in message.items() if value and name not in _PLAIN]:
        return Choice(content, finish_reason=finish_reason)  # as nearly all of them are
    parts = objects_in(content)
    return Choice(
        text=content if isinstance(content, str) else _joined(parts, "text"),
        reasoning=_reasoning(message) or _thoughts(parts),
        refusal=_text(message.get("refusal")) or _joined(parts, "refusal"),
        calls=_calls(message),
        other=_other_kinds(parts) + (("audio",) if message.get("audio") else ()),
        finish_reason=finish_reason,
    )


def _calls(message: dict[str, Any]) -> tuple[dict[str, Any], ...]:
    calls, old = message.get("tool_calls"), message.get("function_call")  # the latter of the API's first years
    found = tuple(objects_in(calls))
    return (*found, old) if isinstance(old, dict) else found


def _reasoning(message: dict[str, Any]) -> str:
    return _text(message.get("reasoning_content")) or _text(message.get("reasoning"))


def _response(output: list[dict[str, Any]]) -> Choice:
    by_type: dict[str, list[dict[str, Any]]] = {}
    for item in output:
        by_type.setdefault(str(item.get("type", "message")), []).append(item)
    messages, thoughts = by_type.pop("message", []), by_type.pop("reasoning", [])
    contents = [one.get("content") for one in messages]
    parts = [part for content in contents for part in objects_in(content)]
    return Choice(
        text="".join(map(_text, contents)),
        reasoning="".join(_text(one.get("content")) or _text(one.get("summary")) for one in thoughts),
        refusal=_joined(parts, "refusal"),
        calls=tuple(one for one in output if _is_call(str(one.get("type")))),
        other=_other_kinds(parts) + tuple(kind for kind in by_type if not _is_call(kind)),
    )


def _is_call(kind: str) -> bool:
    return kind.endswith("_call")


def _call_words(call: Mapping[str, Any]) -> str:
    """Return a call as name(arguments); one of a kind that has no name, such as a web search, by its type."""
    called = next((call[kind] for kind in ("function", "custom") if isinstance(call.get(kind), dict)), call)
    name, given = _text(called.get("name")), _text(called.get("arguments")) or _text(called.get("input"))
    if not name and not given:
        return f"({call.get('type') or 'call'})"
    return f"(calls) {name or '?'}({given})"


def _text(value: object) -> str:
    """Return a text that may be given whole or as a list of parts."""
    return value if isinstance(value, str) else _joined(objects_in(value), "text")


def _joined(parts: Iterable[dict[str, Any]], name: str) -> str:
    return "".join([text for part in parts if isinstance(text := part.get(name), str)])


def _thoughts(parts: Iterable[dict[str, Any]]) -> str:
    return "".join([_text(part.get(part["type"])) for part in parts if str(part.get("type")) in _THOUGHTS])


def _other_kinds(parts: list[dict[str, Any]]) -> tuple[str, ...]:
    """Return the kinds of content that are neither words nor thoughts, each once."""
    kinds = dict.fromkeys([str(part.get("type", "text")) for part in parts]) if parts else ()
    return tuple([kind for kind in kinds if kind not in _WORDS and kind not in _THOUGHTS])
