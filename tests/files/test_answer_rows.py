"""An answer of any of the four endpoints becomes one row for each of its choices or vectors; nothing of it is lost."""

import base64
import json
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchrun.core.answer_view import view_answer
from batchrun.endpoint.answer import read_answer
from batchrun.files.answer_rows import AnswerRow, answer_rows, prompt_for, prompts_of

CALLS = [{"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"at": "sky"}'}}]


def raw(body: Any) -> bytes:
    return json.dumps(body).encode()


def chat(*messages: dict[str, Any], finish: str | None = "stop") -> bytes:
    return raw({"choices": [{"index": 0, "message": one, "finish_reason": finish} for one in messages]})


def asked(body: Any) -> list[str]:
    return prompts_of(raw(body))


@pytest.mark.parametrize(
    ("body", "rows"),
    [
        (chat({"role": "assistant", "content": "yes"}), [AnswerRow(0, "yes", None, "stop")]),
        (chat({"content": ""}, finish="length"), [AnswerRow(0, "", None, "length")]),
        (chat({"content": None, "refusal": "I will not"}), [AnswerRow(0, "I will not", None, "stop")]),
        (chat({"content": "  ", "refusal": "no"}), [AnswerRow(0, "no", None, "stop")]),
        (
            chat({"content": [{"type": "text", "text": "A"}, {"type": "refusal", "refusal": "B"}]}),
            [AnswerRow(0, "AB", None, "stop")],
        ),
        (chat({"content": None, "reasoning": "hm"}, finish="length"), [AnswerRow(0, "", None, "length")]),
        (chat({"content": None, "audio": {"id": "a"}}), [AnswerRow(0, None, None, "stop")]),
        (
            chat({"content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}),
            [AnswerRow(0, "ab", None, "stop")],
        ),
        (chat({"content": "a"}, {"content": "b"}), [AnswerRow(0, "a", None, "stop"), AnswerRow(1, "b", None, "stop")]),
        (raw({"choices": [{"text": "once", "finish_reason": None}]}), [AnswerRow(0, "once")]),
        (
            raw({"output": [{"type": "reasoning", "summary": []}, {"type": "message", "content": [{"text": "done"}]}]}),
            [AnswerRow(0, "done")],
        ),
        (
            raw({"output": [{"type": "message", "content": [{"type": "refusal", "refusal": "no"}]}]}),
            [AnswerRow(0, "no")],
        ),
        (
            raw({"data": [{"embedding": [1, 0.5]}, {"embedding": [-2.0]}]}),
            [AnswerRow(0, vector=[1, 0.5]), AnswerRow(1, vector=[-2.0])],
        ),
        (raw({"data": [{"embedding": ["no", "numbers"]}]}), [AnswerRow(0)]),
        (raw({"data": [{"embedding": "not base64!"}]}), [AnswerRow(0)]),
        (b"<html>", [AnswerRow(0, "<html>")]),
        (raw({"choices": []}), [AnswerRow(0, '{"choices": []}')]),
        (rb'{"choices": [{"text": "cut \ud83d"}]}', [AnswerRow(0, "cut \ud83d")]),
    ],
)
def test_an_answer_is_read_by_its_own_shape(body: bytes, rows: list[AnswerRow]) -> None:
    assert answer_rows(body) == rows


def test_calls_of_tools_stand_in_a_column_of_their_own() -> None:
    (row,) = answer_rows(chat({"content": None, "tool_calls": CALLS}, finish="tool_calls"))
    assert (row.text, row.finish_reason) == (None, "tool_calls")
    assert json.loads(row.tool_calls or "") == CALLS
    call = {"type": "function_call", "name": "look", "arguments": "{}"}
    (row,) = answer_rows(raw({"output": [call, {"type": "message", "content": "and"}]}))
    assert (row.text, json.loads(row.tool_calls or "")) == ("and", [call])
    old = {"name": "look", "arguments": "{}"}
    (row,) = answer_rows(chat({"content": "", "function_call": old}))
    assert (row.text, json.loads(row.tool_calls or "")) == (None, [old])


PARTS = st.fixed_dictionaries(
    {},
    optional={
        "content": st.none()
        | st.text(max_size=3)
        | st.lists(
            st.sampled_from(
                [
                    {"type": "text", "text": "A"},
                    {"type": "refusal", "refusal": "B"},
                    {"type": "image_url"},
                    {"text": ""},
                ]
            )
        ),
        "refusal": st.none() | st.sampled_from(["", "no"]),
        "tool_calls": st.none() | st.just([]) | st.just(CALLS),
        "reasoning_content": st.none() | st.text(max_size=2),
    },
)


@given(message=PARTS)
def test_what_is_exported_is_what_is_shown_and_an_empty_answer_is_empty_everywhere(message: dict[str, Any]) -> None:
    body = json.loads(chat(message))
    (row,) = answer_rows(raw(body))
    view = view_answer(raw(body))
    assert view is not None
    assert read_answer(body, "/v1/chat/completions").is_empty is view.is_empty
    if view.is_empty:
        assert not (row.text or "").strip()
        assert row.tool_calls is None
    else:
        assert (row.text or "").strip() or row.tool_calls or view.choices[0].other
        for part in (view.choices[0].text.strip(), view.choices[0].refusal):
            assert part in view.words
            assert part in (row.text or "")


def test_a_vector_in_base64_is_unpacked() -> None:
    packed = base64.b64encode(struct.pack("<3f", 0.5, -1.25, 3.0)).decode()
    (row,) = answer_rows(raw({"data": [{"embedding": packed}]}))
    assert list(row.vector or []) == [0.5, -1.25, 3.0]


NAMES = ["choices", "message", "content", "text", "output", "data", "embedding", "input", "prompt", "messages"]
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(NAMES),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(body=JSON)
def test_whatever_an_endpoint_says_becomes_rows(body: Any) -> None:
    rows = answer_rows(json.dumps(body).encode())
    assert [row.choice for row in rows] == list(range(len(rows)))
    assert rows
    prompts = prompts_of(json.dumps(body).encode())
    assert all(isinstance(prompt, str) for prompt in prompts)


@given(body=st.binary())
def test_whatever_bytes_come_become_rows(body: bytes) -> None:
    assert len(answer_rows(body)) >= 1
    assert isinstance(prompts_of(body), list)


@pytest.mark.parametrize(
    ("body", "prompts"),
    [
        ({"messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}]}, ["u"]),
        ({"messages": [{"role": "user", "content": "first"}, {"role": "assistant", "content": "then"}]}, ["first"]),
        ({"messages": [{"role": "developer", "content": "only"}]}, ["only"]),
        (
            {"messages": [{"role": "user", "content": [{"type": "text", "text": "what is"}, {"type": "image_url"}]}]},
            ["what is"],
        ),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, ['[{"type":"image_url"}]']),
        ({"prompt": "p"}, ["p"]),
        ({"prompt": ["p", "q"]}, ["p", "q"]),
        ({"prompt": [1, 2, 3]}, ["[1,2,3]"]),
        ({"prompt": [[1, 2], [3]]}, ["[1,2]", "[3]"]),
        ({"input": "i"}, ["i"]),
        ({"input": [{"role": "user", "content": [{"type": "input_text", "text": "i"}]}]}, ["i"]),
        ({"model": "m"}, []),
    ],
)
def test_what_was_asked_is_the_last_thing_the_user_said(body: dict[str, Any], prompts: list[str]) -> None:
    assert asked(body) == prompts


@pytest.mark.parametrize(
    ("prompts", "choices", "expected"),
    [
        (["p"], 3, ["p", "p", "p"]),
        (["p", "q"], 2, ["p", "q"]),
        (["p", "q"], 4, ["p", "p", "q", "q"]),
        (["p", "q"], 3, ['["p","q"]'] * 3),  # which is whose is not known
        ([], 1, [None]),
    ],
)
def test_of_several_prompts_each_choice_has_its_own(
    prompts: list[str], choices: int, expected: list[str | None]
) -> None:
    assert [prompt_for(prompts, choice=number, choices=choices) for number in range(choices)] == expected


def test_an_item_without_an_answer_has_all_of_its_prompts() -> None:
    assert prompt_for(["p", "q"], choice=None, choices=0) == '["p","q"]'
