"""An output line is one line of strict JSON, OpenAI Batch's format, with the endpoint's own words unchanged."""

import json
from dataclasses import replace
from typing import Any, NoReturn

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic_core import from_json

from batchrun.core.states import ItemState
from batchrun.files.outputs import Asked, OutputItem, answer_line, error_line

RAW = b'{"id": "chatcmpl-1", "choices": [{"message": {"content": "caf\\u00e9 \\n \xe2\x80\xa8"}}], "x": 1.50}'
ITEM = OutputItem(
    custom_id="q-1",
    state=ItemState.COMPLETED,
    attempts=2,
    attempt_id="att-7",
    status=200,
    request_id="req-9",
    response_id="chatcmpl-1",
    raw=RAW,
    finish_reason="stop",
    warning=None,
    prompt_tokens=11,
    completion_tokens=5,
    cost_usd="0.000021",
    endpoint="http://127.0.0.1:8000/v1",
    model="m",
    sent_at=1_767_323_045.6784,
    duration_s=1.25,
    cause=None,
    message=None,
    possible_cost_usd=None,
)
FAILED = replace(
    ITEM,
    state=ItemState.FAILED,
    raw=b'{"error": {"message": "no"}}',
    status=400,
    cause="bad_request",
    message="no such field",
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
)


def read(line: bytes) -> dict[str, Any]:
    """Read a line as strictly as anyone does."""
    assert line.endswith(b"\n")
    assert not set(b"\r\n") & set(line[:-1])
    read: dict[str, Any] = from_json(line, allow_inf_nan=False)
    assert json.loads(line) == read
    return read


def refuse(constant: str) -> NoReturn:
    raise ValueError(constant)


def test_an_answer_is_a_line_of_openai_batch_with_one_key_of_our_own() -> None:
    assert read(answer_line(ITEM)) == {
        "id": "att-7",
        "custom_id": "q-1",
        "response": {"status_code": 200, "request_id": "req-9", "body": json.loads(RAW)},
        "error": None,
        "batchrun": {
            "attempts": 2,
            "attempt_id": "att-7",
            "state": "completed",
            "timings": {"sent_at": "2026-01-02T03:04:05.678Z", "duration_s": 1.25},
            "usage": {"prompt_tokens": 11, "completion_tokens": 5},
            "cost_usd": "0.000021",
            "possible_cost_usd": None,
            "endpoint": "http://127.0.0.1:8000/v1",
            "model": "m",
            "response_id": "chatcmpl-1",
            "finish_reason": "stop",
            "warning": None,
            "cached_from": None,
        },
    }


def test_the_endpoints_json_is_spliced_in_byte_for_byte() -> None:
    assert b'"body":' + RAW + b"}" in answer_line(ITEM)


@given(
    body=JSON, indent=st.sampled_from([None, 0, 2]), ensure_ascii=st.booleans(), newline=st.sampled_from(["\n", "\r\n"])
)
def test_any_json_of_an_endpoint_stands_on_one_line_with_its_value(
    body: Any, indent: int | None, ensure_ascii: bool, newline: str
) -> None:
    raw = json.dumps(body, indent=indent, ensure_ascii=ensure_ascii).replace("\n", newline).encode()
    got = read(answer_line(replace(ITEM, raw=raw)))["response"]["body"]
    assert json.dumps(got) == json.dumps(body)


@given(
    raw=st.binary() | st.sampled_from([b'{"a": NaN}', b"<html>\r\n</html>", b'{"a": 1}\n{"b": 2}', b'"\xff"', b"{}\0"])
)
def test_what_is_no_json_is_never_spliced_in(raw: bytes) -> None:
    got = read(answer_line(replace(ITEM, raw=raw)))["response"]["body"]
    try:
        expected = json.loads(raw.decode(), parse_constant=refuse)
    except ValueError:
        expected = raw.decode("utf-8", "replace")
    assert got == expected


def test_half_a_surrogate_pair_in_an_answer_stays_as_the_endpoint_wrote_it() -> None:
    line = answer_line(replace(ITEM, raw=rb'{"content": "cut \ud83d"}'))
    assert rb'"body":{"content": "cut \ud83d"}' in line
    assert json.loads(line)["response"]["body"]["content"] == "cut \ud83d"


def test_equal_items_give_equal_bytes() -> None:
    assert answer_line(ITEM) == answer_line(replace(ITEM))
    assert error_line(FAILED) == error_line(replace(FAILED))


def test_a_failure_says_its_cause_and_keeps_a_small_body() -> None:
    got = read(error_line(FAILED))
    assert got["error"] == {"code": "bad_request", "message": "no such field"}
    assert got["response"] == {"status_code": 400, "request_id": "req-9", "body": {"error": {"message": "no"}}}
    assert got["batchrun"]["state"] == "failed"


@pytest.mark.parametrize("raw", [None, b"<html>too large</html>", json.dumps({"echo": "x" * 1_000_000}).encode()])
def test_a_failure_holds_no_web_page_and_no_large_body(raw: bytes | None) -> None:
    line = error_line(replace(FAILED, status=413, raw=raw, message="413 " * 100_000))
    assert read(line)["response"] == {"status_code": 413, "request_id": "req-9", "body": None}
    assert len(line) < 4_000


def test_a_doubt_says_the_most_that_it_may_have_cost() -> None:
    doubt = replace(
        ITEM, state=ItemState.IN_DOUBT, status=None, raw=None, cost_usd=None, possible_cost_usd="0.01", cause="timeout"
    )
    got = read(error_line(doubt))
    assert got["response"] is None
    assert got["error"]["code"] == "timeout"
    assert (got["batchrun"]["cost_usd"], got["batchrun"]["possible_cost_usd"]) == (None, "0.01")


@pytest.mark.parametrize("state", [ItemState.REJECTED, ItemState.CANCELLED])
def test_what_was_never_sent_has_no_attempt_and_is_named_by_its_state(state: ItemState) -> None:
    never = replace(
        ITEM, state=state, attempts=0, attempt_id=None, status=None, raw=None, sent_at=None, duration_s=None
    )
    got = read(error_line(never))
    assert (got["id"], got["response"], got["error"]["code"]) == (None, None, state.value)
    assert got["error"]["message"]
    assert got["batchrun"]["timings"] == {"sent_at": None, "duration_s": None}


def test_broken_text_in_a_message_cannot_break_the_line() -> None:
    assert (
        read(error_line(replace(FAILED, message="cut \ud83d\n\u2028\0")))["error"]["message"] == "cut \ufffd\n\u2028\0"
    )


def test_what_was_asked_stands_in_our_own_key() -> None:
    body = b'{"messages":[{"role":"user","content":"\xe2\x80\xa8"}]}'
    asked = Asked("/v1/chat/completions", body, {"id": 1, "x": ["\ud83d", None]})
    for line in (answer_line(replace(ITEM, asked=asked)), error_line(replace(FAILED, asked=asked))):
        assert read(line)["batchrun"]["input"] == {
            "path": "/v1/chat/completions",
            "body": json.loads(body),
            "row": {"id": 1, "x": ["\ufffd", None]},
        }
        assert b'"body":' + body in line
    rejected = replace(ITEM, state=ItemState.REJECTED, raw=None, status=None, asked=Asked(None, None, {"id": 1}))
    assert read(error_line(rejected))["batchrun"]["input"] == {"path": None, "body": None, "row": {"id": 1}}
    assert "input" not in read(answer_line(ITEM))["batchrun"]
