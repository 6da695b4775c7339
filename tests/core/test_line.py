"""Every line is recognised as what it is, and what is no request says what to change."""

from dataclasses import replace
from typing import Any

import pytest

from batchrun.core.line import own_path
from batchrun.core.request import Defaults, build_request
from tests.core.lines import CHAT, DEFAULTS, HELLO, batch_line, fault_of, sent


def test_a_batch_line_is_sent_to_its_url_under_its_id() -> None:
    request = build_request(batch_line({"prompt": "hello"}, url="/v1/completions"), DEFAULTS)
    assert (request.custom_id, request.path) == ("q-1", "/v1/completions")


@pytest.mark.parametrize(
    ("endpoint", "field"),
    [(CHAT, "messages"), ("/v1/completions", "prompt"), ("/v1/embeddings", "input"), ("/v1/responses", "input")],
)
def test_a_bare_body_goes_to_the_jobs_endpoint(endpoint: str, field: str) -> None:
    content = HELLO if field == "messages" else "hello"
    request = build_request({field: content}, Defaults("m", 9, endpoint, {}))
    assert (request.custom_id, request.path) == (None, endpoint)


@pytest.mark.parametrize(
    "fields", [{"custom_id": "a"}, {"id": "a"}, {"custom_id": "a", "id": "b"}, {"custom_id": None, "id": "a"}]
)
def test_the_id_beside_a_bare_body_is_taken_and_not_sent(fields: dict[str, Any]) -> None:
    assert build_request({**fields, "messages": HELLO}, DEFAULTS).custom_id == "a"
    assert sent({**fields, "messages": HELLO}) == {"messages": HELLO, "model": "job-model", "max_tokens": 256}


def test_a_batch_line_without_url_and_method_goes_to_the_jobs_endpoint() -> None:
    assert build_request({"custom_id": "a", "body": {"messages": HELLO}}, DEFAULTS).path == CHAT


@pytest.mark.parametrize(("field", "path"), [("prompt", "/v1/completions"), ("input", "/v1/embeddings")])
def test_a_bare_body_of_another_kind_than_the_endpoint_names_the_endpoint_to_set(field: str, path: str) -> None:
    fault = fault_of({field: "hello"})
    assert f"'{field}'" in fault.what
    assert f'"endpoint": "{path}"' in str(fault.hint)


def test_a_body_with_the_fields_of_two_kinds_goes_by_the_jobs_endpoint() -> None:
    assert sent({"messages": HELLO, "prompt": "a vendor's own"})["prompt"] == "a vendor's own"


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ([1, 2], "is an array, not an object"),
        ("hello", "is a string, not an object"),
        (None, "is null, not an object"),
        (42, "is a number, not an object"),
        (True, "is true or false, not an object"),
        ({}, "fields found: none"),
        ({"custom_id": "a5"}, "fields found: custom_id;"),
        ({"question": "why?", "answer": "because"}, "fields found: question, answer;"),
        ({"key": "r0", "request": {"contents": []}}, "is of Gemini's batch format (fields found: key, request;"),
        ({"custom_id": "a", "params": {"messages": HELLO}}, "is of Anthropic's batch format"),
        ({"recordId": "a", "modelInput": {"x": 1}}, "is of Bedrock's batch format"),
        (batch_line("text"), "'body' must be an object, found a string"),
        ({"custom_id": "c", "method": "POST", "url": CHAT}, "'body' is missing"),
        ({"custom_id": "c", "method": "POST", "url": CHAT, "messages": HELLO}, "'body' is missing"),
        (batch_line({"messages": HELLO}, method="GET"), "'method' must be POST, found \"GET\""),
        (batch_line({"messages": HELLO}, max_tokens=5), "'max_tokens' stands beside 'body' and would not be sent"),
        (batch_line({"messages": HELLO}, url="/v1/moderations"), 'found "/v1/moderations"'),
        (batch_line({"messages": HELLO}, url=7), "'url' must be one of"),
    ],
)
def test_what_is_no_request_is_named(line: object, words: str) -> None:
    assert words in fault_of(line).what


def test_the_fields_wanted_are_named_beside_those_found() -> None:
    assert "fields wanted: custom_id, method, url, body" in fault_of({"key": "r0", "request": {}}).what


@pytest.mark.parametrize(
    "url", ["https://user:hunter2@host.example/v1/chat/completions?key=hunter2", "//host/v1/completions"]
)
def test_a_full_address_is_refused_and_not_repeated(url: str) -> None:
    fault = fault_of(batch_line({"messages": HELLO}, url=url))
    assert "full address" in fault.what
    assert "OPENAI_BASE_URL" in str(fault.hint)
    assert "hunter2" not in f"{fault.what} {fault.hint}"


