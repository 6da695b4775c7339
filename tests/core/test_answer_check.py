"""Answers against a job's schema: what is judged of each kind, what is refused of a schema, and nothing that hangs."""

import json
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batchrun.core.answer_check import TOLD_CHARS, AnswerCheck, SchemaFault, check_of, judged
from batchrun.core.outcome import Charge, Evidence
from batchrun.core.states import AttemptState

PERSON = {
    "type": "object",
    "required": ["name", "age"],
    "additionalProperties": False,
    "properties": {"name": {"type": "string"}, "age": {"type": "integer", "minimum": 0}},
}
GOOD = '{"name": "Ada", "age": 36}'


def chat(text: str | None, *, finish_reason: str = "stop", **message: Any) -> bytes:
    choice = {"message": {"role": "assistant", "content": text, **message}, "finish_reason": finish_reason}
    return json.dumps({"choices": [choice]}).encode()


def call(arguments: str) -> list[dict[str, Any]]:
    return [{"id": "c1", "type": "function", "function": {"name": "keep", "arguments": arguments}}]


def response(*output: dict[str, Any]) -> bytes:
    return json.dumps({"status": "completed", "output": output}).encode()


RIGHT = {
    "bare": chat(GOOD),
    "with blanks around it": chat(f"\n  {GOOD}\n"),
    "behind the model's thoughts": chat(f"<think>\nhm {{\n</think>\n\n{GOOD}"),
    "behind thoughts whose begin the template ate": chat(f"hm\n</think>{GOOD}"),
    "beside reasoning": chat(GOOD, reasoning_content="hm"),
    "in parts": chat(None, content=[{"type": "text", "text": GOOD[:9]}, {"type": "text", "text": GOOD[9:]}]),
    "in a call": chat(None, tool_calls=call(GOOD)),
    "in a call beside blanks": chat("\n", tool_calls=call(GOOD)),
    "of a legacy completion": json.dumps({"choices": [{"text": GOOD}]}).encode(),
    "of responses": response(
        {"type": "reasoning", "summary": []},
        {"type": "message", "content": [{"type": "output_text", "text": GOOD}]},
    ),
    "in a call of responses": response({"type": "function_call", "name": "keep", "arguments": GOOD}),
    "a name with the end of a thought in it": chat('{"name": "</think>", "age": 1}'),
    "half of a surrogate pair": chat('{"name": "\\ud800", "age": 1}'),
    "vectors, which are not judged": b'{"data": [{"embedding": [0.5]}]}',
}
WRONG = {
    "words": (chat("Ada, 36"), "it is not JSON"),
    "words beside it": (chat(f"Here it is: {GOOD}"), "it is not JSON"),
    "JSON twice": (chat(GOOD + GOOD), "it is not JSON"),
    "cut": (chat(GOOD[:9], finish_reason="length"), "cut at the token limit"),
    "another type": (chat('{"name": "Ada", "age": "36"}'), "$.age:"),
    "a key too few": (chat('{"name": "Ada"}'), '"age" is a required property'),
    "a key too many": (chat('{"name": "Ada", "age": 1, "x": 1}'), "$: Additional properties"),
    "below the least": (chat('{"name": "Ada", "age": -1}'), "$.age:"),
    "no number of JSON": (chat('{"name": "Ada", "age": NaN}'), "NaN is not JSON"),
    "too long a number": (chat('{"name": "Ada", "age": %s}' % ("9" * 5_000)), "it is not JSON"),
    "too deep": (chat("[" * 100_000), "nested too deep"),
    "nothing": (chat(""), "it holds no text"),
    "a refusal": (chat(None, refusal="I will not"), "the model refused"),
    "only thoughts": (chat(f"<think>{GOOD}"), "only reasoning"),
    "only reasoning": (chat(None, reasoning_content=GOOD), "only reasoning"),
    "in a fence": (chat(f"```json\n{GOOD}\n```"), "stands in a code fence"),
    "a call with other arguments": (chat(None, tool_calls=call("{}")), "its call 'keep'"),
    "a call without arguments": (chat(None, tool_calls=[{"type": "web_search"}]), "it holds no text"),
    "one choice of two": (
        json.dumps({"choices": [{"message": {"content": GOOD}}, {"message": {"content": "{}"}}]}).encode(),
        "choices[1]: ",
    ),
}


@pytest.mark.parametrize("name", RIGHT)
def test_json_of_the_schema_is_an_answer_wherever_the_endpoint_puts_it(name: str) -> None:
    assert AnswerCheck.of(PERSON)(RIGHT[name]) is None


@pytest.mark.parametrize("name", WRONG)
def test_what_is_not_of_the_schema_is_told_with_its_place(name: str) -> None:
    body, words = WRONG[name]
    assert words in (AnswerCheck.of(PERSON)(body) or "valid")


