"""Whether an answer is what the job wants: JSON, and of the schema that its spec names.

No reference of a schema is followed out of it: no network, no file. Its regular expressions stop after a number of
steps, and a text that would take more counts as not matching.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

from batchrun.core.answer_view import HAS_THOUGHT, AnswerView, Choice, view_answer
from batchrun.core.outcome import INVALID_ANSWER, Evidence
from batchrun.core.states import AttemptState
from batchrun.core.surrogates import FLATTEN, mended_text

MOST_STEPS = 100_000  # of one regular expression over one text
TOLD_FAULTS = 3
TOLD_CHARS = 300  # of each: names in it may be the answer's own
_BEGINS_JSON = ("{", "[", '"')
_FENCED = re.compile(r"\s*```[A-Za-z0-9_-]*[ \t]*\r?\n(.*?)\r?\n?[ \t]*```\s*\Z", re.DOTALL)
# What is pasted whole from a request: the schema lies inside, and as a schema it would take everything.
_WRAPPERS = ("json_schema", "schema")


class SchemaFault(ValueError):
    """What is wrong with a response schema, and how to mend it."""

    def __init__(self, what: str, hint: str) -> None:
        super().__init__(what)
        self.hint = hint


@dataclass(frozen=True, slots=True)
class AnswerCheck:
    """Judges answers by one schema; any JSON will do where the schema is `True`."""

    validator: Any
    accept_fenced: bool = False  # JSON that stands in a code fence, and nothing beside it, counts

    @classmethod
    def of(cls, schema: Any, *, accept_fenced: bool = False) -> "AnswerCheck":
        """Prepare a schema.

        Raises:
            SchemaFault: it is none, or refers to something outside of itself.
        """
        return cls(_validator(schema), accept_fenced)

    def __call__(self, body: bytes) -> str | None:
        """Say why the body of an answer is not what is wanted; None where it is. Never raises.

        Every choice must do. Vectors are not judged.
        """
        view = view_answer(body) or AnswerView()
        if view.vectors:
            return None
        if not view.choices:
            return "it holds no text"
        for number, choice in enumerate(view.choices):
            if fault := self._fault(choice):
                return fault if len(view.choices) == 1 else f"choices[{number}]: {fault}"
        return None

    def _fault(self, choice: Choice) -> str | None:
        if choice.text.strip():
            return self._text_fault(choice)
        if choice.refusal:
            return "the model refused"
        given = [(call, arguments) for call in choice.calls if (arguments := _arguments(call)) is not None]
        for call, arguments in given:
            if fault := self._json_fault(arguments):
                return f"the arguments of its call {_name(call)!r}: {fault}"
        if given:
            return None
        return "it holds only reasoning" if choice.is_reasoning_only else "it holds no text"

    def _text_fault(self, choice: Choice) -> str | None:
        if choice.is_unfinished_thought:
            return "it holds only reasoning"
        text = _said(choice.text)
        fenced = _FENCED.match(text)
        if fenced and not self.accept_fenced:
            return "its JSON stands in a code fence (accept_fenced takes such answers)"
        fault = self._json_fault(fenced[1] if fenced else text)
        return f"{fault} (it was cut at the token limit)" if fault and choice.finish_reason == "length" else fault

    def _json_fault(self, text: str) -> str | None:
        try:
            value = json.loads(text, parse_constant=_refuse)
        except RecursionError:
            return "it is nested too deep"
        except ValueError as error:
            return f"it is not JSON: {error.msg if isinstance(error, json.JSONDecodeError) else error}"
        try:
            return self._schema_fault(value)
        except UnicodeEncodeError:  # half of a surrogate pair
            return self._schema_fault(json.loads(mended_text(json.dumps(value, ensure_ascii=False))))
        except (ValueError, RecursionError) as error:
            return f"it could not be checked: {error}"

    def _schema_fault(self, value: Any) -> str | None:
        if self.validator.is_valid(value):
            return None
        found = list(islice(self.validator.iter_errors(value), TOLD_FAULTS + 1))
        told = [f"{_place(error.instance_path)}: {error.message}"[:TOLD_CHARS] for error in found[:TOLD_FAULTS]]
        return "; ".join(told) + ("; and more" if len(found) > TOLD_FAULTS else "")


def check_of(spec: Mapping[str, Any]) -> AnswerCheck | None:
    """Return what a job's effective spec asks of its answers; None where it asks nothing."""
    schema = spec.get("response_schema")
    return None if schema is None else AnswerCheck.of(schema, accept_fenced=bool(spec.get("accept_fenced")))


