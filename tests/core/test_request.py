"""A line becomes exactly the request that its author meant, with an identity and a bound on its cost."""

import json
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchrun.core.client_options import CLIENT_OPTIONS
from batchrun.core.request import Defaults, LineFault, build_request, draft_request
from batchrun.core.spec import JobSpec
from batchrun.errors import BadInput
from tests.core.lines import CHAT, DEFAULTS, HELLO, batch_line, fault_of, sent
from tests.core.specs import parse_spec

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**40), 10**40)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)
OWN_FIELDS = {"model", "max_tokens", "max_completion_tokens", "max_output_tokens", "n", "best_of", "stream", "messages"}
LINE_FIELDS = st.sampled_from(
    [
        "custom_id",
        "id",
        "method",
        "url",
        "body",
        "messages",
        "prompt",
        "input",
        "model",
        "max_tokens",
        "n",
        "stream",
        "role",
    ]
)


def test_the_line_wins_over_the_job_and_the_job_fills_what_is_missing() -> None:
    defaults = Defaults("job-model", 256, CHAT, {"temperature": 0.5, "top_k": 20})
    line = batch_line({"messages": HELLO, "model": "other", "temperature": 0, "max_tokens": 8})
    assert sent(line, defaults) == {"messages": HELLO, "model": "other", "temperature": 0, "max_tokens": 8, "top_k": 20}
    assert build_request(line, defaults).model == "other"
    assert build_request(batch_line({"messages": HELLO}), defaults).model == "job-model"


def test_null_names_no_model_and_no_limit() -> None:
    body = {"messages": HELLO, "model": None, "max_tokens": None, "temperature": None}
    defaults = Defaults("job-model", 256, CHAT, {"temperature": 0.5})
    assert sent(batch_line(body), defaults) == {**body, "model": "job-model", "max_tokens": 256}


@pytest.mark.parametrize("name", ["max_tokens", "max_completion_tokens", "max_output_tokens"])
def test_a_limit_of_the_lines_own_under_any_name_is_the_only_one(name: str) -> None:
    defaults = Defaults("m", 256, CHAT, {"max_completion_tokens": 99})
    assert sent(batch_line({"messages": HELLO, name: 5}), defaults) == {"messages": HELLO, name: 5, "model": "m"}


def test_a_limit_in_params_goes_before_the_jobs_max_tokens() -> None:
    defaults = Defaults("m", 256, CHAT, {"max_completion_tokens": 99})
    request = build_request(batch_line({"messages": HELLO}), defaults)
    assert json.loads(request.body) == {"messages": HELLO, "model": "m", "max_completion_tokens": 99}
    assert request.max_output_tokens == 99


def test_responses_are_limited_by_their_own_field_and_embeddings_by_none() -> None:
    defaults = Defaults("m", 256, CHAT, {})
    assert sent(batch_line({"input": "x"}, url="/v1/responses"), defaults)["max_output_tokens"] == 256
    assert sent(batch_line({"input": "x"}, url="/v1/embeddings"), defaults) == {"input": "x", "model": "m"}


@pytest.mark.parametrize(
    ("url", "body", "tokens"),
    [
        (CHAT, {"messages": HELLO}, 256),
        (CHAT, {"messages": HELLO, "max_tokens": 10, "max_completion_tokens": 30}, 30),
        (CHAT, {"messages": HELLO, "max_tokens": 10, "n": 4}, 40),
        (CHAT, {"messages": HELLO, "n": None}, 256),
        ("/v1/completions", {"prompt": "a", "n": 2, "best_of": 5}, 1280),
        ("/v1/completions", {"prompt": ["a", "b", "c"], "max_tokens": 10}, 30),
        ("/v1/completions", {"prompt": [1, 2, 3], "max_tokens": 10}, 10),
        ("/v1/completions", {"prompt": "score me", "max_tokens": 0}, 0),
        ("/v1/responses", {"input": "x"}, 256),
        ("/v1/embeddings", {"input": ["x", "y"]}, 0),
    ],
)
def test_the_most_that_can_be_billed_as_output_follows_from_what_is_sent(
    url: str, body: dict[str, Any], tokens: int
) -> None:
    assert build_request(batch_line(body, url=url), DEFAULTS).max_output_tokens == tokens


@given(vendor=st.dictionaries(st.text(), JSON, max_size=5))
def test_any_field_passes_unchanged_in_value_and_type(vendor: dict[str, Any]) -> None:
    kept = {name: value for name, value in vendor.items() if name not in OWN_FIELDS | CLIENT_OPTIONS}
    body = {"messages": HELLO, **kept}
    request = build_request(batch_line(body), DEFAULTS)
    # As text, so that 1, 1.0 and true are told apart.
    assert json.dumps(json.loads(request.body)) == json.dumps({**body, "model": "job-model", "max_tokens": 256})
    assert request.note is None