@pytest.mark.parametrize("text", [f"```json\n{GOOD}\n```", f"```\n{GOOD}```", f"\n```JSON\r\n{GOOD}\r\n```\n"])
def test_a_fence_is_taken_where_the_spec_says_so_and_then_its_content_is_judged(text: str) -> None:
    fenced = AnswerCheck.of(PERSON, accept_fenced=True)
    assert fenced(chat(text)) is None
    assert "required" in (fenced(chat(text.replace(GOOD, "{}"))) or "")
    assert fenced(chat(f"Here: {text}")) is not None
    assert fenced(chat(GOOD)) is None


def test_true_asks_for_json_of_any_kind() -> None:
    check = check_of({"response_schema": True})
    assert check is not None
    assert [check(chat(text)) is None for text in ("{}", "1", '"a"', "null", "a", "")] == [True] * 4 + [False] * 2
    assert check_of({"response_schema": None}) is check_of({}) is None


def test_an_invalid_answer_stays_paid_and_keeps_its_text() -> None:
    paid = Evidence(AttemptState.ANSWERED, None, None, Charge.CERTAIN, None, raw=chat("no"))
    found = judged(paid, AnswerCheck.of(PERSON))
    assert (found.outcome, found.cause, found.charge, found.raw) == (
        AttemptState.ANSWERED,
        "invalid_answer",
        Charge.CERTAIN,
        paid.raw,
    )
    lost = Evidence(AttemptState.UNKNOWN, "timeout", "late", Charge.POSSIBLE, None, raw=b"{")
    assert judged(lost, AnswerCheck.of(PERSON)) is lost


def test_no_message_repeats_the_answers_values_or_is_longer_than_bearable() -> None:
    fault = AnswerCheck.of(PERSON)(chat(json.dumps({"name": ["secret"], "age": "secret", "k" * 9_000: 1})))
    assert fault is not None
    assert "secret" not in fault
    assert len(fault) < 4 * TOLD_CHARS


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ({"type": "objekt"}, "$.type"),
        ({"properties": {"a": {"minimum": "1"}}}, "$.properties.a.minimum"),
        ({"pattern": "("}, "regex"),
        ({"$ref": "http://127.0.0.1:1/schema.json"}, "nothing is fetched"),
        ({"$ref": "file:///etc/hostname"}, "nothing is fetched"),
        ({"$ref": "other.json"}, "nothing is fetched"),
        ({"$ref": "#/$defs/none"}, "add it under $defs"),
        ({"$schema": "http://127.0.0.1:1/meta"}, "Unknown meta-schema"),
        ({"name": "person", "strict": True, "schema": PERSON}, "write what stands in 'schema' alone"),
        ({"type": "json_schema", "json_schema": {"schema": PERSON}}, "write what stands in 'json_schema' alone"),
        (False, "is no JSON Schema"),
        ([], "is no JSON Schema"),
        (json.loads('{"not":' * 400 + "{}" + "}" * 400), "flatten it"),
    ],
)
def test_a_schema_that_is_none_is_refused_with_its_place_and_a_mend(schema: Any, words: str) -> None:
    with pytest.raises(SchemaFault) as caught:
        AnswerCheck.of(schema)
    assert words in f"{caught.value} | {caught.value.hint}"


def test_a_schema_of_any_draft_with_references_inside_itself_is_taken() -> None:
    tree = {"$defs": {"n": {"type": "array", "items": {"$ref": "#/$defs/n"}}}, "$ref": "#/$defs/n"}
    assert AnswerCheck.of(tree)(chat("[[], [[]]]")) is None
    assert AnswerCheck.of(tree)(chat("[[], [[1]]]")) is not None
    seven = {"$schema": "http://json-schema.org/draft-07/schema#", "type": "string", "format": "date"}
    assert AnswerCheck.of(seven)(chat('"2026-01-02"')) is None
    assert AnswerCheck.of(seven)(chat('"some day"')) is not None


@pytest.mark.parametrize("pattern", ["^(a+)+$", r"^(a|aa)+\1$", "(?=a)(a|aa)+$", "^(([a-z])+.)+[A-Z]([a-z])+$"])
def test_a_pattern_that_would_run_for_years_ends_and_does_not_match(pattern: str) -> None:
    began = time.monotonic()
    assert AnswerCheck.of({"pattern": pattern})(chat(json.dumps("a" * 5_000 + "!"))) is not None
    assert time.monotonic() - began < 30  # years, without a bound


@settings(max_examples=150, deadline=None)
@given(st.text(max_size=60) | st.text('{}[]":,0123e.-+`\\ntrue<think/>', max_size=60), st.binary(max_size=60))
def test_no_text_and_no_body_makes_the_check_fail(text: str, body: bytes) -> None:
    for check in (AnswerCheck.of(True, accept_fenced=True), AnswerCheck.of(PERSON)):
        assert isinstance(check(chat(text, tool_calls=call(text))), str | None)
        assert isinstance(check(body), str | None)
