"""The most tokens that a model takes, as servers word it."""

import pytest

from batchrun.endpoint.problem import context_limit


@pytest.mark.parametrize(
    ("words", "limit"),
    [
        ("This model's maximum context length is 4097 tokens. However, you requested 5000 tokens", 4097),
        ("This model's maximum context length is 131,072 tokens", 131_072),
        ("The decoder prompt (length 3000) is longer than the maximum model length of 2048", 2048),
        ("'max_tokens' is too large: 4096. This model's maximum context length is 2048 tokens and", 2048),
        ("the request exceeds the available context size (4096 tokens), try increasing it", 4096),
        ("prompt is too long: 200001 tokens > 200000 maximum", 200_000),
        ("The input token count (1048577) exceeds the maximum number of tokens allowed (1048575).", 1_048_575),
        ("Prompt contains 40000 tokens, too large for model with 32768 maximum context length", 32_768),
        ("`inputs` tokens + `max_new_tokens` must be <= 2048. Given: 2000", 2048),
        ("the prompt is too long", None),
        ("maximum context length is 0 tokens", None),
        ("maximum context length is 99999999999999999999 tokens", None),
        ("", None),
    ],
)
def test_the_limit_is_found_where_it_is_told(words: str, limit: int | None) -> None:
    assert context_limit(words) == limit