@given(line=st.dictionaries(LINE_FIELDS, JSON | st.just(HELLO) | st.just({"messages": HELLO}), max_size=8) | JSON)
def test_any_json_value_becomes_a_request_or_a_fault(line: object) -> None:
    with suppress(LineFault):
        request = build_request(line, DEFAULTS)
        assert isinstance(json.loads(request.body), dict)
        assert request.max_output_tokens >= 0


@given(value=JSON | st.text(min_size=200), field=LINE_FIELDS)
def test_no_message_repeats_more_than_sixty_characters_of_a_value(value: object, field: str) -> None:
    line = {**batch_line({"messages": HELLO}), field: value}
    with suppress(LineFault):
        build_request(line, DEFAULTS)
        return
    assert len(fault_of(line).what) < 300


def test_server_specific_fields_stay_at_the_top_level() -> None:
    body = {"messages": HELLO, "top_k": 20, "guided_json": {"type": "object"}, "zz": [1, None], "big": 2**70}
    assert sent(batch_line(body)) == {**body, "model": "job-model", "max_tokens": 256}


def test_lone_surrogates_are_replaced_everywhere_and_the_change_is_noted() -> None:
    body = {
        "messages": [{"role": "user", "content": "cut \ud83d"}],
        "\udc00": {"deep": ["\ud800\ud800", "whole \U0001f44d"]},
    }
    request = build_request(batch_line(body), DEFAULTS)
    got = json.loads(request.body)
    assert got["messages"][0]["content"] == "cut \ufffd"
    assert got["\ufffd"]["deep"] == ["\ufffd\ufffd", "whole \U0001f44d"]
    assert request.note == "4 lone surrogates replaced by U+FFFD"


def test_no_field_is_lost_when_two_broken_names_become_alike() -> None:
    broken = dict(zip(["\ud800", "\ud801", "\ufffd"], [1, 2, 3], strict=True))
    got = sent(batch_line({"messages": HELLO, **broken}))
    assert sorted(value for name, value in got.items() if "\ufffd" in name) == [1, 2, 3]


def test_a_body_nested_too_deep_is_a_fault() -> None:
    nest: Any = "\ud83d"
    for _ in range(5_000):
        nest = [nest]
    assert "nested" in fault_of(batch_line({"messages": HELLO, "x": nest})).what


def test_equal_requests_have_equal_digests_and_different_ones_have_not() -> None:
    one = draft_request(batch_line({"input": "x"}, url="/v1/responses"), DEFAULTS)
    same = draft_request(batch_line({"input": "x"}, url="/v1/responses", custom_id="q-2"), DEFAULTS)
    other = draft_request(batch_line({"input": "y"}, url="/v1/responses"), DEFAULTS)
    elsewhere = draft_request(batch_line({"input": "x"}, url="/v1/embeddings"), DEFAULTS)
    digest = one.request().digest
    assert (len(digest), len(one.content_key)) == (16, 8)
    assert (digest, one.content_key) == (same.request().digest, same.content_key)
    assert len({digest, other.request().digest, elsewhere.request().digest}) == 3
    assert len({one.content_key, other.content_key, elsewhere.content_key}) == 3


def test_a_changed_default_changes_the_request_and_renames_nothing() -> None:
    one = draft_request({"messages": HELLO}, DEFAULTS)
    other = draft_request({"messages": HELLO}, Defaults("job-model", 512, CHAT, {"seed": 1}))
    assert one.request().digest != other.request().digest
    assert one.content_key == other.content_key


def spec(params: str) -> JobSpec:
    keys = '"task_id": "t", "model": "m", "input_file": "i", "output_file": "o", "max_tokens": 9, "concurrency": 1'
    return parse_spec(f'{{{keys}, "retry_times": 0, "params": {params}}}', where="job.json")


def test_defaults_are_those_of_the_spec() -> None:
    assert Defaults.of(spec('{"top_k": 5}')) == Defaults("m", 9, CHAT, {"top_k": 5})


def test_the_digest_of_the_defaults_goes_by_what_they_say() -> None:
    one = Defaults("m", 9, CHAT, {"a": 1, "b": [2]})
    same = Defaults("m", 9, CHAT, {"b": [2], "a": 1})
    others = [
        replace(one, model="n"),
        replace(one, max_tokens=8),
        replace(one, params={"a": 1}),
        replace(one, endpoint=""),
    ]
    assert one.digest() == same.digest()
    assert len({default.digest() for default in [one, *others]}) == 5


def test_the_digest_of_the_defaults_is_the_same_in_every_release() -> None:
    assert Defaults("m", 256, CHAT, {"seed": 1}).digest().hex() == "1579b25b40e5ef528874bef28b54cd97"


@pytest.mark.parametrize("params", ['{"api_key": "sk-x"}', '{"extra_headers": {"X": "sk-x"}}', '{"x": [1e999]}'])
def test_params_hold_no_credentials_and_no_infinite_number(params: str) -> None:
    with pytest.raises(BadInput) as caught:
        Defaults.of(spec(params))
    assert "sk-x" not in str(caught.value.faults)