def test_a_url_without_its_version_is_corrected_in_the_hint() -> None:
    assert fault_of(batch_line({"input": "x"}, url="/embeddings")).hint == 'write "url": "/v1/embeddings"'


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({}, "'messages' is missing"),
        ({"messages": None}, "'messages' is null"),
        ({"messages": []}, "'messages' is empty"),
        ({"messages": "hi"}, "'messages' must be an array of objects, found a string"),
        ({"messages": ["hi"]}, "'messages[0]' must be an object, found a string"),
        ({"messages": [*HELLO, {"content": "hi"}]}, "'messages[1].role' must be a string, it is missing"),
        ({"messages": [{"role": 1}]}, "'messages[0].role' must be a string, found a number"),
        ({"messages": HELLO, "model": ""}, "'model' must be a name"),
        ({"messages": HELLO, "model": 5}, "'model' must be a name, found 5"),
        (
            {"messages": HELLO, "max_tokens": "256"},
            "'max_tokens' must be a whole number from 0 to 100,000,000, found \"256\"",
        ),
        ({"messages": HELLO, "max_tokens": -1}, "found -1"),
        ({"messages": HELLO, "max_tokens": True}, "found true"),
        ({"messages": HELLO, "max_tokens": 10**30}, "found 1000000000"),
        ({"messages": HELLO, "n": 0}, "'n' must be a whole number from 1"),
        ({"messages": HELLO, "x": [1, {"y": float("inf")}]}, "too large"),
    ],
)
def test_a_body_that_cannot_be_sent_is_named_with_what_was_seen(body: dict[str, Any], words: str) -> None:
    fault = fault_of(batch_line(body))
    assert words in fault.what
    assert fault.custom_id == "q-1"


@pytest.mark.parametrize(
    ("url", "body", "words"),
    [
        ("/v1/completions", {"messages": HELLO}, "'prompt' is missing"),
        ("/v1/completions", {"prompt": ""}, "'prompt' is empty"),
        ("/v1/completions", {"prompt": {"a": 1}}, "'prompt' must be a string or an array, found an object"),
        ("/v1/embeddings", {"input": []}, "'input' is empty"),
        ("/v1/responses", {"input": 3}, "'input' must be a string or an array, found a number"),
        ("/v1/responses", {"input": "x", "background": True}, "'background' is true"),
    ],
)
def test_every_path_needs_its_own_field(url: str, body: dict[str, Any], words: str) -> None:
    assert words in fault_of(batch_line(body, url=url)).what


@pytest.mark.parametrize(
    ("line", "hint"),
    [
        ("hello", 'write one object a line: {"messages": [{"role": "user", "content": "..."}]}'),
        ([{}], "write one object a line: jq -c '.[]' OLD > NEW"),
        (batch_line({"messages": HELLO}, custom_id="x" * 501), "shorten it"),
        (batch_line({}), 'write "messages": [{"role": "user", "content": "..."}]'),
        (batch_line({"messages": "hi"}), 'write "messages": [{"role": "user", "content": "..."}]'),
        (batch_line({"messages": []}), 'write "messages": [{"role": "user", "content": "..."}]'),
        (batch_line({"messages": ["hi"]}), 'write {"role": "user", "content": "..."}'),
        (batch_line({"messages": [{"content": "hi"}]}), 'write {"role": "user", "content": "..."}'),
        (batch_line({"prompt": {}}, url="/v1/completions"), 'write "prompt": "..."'),
        (batch_line({"input": ""}, url="/v1/embeddings"), 'write "input": "..."'),
        (batch_line({"messages": HELLO}, url="/v1/completions"), 'write "url": "/v1/chat/completions"'),
        (batch_line({"messages": HELLO, "max_tokens": "256"}), "write 256 without quotes"),
        (batch_line({"messages": HELLO, "n": 0}), "write such a number, or take it out"),
    ],
)
def test_what_cannot_be_sent_says_what_to_write(line: object, hint: str) -> None:
    assert fault_of(line).hint == hint


