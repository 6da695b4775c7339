"""Retry-After in all its spellings, as a table."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchrun.endpoint.retry_after import retry_after_s

NOW = 1_700_000_000.0  # Tue, 14 Nov 2023 22:13:20 GMT
DAY_S = 86_400.0


@pytest.mark.parametrize(
    ("headers", "wait_s"),
    [
        ({}, None),
        ({"retry-after": "3"}, 3.0),
        ({"retry-after": " 3 "}, 3.0),
        ({"retry-after": "0"}, 0.0),
        ({"retry-after": "1.5"}, 1.5),
        ({"retry-after": "600"}, 600.0),
        ({"retry-after": "-5"}, 0.0),
        ({"retry-after": "86401"}, DAY_S),
        ({"retry-after": "9" * 400}, DAY_S),
        ({"retry-after": "inf"}, DAY_S),
        ({"retry-after": "-inf"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "soon"}, None),
        ({"retry-after": ""}, None),
        ({"retry-after": "1_0"}, None),
        ({"retry-after": "1e3"}, None),
        ({"retry-after": "\u0663"}, None),
        ({"retry-after": "Tue, 14 Nov 2023 22:13:25 GMT"}, 5.0),
        ({"retry-after": "Tue, 14 Nov 2023 22:13:25 -0000"}, 5.0),
        ({"retry-after": "Tue, 14 Nov 2023 22:13:25"}, 5.0),
        ({"retry-after": "Tue, 14 Nov 2023 23:13:25 +0100"}, 5.0),
        ({"retry-after": "Tuesday, 14-Nov-23 22:13:25 GMT"}, 5.0),
        ({"retry-after": "Tue, 14 Nov 2023 22:00:00 GMT"}, 0.0),
        ({"retry-after": "Tue, 14 Nov 2033 22:00:00 GMT"}, DAY_S),
        ({"retry-after": "Tue, 99 Nov 2023 22:13:25 GMT"}, None),
        ({"retry-after-ms": "1500"}, 1.5),
        ({"retry-after-ms": "1200", "retry-after": "2"}, 1.2),
        ({"retry-after-ms": "junk", "retry-after": "2"}, 2.0),
        ({"retry-after-ms": "Tue, 14 Nov 2023 22:13:25 GMT"}, None),
        ({"llm_provider-retry-after": "7"}, 7.0),
        ({"llm_provider-retry-after-ms": "700"}, 0.7),
        ({"llm_provider-retry-after": "7", "retry-after": "2"}, 2.0),
    ],
)
def test_a_wait_is_read_in_every_spelling(headers: dict[str, str], wait_s: float | None) -> None:
    assert retry_after_s(headers, now=NOW) == (pytest.approx(wait_s) if wait_s is not None else None)


@given(st.text(max_size=60), st.text(max_size=20))
def test_whatever_stands_there_gives_a_wait_within_a_day_or_none(text: str, milliseconds: str) -> None:
    wait_s = retry_after_s({"retry-after": text, "retry-after-ms": milliseconds}, now=NOW)
    assert wait_s is None or (math.isfinite(wait_s) and 0 <= wait_s <= DAY_S)
