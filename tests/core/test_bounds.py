"""Whether a request's text bounds what it can cost, and what bounds it otherwise."""

import json
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batchrun.core.bounds import beyond_text, most_pusd
from batchrun.core.prices import Price
from tests.examples import drawn

PRICE = Price(input_per_1m_usd=Decimal(1), output_per_1m_usd=Decimal(2))
PICTURE = {"type": "image_url", "image_url": {"url": "https://example.com/cat.png"}}
TEXT = {"type": "text", "text": "what is this?"}


def compact(body: dict[str, Any]) -> bytes:
    return json.dumps(body, separators=(",", ":")).encode()


def chat(*content: object, **more: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": list(content)}], **more}


@pytest.mark.parametrize(
    ("body", "named"),
    [
        (chat(TEXT, PICTURE), "image_url"),
        (chat({"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}}), "input_audio"),
        (chat({"type": "file", "file": {"file_id": "file-1"}}), "file"),
        (chat({"type": "video_url", "video_url": {"url": "x"}}), "video_url"),
        (chat({"type": "a_part_of_next_year"}), "a_part_of_next_year"),
        (chat({"image_url": {"url": "x"}}), "image_url"),
        (chat({"text": "look", "image": "x"}), "image"),
        (chat({"type": ["text"]}), "text"),
        ({"input": [{"type": {}}]}, "type"),
        ({"messages": [{"role": "user", "content": "who won?"}], "tools": [{"google_search": {}}]}, "google_search"),
        ({"messages": [{"role": "assistant", "audio": {"id": "audio_1"}}]}, "sound"),
        (chat(TEXT, tools=[{"type": "web_search"}]), "web_search"),
        (chat(TEXT, web_search_options={"search_context_size": "low"}), "web_search_options"),
        (chat(TEXT, chat_template="{% for i in range(9999) %}{{ messages }}{% endfor %}"), "chat_template"),
        ({"input": "go on", "previous_response_id": "resp_1"}, "previous_response_id"),
        ({"input": "go on", "conversation": "conv_1"}, "conversation"),
        ({"prompt": {"id": "pmpt_1"}}, "stored 'prompt'"),
        ({"input": [{"type": "item_reference", "id": "msg_1"}]}, "item_reference"),
        ({"input": [{"role": "user", "content": [{"type": "input_image", "file_id": "f"}]}]}, "input_image"),
        (
            {"input": [{"type": "function_call_output", "output": [{"type": "input_file", "file_id": "f"}]}]},
            "input_file",
        ),
    ],
)
def test_what_is_more_than_text_is_named_and_has_no_most_but_the_users(body: dict[str, Any], named: str) -> None:
    raw = compact(body)
    assert named in str(beyond_text(raw))
    assert most_pusd(PRICE, body=raw, max_output_tokens=10, max_prompt_tokens=None) is None
    assert most_pusd(PRICE, body=raw, max_output_tokens=10, max_prompt_tokens=1_000) == (1_000 + 20) * 10**6


@pytest.mark.parametrize(
    "body",
    [
        chat(TEXT),
        chat({"text": "parts may have no type"}),
        {"messages": [{"role": "user", "content": 'say "type":"image_url" and "previous_response_id"'}]},
        chat(TEXT, tools=[{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]),
        chat(TEXT, response_format={"type": "json_schema", "json_schema": {"schema": {"type": "string"}}}),
        chat(TEXT, tools=[{"type": "function", "function": {"parameters": {"properties": {"type": {"const": "x"}}}}}]),
        chat(TEXT, audio=None, previous_response_id=None),
        {"prompt": ["a", "b"]},
        {"prompt": [1, 2, 3]},
        {"input": [{"type": "message", "content": [{"type": "input_text", "text": "a"}]}, {"role": "user"}]},
        {"input": ["a", "b"]},
    ],
)
def test_text_is_bounded_by_its_bytes_whatever_it_says(body: dict[str, Any]) -> None:
    raw = compact(body)
    assert beyond_text(raw) is None
    most = most_pusd(PRICE, body=raw, max_output_tokens=10, max_prompt_tokens=7)
    assert most == (len(raw) + 20) * 10**6


NAMES = st.sampled_from(["type", "text", "content", "input", "output", "messages", "tools", "audio", "prompt", "role"])
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3) | st.sampled_from(["text", "message", "function"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=4),
    max_leaves=12,
)


@settings(max_examples=drawn(600), deadline=None)
@given(st.dictionaries(NAMES, ANYTHING, max_size=5))
def test_whatever_a_line_holds_it_is_bounded_or_named(body: dict[str, Any]) -> None:
    named = beyond_text(compact(body))
    assert named is None or named.isprintable()


def test_a_name_is_told_only_so_far() -> None:
    assert len(str(beyond_text(compact(chat({"type": "x" * 10_000}))))) <= 60


def test_what_costs_nothing_is_bounded_whatever_it_asks_for() -> None:
    free = Price(input_per_1m_usd=Decimal(0), output_per_1m_usd=Decimal(0))
    raw = compact(chat(PICTURE))
    assert most_pusd(free, body=raw, max_output_tokens=10, max_prompt_tokens=None) == 0
    assert most_pusd(None, body=raw, max_output_tokens=10, max_prompt_tokens=5) is None
