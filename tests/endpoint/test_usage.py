"""What a reply says of its tokens and its cost: counted where it is a count, and unknown, never 0, where it is not."""

from typing import Any

import pytest

from batchrun.core.outcome import Usage
from batchrun.core.states import AttemptState
from batchrun.endpoint.usage import read_usage, reported_pusd
from tests.endpoint.replies import chat, evidence, reply

PLAIN = {"prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120}


@pytest.mark.parametrize(
    ("more", "usage"),
    [
        ({"prompt_tokens_details": {"cached_tokens": 64}}, Usage(100, 20, cached_tokens=64)),
        ({"prompt_tokens_details": None, "completion_tokens_details": None}, Usage(100, 20)),
        ({"prompt_tokens_details": {"cached_tokens": -3}}, Usage(100, 20)),
        ({"prompt_tokens_details": {"cached_tokens": "64"}}, Usage(100, 20)),
        ({"prompt_cache_hit_tokens": 64, "prompt_cache_miss_tokens": 36}, Usage(100, 20, cached_tokens=64)),
        ({"cached_tokens": 64}, Usage(100, 20, cached_tokens=64)),
        (
            {"cache_read_input_tokens": 60, "cache_creation_input_tokens": 30},
            Usage(100, 20, cached_tokens=60, cache_write_tokens=30),
        ),
        ({"completion_tokens_details": {"reasoning_tokens": 15}}, Usage(100, 20, reasoning_tokens=15)),
        # Reasoning that the answer's count leaves out: the total has it, or it is more than the answer.
        (
            {"total_tokens": 420, "completion_tokens_details": {"reasoning_tokens": 300}},
            Usage(100, 20, reasoning_tokens=300, unnamed_tokens=300),
        ),
        ({"total_tokens": 150}, Usage(100, 20, unnamed_tokens=30)),
        (
            {"total_tokens": None, "completion_tokens_details": {"reasoning_tokens": 300}},
            Usage(100, 20, reasoning_tokens=300, unnamed_tokens=300),
        ),
        ({"total_tokens": 7}, Usage(100, 20)),
        ({"total_tokens": "120"}, Usage(100, 20)),
    ],
)
def test_what_providers_tell_beside_the_two_counts(more: dict[str, Any], usage: Usage) -> None:
    assert read_usage({"usage": PLAIN | more}) == usage


def test_responses_have_their_own_names_for_the_same() -> None:
    told = {
        "input_tokens": 100,
        "input_tokens_details": {"cached_tokens": 64},
        "output_tokens": 20,
        "output_tokens_details": {"reasoning_tokens": 15},
        "total_tokens": 120,
    }
    assert read_usage({"usage": told}) == Usage(100, 20, cached_tokens=64, reasoning_tokens=15)


@pytest.mark.parametrize(
    ("header", "cost", "pusd"),
    [
        ("0.0000123", None, 12_300_000),
        ("1.23e-05", None, 12_300_000),
        ("0.0", None, 0),
        (None, 0.00014, 140_000_000),
        ("9", 0.00014, 140_000_000),
        (None, {"total_cost": 0.006, "currency": "USD"}, 6_000_000_000),
        (None, 0, 0),
        ("None", None, None),
        ("", None, None),
        ("nan", None, None),
        ("inf", None, None),
        ("-1", None, None),
        ("1" * 400, None, None),
        ("2e6", None, None),
        ("0x10", None, None),
        (None, True, None),
        (None, [1], None),
        (None, {"total_cost": "a lot"}, None),
    ],
)
def test_the_endpoints_own_figure_is_kept_where_it_is_an_amount(header: str | None, cost: object, pusd: int) -> None:
    headers = {} if header is None else {"x-litellm-response-cost": header}
    assert reported_pusd(headers, {"usage": PLAIN | {"cost": cost}}) == pusd
    found = evidence(reply(200, chat(usage=PLAIN | {"cost": cost}), **{"x-litellm-response-cost": header or ""}))
    assert (found.outcome, found.reported_pusd) == (AttemptState.ANSWERED, pusd)


@pytest.mark.parametrize(
    "came",
    [
        reply(500, {"error": {"message": "boom"}}, **{"x-litellm-response-cost": "0.25"}),
        reply(200, {"choices": [], "usage": {"cost": 0.25}}),
        reply(200, {"error": {"message": "no", "code": 500}, "usage": {"cost": 0.25}}),
        reply(200, b"<html>", **{"x-litellm-response-cost": "0.25"}),
    ],
    ids=["refused", "no choices", "error inside", "page"],
)
def test_failed_attempts_keep_what_the_endpoint_says_they_cost(came: Any) -> None:
    found = evidence(came)
    assert found.outcome is not AttemptState.ANSWERED
    assert found.reported_pusd == 250_000_000_000