def judged(evidence: Evidence, check: AnswerCheck) -> Evidence:
    """Return evidence as it is after the check of its answer: paid for in any case, but perhaps invalid."""
    if evidence.outcome is not AttemptState.ANSWERED or evidence.raw is None:
        return evidence
    words = invalid(evidence.raw, check)
    return evidence if words is None else replace(evidence, cause=INVALID_ANSWER, message=words)


def invalid(body: bytes, check: AnswerCheck) -> str | None:
    """Say in an item's words that its answer is invalid, and why; None where it is what the job wants."""
    fault = check(body)
    return None if fault is None else f"invalid answer: {fault}"


def _validator(schema: Any) -> Any:
    import jsonschema_rs  # only jobs with a schema pay for loading it

    if schema is not True and not isinstance(schema, dict):
        raise SchemaFault("is no JSON Schema", "write an object, or true for any JSON")
    if wrapped := next((name for name in _WRAPPERS if _wraps(schema, name)), None):
        raise SchemaFault(f"holds the schema in {wrapped!r}", f"write what stands in {wrapped!r} alone")
    try:
        return jsonschema_rs.validator_for(
            schema,
            mask="the value",  # messages go into logs: no answer in them
            validate_formats=True,
            offline=True,
            pattern_options=jsonschema_rs.FancyRegexOptions(backtrack_limit=MOST_STEPS),
        )
    except jsonschema_rs.ValidationError as error:
        raise _schema_fault(error.message, list(error.instance_path)) from None
    except jsonschema_rs.ReferencingError as error:
        raise _schema_fault(error.message, []) from None
    except (ValueError, RecursionError) as error:
        raise SchemaFault(f"is no JSON Schema: {error}", FLATTEN) from None


def _schema_fault(message: str, path: list[str | int]) -> SchemaFault:
    if "retriev" in message.lower():
        return SchemaFault(f"refers to something outside of it: {message}", "put it under $defs: nothing is fetched")
    if "does not exist" in message:
        return SchemaFault(f"refers to what is not in it: {message}", "add it under $defs")
    where = f" at {_place(path)}" if path else ""
    return SchemaFault(f"is no JSON Schema{where}: {message}", "mend it: https://json-schema.org")


def _wraps(schema: Any, name: str) -> bool:
    known = ("type", "$ref", "properties", "items", "anyOf", "oneOf", "allOf", "enum", "const")
    is_said = isinstance(schema, dict) and isinstance(schema.get(name), dict)
    return is_said and (schema.get("type") == "json_schema" or not any(word in schema for word in known))


def _said(text: str) -> str:
    """Return a text without the reasoning that the server left in front of it; some leave out where that begins."""
    before, mark, after = text.partition(HAS_THOUGHT)
    return after if mark and not before.lstrip().startswith(_BEGINS_JSON) else text


def _arguments(call: Mapping[str, Any]) -> str | None:
    function = call.get("function")
    arguments = (function if isinstance(function, dict) else call).get("arguments")
    return arguments if isinstance(arguments, str) else None


def _name(call: Mapping[str, Any]) -> str:
    function = call.get("function")
    return str((function if isinstance(function, dict) else call).get("name", "?"))


def _place(path: Iterator[str | int] | list[str | int]) -> str:
    return "$" + "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)


def _refuse(name: str) -> None:
    raise ValueError(f"{name} is not JSON")
