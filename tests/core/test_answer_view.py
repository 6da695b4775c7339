"""What a person sees of an answer, of each of the four endpoints, and of what is none."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchrun.core.answer_view import AnswerView, asks_for_json, is_json, view_answer


def chat(*messages: dict[str, Any]) -> dict[str, Any]:
    return {"choices": [{"index": number, "message": one} for number, one in enumerate(messages)]}


def seen(body: object) -> AnswerView:
    view = view_answer(json.dumps(body).encode())
    assert view is not None
    return view


CALL = {"type": "function", "function": {"name": "weather", "arguments": '{"city": "Oslo"}'}}
WORDS = [
    (chat({"content": "hello"}), "hello"),
    (chat({"content": [{"type": "text", "text": "in "}, {"type": "text", "text": "parts"}]}), "in parts"),
    (
        chat({"content": None, "tool_calls": [CALL, CALL]}),
        '(calls) weather({"city": "Oslo"}) (calls) weather({"city": "Oslo"})',
    ),
    (chat({"content": None, "function_call": {"name": "old", "arguments": "{}"}}), "(calls) old({})"),
    (chat({"content": None, "refusal": "I will not"}), "(refused) I will not"),
    (chat({"content": "  ", "refusal": "no"}), "(refused) no"),
    (chat({"content": [{"type": "text", "text": "A"}, {"type": "refusal", "refusal": "B"}]}), "A (refused) B"),
    (chat({"content": "let me look", "tool_calls": [CALL]}), 'let me look (calls) weather({"city": "Oslo"})'),
    (
        chat({"tool_calls": [{"type": "custom", "custom": {"name": "sql", "input": "select 1"}}]}),
        "(calls) sql(select 1)",
    ),
    (chat({"content": [{"type": "image_url", "image_url": {}}]}), "(image_url)"),
    (chat({"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}]}), "(only reasoning) hm"),
    (chat({"content": "", "reasoning_content": "let me see"}), "(only reasoning) let me see"),
    (chat({"content": None, "reasoning": "let me see"}), "(only reasoning) let me see"),
    (chat({"content": "<think>let me see"}), "(only reasoning) <think>let me see"),
    (chat({"content": "<think>hm</think>42"}), "<think>hm</think>42"),
    (chat({"content": None, "audio": {"id": "a"}}), "(audio)"),
    (chat({"content": ""}), "(no text)"),
    (chat({"content": "one"}, {"content": "two"}), "(1 of 2 choices) one"),
    ({"choices": [{"text": "completed"}]}, "completed"),
    ({"data": [{"embedding": [0.1, 0.2, 0.3]}]}, "(1 vector of 3 numbers)"),
    ({"data": [{"embedding": [0.1] * 1536}, {"embedding": [0.2] * 1536}]}, "(2 vectors of 1,536 numbers)"),
    ({"data": [{"embedding": "AAAAAAAAAAAAAAAA"}]}, "(1 vector of 3 numbers)"),
    ({"output": [{"type": "message", "content": [{"type": "output_text", "text": "hello"}]}]}, "hello"),
    ({"output": [{"type": "reasoning", "summary": [{"text": "hm"}]}, {"content": [{"text": "42"}]}]}, "42"),
    ({"output": [{"type": "reasoning", "summary": [{"type": "summary_text", "text": "hm"}]}]}, "(only reasoning) hm"),
    ({"output": [{"type": "message", "content": [{"type": "refusal", "refusal": "no"}]}]}, "(refused) no"),
    ({"output": [{"type": "function_call", "name": "weather", "arguments": "{}"}]}, "(calls) weather({})"),
    ({"output": [{"type": "web_search_call", "id": "w"}]}, "(web_search_call)"),
]


@pytest.mark.parametrize(("body", "words"), WORDS)
def test_each_kind_of_answer_has_its_words(body: dict[str, Any], words: str) -> None:
    assert seen(body).words == words


@pytest.mark.parametrize(
    ("body", "is_empty", "thinks"),
    [
        (chat({"content": "x"}), False, False),
        (chat({"content": " \n"}), True, False),
        (chat({"content": None, "tool_calls": [CALL]}), False, False),
        (chat({"content": "", "reasoning_content": "hm"}), True, True),
        (chat({"content": "<think> hm"}), True, True),
        (chat({"content": "x"}, {"content": ""}), True, False),
        ({"choices": []}, True, False),
        ({"data": [{"embedding": [1.0]}]}, False, False),
        ({"output": []}, True, False),
    ],
)
def test_empty_answers_and_those_that_only_think_are_told(body: dict[str, Any], is_empty: bool, thinks: bool) -> None:
    assert (seen(body).is_empty, seen(body).is_reasoning_only) == (is_empty, thinks)


def test_answers_that_say_the_same_are_alike_whatever_their_ids_are() -> None:
    one, same, other = (
        chat({"content": "a"}) | {"id": "1"},
        chat({"content": "a"}) | {"id": "2"},
        chat({"content": "b"}),
    )
    assert seen(one).mark == seen(same).mark != seen(other).mark
    assert seen({"data": [{"embedding": [1]}]}).mark != seen({"data": [{"embedding": [2]}]}).mark


def test_choices_keep_their_places_and_their_endings() -> None:
    body = chat({"content": "a"}, {"content": "b"})
    body["choices"][1]["finish_reason"] = "length"
    body["choices"].insert(1, None)
    assert [(one.text, one.finish_reason) for one in seen(body).choices] == [("a", None), ("", None), ("b", "length")]


@given(
    st.recursive(
        st.none() | st.booleans() | st.floats() | st.text(),
        lambda v: (
            st.lists(v)
            | st.dictionaries(
                st.sampled_from(
                    [
                        "choices",
                        "message",
                        "content",
                        "text",
                        "tool_calls",
                        "function",
                        "data",
                        "embedding",
                        "output",
                        "type",
                        "summary",
                        "refusal",
                        "reasoning",
                    ]
                ),
                v,
            )
        ),
        max_leaves=20,
    )
)
def test_no_json_is_too_strange(value: object) -> None:
    view = view_answer(json.dumps(value).encode())
    assert view is None or isinstance(view.words, str)


@pytest.mark.parametrize("raw", [b"", b"\xff\xfe", b"[1]", b'"text"', b"{", b"[" * 100_000, b'{"a": ' * 100_000])
def test_what_is_no_answer_is_none(raw: bytes) -> None:
    assert view_answer(raw) is None


@pytest.mark.parametrize(
    ("request_body", "asks"),
    [
        ({"response_format": {"type": "json_object"}}, True),
        ({"response_format": {"type": "json_schema", "json_schema": {}}}, True),
        ({"text": {"format": {"type": "json_schema"}}}, True),
        ({"guided_json": {"type": "object"}}, True),
        ({"structured_outputs": {"json": {}}}, True),
        ({"response_format": {"type": "text"}}, False),
        ({"response_format": "json"}, False),
        ({"text": "json"}, False),
        ({"structured_outputs": {"choice": ["a"]}}, False),
        ({}, False),
    ],
)
def test_a_request_for_json_is_known_by_its_fields(request_body: dict[str, Any], asks: bool) -> None:
    assert asks_for_json(request_body) is asks


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ('{"a": 1}', True),
        (" [1]\n", True),
        ("1", True),
        ('{"a": 1', False),
        ('```json\n{"a": 1}\n```', False),
        ("NaN", False),
        ("", False),
        ("[" * 100_000, False),
    ],
)
def test_json_is_json_and_nothing_around_it(text: str, answer: bool) -> None:
    assert is_json(text) is answer