@pytest.mark.parametrize(
    ("line", "path"),
    [
        (batch_line({"messages": HELLO}), CHAT),
        (batch_line({"input": "x"}, url="/v1/embeddings"), "/v1/embeddings"),
        ({"custom_id": "a", "body": {"prompt": "x"}}, "/v1/completions"),
        ({"custom_id": "a", "body": {"input": "x"}}, "/v1/embeddings"),
        ({"custom_id": "a", "body": {"input": "x", "max_output_tokens": 9}}, "/v1/responses"),
        ({"custom_id": "a", "messages": HELLO, "label": 1}, CHAT),
        ({"id": "a", "prompt": "x", "max_completion_tokens": 9}, "/v1/completions"),
        ({"input": "x", "instructions": "be brief"}, "/v1/responses"),
        ({"prompt": "x"}, None),
        ({"id": "a", "input": "x"}, None),
        ({"prompt": "x", "temperature": 0, "label": "y"}, None),
        ({"question": "x"}, None),
    ],
)
def test_a_line_goes_where_its_own_fields_say(line: dict[str, Any], path: str | None) -> None:
    assert own_path(line) == path
    if path is not None:
        assert build_request(line, replace(DEFAULTS, endpoint=path)).path == path


def test_a_line_that_asks_for_a_stream_is_answered_whole_and_says_so() -> None:
    row = batch_line({"messages": HELLO, "stream": True, "stream_options": {"include_usage": True}})
    assert sent(row).keys().isdisjoint({"stream", "stream_options"})
    assert build_request(row, DEFAULTS).note == "'stream' taken out: the answer comes whole"
    fault = fault_of(batch_line({"messages": HELLO, "stream": "yes"}))
    assert fault.what.startswith("'stream' must be true or false")
    assert fault.hint == 'take "stream" out'
    assert sent(batch_line({"messages": HELLO, "stream": False}))["stream"] is False


@pytest.mark.parametrize(
    "name", ["api_key", "Authorization", "base_url", "apiBase", "extra_headers", "extra-body", "timeout"]
)
def test_credentials_addresses_and_client_options_are_refused_wherever_a_client_might_obey_them(name: str) -> None:
    for line in (
        batch_line({"messages": HELLO, name: "sk-secret"}),
        batch_line({"messages": HELLO}, **{name: "sk-secret"}),
        {"messages": HELLO, name: "sk-secret"},
    ):
        fault = fault_of(line)
        assert f"'{name}'" in fault.what
        assert "sk-secret" not in f"{fault.what} {fault.hint}"


def test_all_client_options_of_a_line_are_named_at_once() -> None:
    assert fault_of({"messages": HELLO, "api_key": "k", "base_url": "u"}).what.startswith(
        "'api_key', 'base_url' do not"
    )


def test_such_names_deeper_in_the_body_are_the_vendors_own() -> None:
    tool = {
        "type": "mcp",
        "server_url": "https://tools.example",
        "headers": {"a": "b"},
        "authorization": "for the tool",
    }
    assert sent(batch_line({"input": "x", "tools": [tool]}, url="/v1/responses"))["tools"] == [tool]


@pytest.mark.parametrize(
    ("custom_id", "kept"),
    [("7", "7"), (7, "7"), (10**30, "1" + "0" * 30), (" a b ", " a b "), ("käse\u2028", "käse\u2028")],
)
def test_ids_are_strings_or_whole_numbers(custom_id: object, kept: str) -> None:
    assert build_request(batch_line({"messages": HELLO}, custom_id=custom_id), DEFAULTS).custom_id == kept


@pytest.mark.parametrize(
    ("custom_id", "words"),
    [
        (None, "'custom_id' is null"),
        ("", "'custom_id' is empty"),
        ("  ", "'custom_id' is blank"),
        (7.5, "'custom_id' must be a string, found 7.5"),
        (True, "'custom_id' must be a string, found true"),
        (["a"], "'custom_id' must be a string, found an array"),
        ("a\x004", "'custom_id' holds the control character U+0000 (character 2)"),
        ("a\n", "U+000A"),
        ("a\x85", "U+0085"),
        ("a\ud83d", "half of a surrogate pair"),
        ("x" * 501, "'custom_id' has 501 characters, at most 500"),
    ],
)
def test_an_unusable_id_is_a_fault(custom_id: object, words: str) -> None:
    fault = fault_of(batch_line({"messages": HELLO}, custom_id=custom_id))
    assert words in fault.what
    assert fault.custom_id is None


def test_a_batch_line_needs_an_id_and_a_bare_body_does_not() -> None:
    assert fault_of({"method": "POST", "url": CHAT, "body": {"messages": HELLO}}).what == "'custom_id' is missing"
    assert build_request({"messages": HELLO, "custom_id": None}, DEFAULTS).custom_id is None
