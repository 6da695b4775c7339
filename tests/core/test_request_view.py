"""What a person sees of a request: what it asks last, and within which limits."""

from typing import Any

import pytest

from batchrun.core.request_view import limits_words, prompt_words, read_request


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"messages": [{"role": "user", "content": "hi"}]}, "user: hi"),
        (
            {"messages": [{"role": "system", "content": "be brief"}, {"role": "user", "content": "hi"}]},
            "user (and 1 before): hi",
        ),
        (
            {"messages": [{"role": "user", "content": [{"type": "image_url"}, {"type": "text", "text": "what?"}]}]},
            "user: (image_url) what?",
        ),
        ({"prompt": "Once upon"}, "Once upon"),
        ({"prompt": ["one", "two"]}, "one two"),
        ({"prompt": [1, 2, 3]}, "(3 tokens)"),
        ({"input": "embed me"}, "embed me"),
        ({"input": [{"role": "user", "content": [{"type": "input_text", "text": "hi"}]}]}, "user: hi"),
        ({"input": ["a", "b"]}, "a b"),
        ({"messages": []}, ""),
        ({"messages": "x"}, ""),
        ({}, ""),
    ],
)
def test_the_last_thing_asked_is_shown(body: dict[str, Any], words: str) -> None:
    assert prompt_words(body) == words


def test_limits_are_those_that_are_numbers() -> None:
    assert (
        limits_words({"max_tokens": 64, "temperature": 0.5, "n": None, "seed": "x"}) == "max_tokens 64, temperature 0.5"
    )


def test_a_body_that_is_gone_or_no_object_is_an_empty_request() -> None:
    assert read_request(b"") == read_request(b"[1]") == read_request(b"{") == {}
