"""What comes under a 2xx: answers, answers worth a look, and what only looks like one."""

import json

import pytest

from batchrun.core.outcome import CAUSES, Charge, Usage
from batchrun.core.states import AttemptState
from tests.endpoint.replies import CHAT, KEY, PAGE, USAGE, chat, error, evidence, reply, row

COMPLETION = {"id": "c-2", "choices": [{"index": 0, "text": "hi", "finish_reason": "stop"}], "usage": USAGE}
VECTOR = {"object": "embedding", "index": 0, "embedding": [0.5, -0.25]}
EMBEDDING = {"object": "list", "data": [VECTOR], "usage": {"prompt_tokens": 3, "total_tokens": 3}}
TEXT_OUTPUT = {"type": "message", "content": [{"type": "output_text", "text": "hi"}]}
RESPONSE = {
    "id": "resp-1",
    "object": "response",
    "status": "completed",
    "error": None,
    "output": [{"type": "reasoning", "summary": []}, TEXT_OUTPUT],
    "usage": {"input_tokens": 10, "output_tokens": 5, "total_tokens": 15},
}
CALL = {"id": "call-1", "type": "function", "function": {"name": "f", "arguments": "{}"}}


def test_a_plain_answer_is_answered_certain_and_kept_as_it_came() -> None:
    raw = json.dumps(chat("hello")).encode()
    found = evidence(reply(200, raw, x_request_id="r-1"))
    assert row(found) == "answered - item certain"
    assert (found.message, found.warning, found.finish_reason) == (None, None, "stop")
    assert (found.request_id, found.response_id) == ("r-1", "c-1")
    assert found.usage == Usage(10, 5)
    assert found.raw == raw
    assert found.retry_after_s is None


@pytest.mark.parametrize(
    ("path", "body", "usage"),
    [
        (CHAT, chat(), Usage(10, 5)),
        ("/v1/completions", COMPLETION, Usage(10, 5)),
        ("/v1/embeddings", EMBEDDING, Usage(3, 0)),
        ("/v1/embeddings", {"data": [{"embedding": "AAAAPw=="}], "usage": USAGE}, Usage(10, 5)),
        ("/v1/responses", RESPONSE, Usage(10, 5)),
        ("/v1/something/new", {"result": 1, "usage": USAGE}, Usage(10, 5)),
    ],
)
def test_each_path_has_its_own_kind_of_answer(path: str, body: object, usage: Usage) -> None:
    found = evidence(reply(200, body), path=path)
    assert (found.outcome, found.warning, found.usage) == (AttemptState.ANSWERED, None, usage)


@pytest.mark.parametrize(
    ("body", "finish", "warning"),
    [
        (chat("cut off in the mid", finish="length"), "length", "length"),
        (chat(None, finish="length", reasoning_content="hm hm"), "length", "length, empty"),
        (chat("", finish="length"), "length", "length, empty"),
        (chat("", finish="content_filter"), "content_filter", "content_filter, empty"),
        (chat("half", finish="content_filter"), "content_filter", "content_filter"),
        (chat(None), "stop", "empty"),
        (chat(""), "stop", "empty"),
        (chat(" \n"), "stop", "empty"),
        (chat("<think>let me see", finish="length"), "length", "length, empty"),
        (chat([{"type": "text", "text": ""}]), "stop", "empty"),
        (chat([]), "stop", "empty"),
        (chat([{"type": "text", "text": "hi"}]), "stop", None),
        (chat(None, finish="tool_calls", tool_calls=[CALL]), "tool_calls", None),
        (chat(None, tool_calls=[]), "stop", "empty"),
        (chat(None, function_call={"name": "f"}), "stop", None),
        (chat(None, refusal="I cannot"), "stop", None),
        (chat("hi", finish=None), None, None),
        (chat("hi", finish=7), None, None),
        (chat("hi", usage=None), "stop", "no_usage"),
        (chat("", usage=None), "stop", "empty"),
        (chat("cut", finish="length", usage=None), "length", "length"),
        ({**chat(), "choices": chat()["choices"] + chat("x", finish="length")["choices"]}, "length", "length"),
        ({**chat(), "error": None}, "stop", None),
        ({**chat(), "error": {}}, "stop", None),
    ],
)
def test_an_answer_worth_a_look_is_still_an_answer(body: object, finish: str | None, warning: str | None) -> None:
    found = evidence(reply(200, body))
    assert row(found) == "answered - item certain"
    assert (found.finish_reason, found.warning) == (finish, warning)


@pytest.mark.parametrize(
    ("usage", "prompt_tokens", "completion_tokens"),
    [
        (None, None, None),
        ([], None, None),
        ("15", None, None),
        ({}, None, None),
        ({"prompt_tokens": 10}, 10, None),
        ({"prompt_tokens": None, "completion_tokens": 5}, None, 5),
        ({"prompt_tokens": "10", "completion_tokens": -5}, None, None),
        ({"prompt_tokens": True, "completion_tokens": False}, None, None),
        ({"prompt_tokens": 10.0, "completion_tokens": 5.5}, 10, None),
        ({"prompt_tokens": 0, "completion_tokens": 0}, 0, 0),
        ({"prompt_tokens": 10**30, "completion_tokens": 5}, None, 5),
        ({"input_tokens": 10, "output_tokens": 5}, 10, 5),
    ],
)
def test_tokens_that_are_not_told_are_none_and_never_zero(
    usage: object, prompt_tokens: int | None, completion_tokens: int | None
) -> None:
    found = evidence(reply(200, chat(usage=usage)))
    assert found.outcome is AttemptState.ANSWERED
    assert found.usage == Usage(prompt_tokens, completion_tokens)
    assert found.warning == (None if found.usage.is_known else "no_usage")


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"id": "c-1", "choices": [], "usage": USAGE}, "it has no 'choices'"),
        ({"id": "c-1", "choices": None, "usage": USAGE}, "it has no 'choices'"),
        ({"id": "c-1", "usage": USAGE}, "it has no 'choices'"),
        ({"id": "c-1", "choices": {"0": 1}, "usage": USAGE}, "its 'choices' is no list"),
        ({"id": "c-1", "choices": "hello", "usage": USAGE}, "its 'choices' is no list"),
        ({"id": "c-1", "choices": ["hello"], "usage": USAGE}, "its choices[0] is no object"),
        ({"id": "c-1", "choices": [{}], "usage": USAGE}, "its choices[0] has no 'message'"),
        ({"id": "c-1", "choices": [{"message": None}], "usage": USAGE}, "its choices[0] has no 'message'"),
        ({"id": "c-1", "choices": [{"delta": {}}], "usage": USAGE}, "its choices[0] has no 'message'"),
        ({**chat(), "choices": [*chat()["choices"], None]}, "its choices[1] is no object"),
        ({**chat(7)}, "its choices[0] has a 'message.content' that is neither text, list nor null"),
        ({**chat({"a": 1})}, "its choices[0] has a 'message.content' that is neither text, list nor null"),
        ({**chat(None, tool_calls="f()")}, "its choices[0] has a 'message.tool_calls' that is no list"),
    ],
)
def test_an_answer_without_usable_choices_is_unusable_and_its_usage_is_charged(body: object, words: str) -> None:
    found = evidence(reply(200, body))
    assert row(found) == "unusable no_choices item certain"
    assert found.message == f"200 OK: the answer is of no use: {words}"
    assert (found.usage, found.response_id) == (Usage(10, 5), "c-1")
    assert found.raw is not None


@pytest.mark.parametrize("body", [None, [], 7, '"hello"', True, [1], {}, {"message": "hi"}, {"detail": "odd"}])
def test_json_that_is_no_answer_at_all_is_unusable_and_possibly_charged(body: object) -> None:
    assert row(evidence(reply(200, body))) == "unusable no_choices item possible"


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/completions", chat()),
        ("/v1/completions", {"choices": [{"text": None}]}),
        ("/v1/embeddings", {"data": []}),
        ("/v1/embeddings", {"data": [{}]}),
        ("/v1/embeddings", {"data": [{"embedding": []}]}),
        ("/v1/embeddings", {"data": {"embedding": [1]}}),
        ("/v1/responses", {**RESPONSE, "output": None}),
        ("/v1/responses", {**RESPONSE, "output": []}),
        ("/v1/responses", {**RESPONSE, "output": ["hi"]}),
        ("/v1/responses", {**RESPONSE, "status": "in_progress"}),
        ("/v1/responses", {**RESPONSE, "status": ["odd"]}),
    ],
)
def test_an_answer_of_another_kind_than_its_paths_is_unusable(path: str, body: object) -> None:
    found = evidence(reply(200, body), path=path)
    assert (found.outcome, found.cause) == (AttemptState.UNUSABLE, "no_choices")


@pytest.mark.parametrize(
    ("change", "finish", "warning"),
    [
        ({"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}, "length", "length"),
        (
            {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}, "output": []},
            "length",
            "length, empty",
        ),
        (
            {"status": "incomplete", "incomplete_details": {"reason": "content_filter"}},
            "content_filter",
            "content_filter",
        ),
        ({"output": [{"type": "reasoning"}]}, None, "empty"),
        ({"output": [{"type": "message", "content": []}]}, None, "empty"),
        ({"output": [{"type": "message", "content": [{"type": "refusal", "refusal": "no"}]}]}, None, None),
        ({"output": [{"type": "function_call", "name": "f"}]}, None, None),
        ({"usage": None}, None, "no_usage"),
    ],
)
def test_a_response_says_how_it_ended(change: dict[str, object], finish: str | None, warning: str | None) -> None:
    found = evidence(reply(200, {**RESPONSE, **change}), path="/v1/responses")
    assert row(found) == "answered - item certain"
    assert (found.finish_reason, found.warning) == (finish, warning)


# --- an error under status 200 goes by the code inside ---

INSIDE = [
    # body, evidence
    (
        {"id": None, "choices": None, "usage": None, "error": {"message": "upstream failed", "code": 429}},
        "refused rate_limited throttle none",
    ),
    (error("slow", code="429"), "refused rate_limited throttle none"),
    (error("slow", code="rate_limit_exceeded"), "refused rate_limited throttle none"),
    (error("used up", code="insufficient_quota"), "refused quota everyone none"),
    (error("bad key", code=401), "refused auth everyone none"),
    (error("bad key", code="invalid_api_key"), "refused auth everyone none"),
    (error("no money", code=402), "refused quota everyone none"),
    (error("no", code=403), "refused forbidden everyone none"),
    (error("no model", code="model_not_found"), "refused model_not_found everyone none"),
    (error("too long", code="context_length_exceeded"), "refused context_length item none"),
    (error("filtered", code="content_filter"), "refused content_filter item possible"),
    (error("odd field", code=400), "refused bad_request item none"),
    ([error("odd field", code=400)], "refused bad_request item none"),
    ({"object": "error", "message": "odd field", "code": 400}, "refused bad_request item none"),
    (error("Overloaded", kind="overloaded_error"), "refused overloaded item none"),
    (error("queue full", code=503), "refused overloaded throttle none"),
    # these do not prove that nothing was done
    (error("boom", code=500), "unusable error_in_answer item possible"),
    (error("provider failed", code=502), "unusable error_in_answer item possible"),
    (error("timed out", code=408), "unusable error_in_answer item possible"),
    (error("odd"), "unusable error_in_answer item possible"),
    ({"error": "odd"}, "unusable error_in_answer item possible"),
    ({"error": True}, "unusable error_in_answer item possible"),
    ({"error": ["odd"]}, "unusable error_in_answer item possible"),
    ({**error("slow", code=429), "usage": USAGE}, "unusable error_in_answer item certain"),
    ({**chat(), "error": {"message": "late", "code": 502}}, "unusable error_in_answer item certain"),
    ({**chat("half", finish="error")}, "unusable error_in_answer item certain"),
    ({**RESPONSE, "status": "failed", "error": {"code": "server_error"}}, "unusable error_in_answer item certain"),
]


@pytest.mark.parametrize(("body", "expected"), INSIDE)
def test_an_error_inside_a_200_goes_by_its_code(body: object, expected: str) -> None:
    found = evidence(reply(200, body))
    assert row(found) == expected
    assert found.status == 200
    assert (found.message or "").startswith("200 OK")


def test_an_error_inside_one_choice_is_told_in_its_words() -> None:
    body = chat("half")
    body["choices"][0]["error"] = {"code": 502, "message": "Provider disconnected"}
    found = evidence(reply(200, body))
    assert row(found) == "unusable error_in_answer item certain"
    assert "Provider disconnected" in (found.message or "")


def test_a_gateways_overload_inside_a_200_proves_nothing() -> None:
    found = evidence(reply(200, error("queue full", code=503), via="1.1 x"))
    assert row(found) == "unusable error_in_answer item possible"


def test_a_wait_named_beside_an_error_inside_a_200_is_kept() -> None:
    found = evidence(reply(200, error("slow", code=429), retry_after="4"))
    assert row(found) == "refused rate_limited throttle none after 4 s"


# --- bodies that are no JSON ---

FULL = json.dumps(chat('h\u00e9 \U0001f600 \\ " \n')).encode()
FULL_UTF8 = json.dumps(chat('h\u00e9 \U0001f600 \\ " \n'), ensure_ascii=False).encode()
FULL_LONE = FULL.replace(b"h\\u00e9", b"h\\ud800")


@pytest.mark.parametrize("full", [FULL, FULL_UTF8, FULL_LONE], ids=["escaped", "utf-8", "lone surrogate"])
def test_an_answer_cut_at_any_byte_is_unknown_and_never_an_answer(full: bytes) -> None:
    assert evidence(reply(200, full)).outcome is AttemptState.ANSWERED
    for end in range(len(full)):
        found = evidence(reply(200, full[:end]))
        assert row(found) == "unknown cut_body item possible", full[:end]
        assert found.raw == full[:end]


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b"", "unknown cut_body item possible"),
        (b" \n", "unknown cut_body item possible"),
        (b"\xef\xbb\xbf", "unknown cut_body item possible"),
        (PAGE, "unusable html item possible"),
        ("<html>cut off", "unusable html item possible"),
        ("\n\n <!doctype HTML>", "unusable html item possible"),
        (b'data: {"id": "x"}\n\ndata: [DONE]\n\n', "unusable bad_json item possible"),
        (b": keep-alive\n\ndata: {}\n\n", "unusable bad_json item possible"),
        (b"event: message\ndata: {}\n\n", "unusable bad_json item possible"),
        (b"Ollama is running", "unusable bad_json item possible"),
        (FULL + b"}", "unusable bad_json item possible"),
        (FULL + FULL, "unusable bad_json item possible"),
        (FULL.replace(b": 10", b": NaN"), "unusable bad_json item possible"),
        (FULL.replace(b": 10", b": Infinity"), "unusable bad_json item possible"),
        (FULL.replace(b": 10", b": -Infinity"), "unusable bad_json item possible"),
        (FULL.replace(b'"', b"'"), "unusable bad_json item possible"),
        (FULL_UTF8.decode().encode("latin-1", "replace"), "unusable bad_json item possible"),
        (b'{"a":' * 100_000, "unusable bad_json item possible"),
        (b"\x1f\x8b\x08\x00", "unusable bad_json item possible"),
        (b"\x00" * 100, "unusable bad_json item possible"),
    ],
)
def test_what_is_no_json_is_told_apart(body: bytes | str, expected: str) -> None:
    found = evidence(reply(200, body))
    assert row(found) == expected
    assert found.cause in CAUSES
    assert len(found.message or "") < 340


def test_a_page_is_told_by_its_title_and_kept_only_in_part() -> None:
    found = evidence(reply(200, PAGE + "<p>pad</p>" * 50_000))
    assert found.message == "200 OK: a web page instead of an answer: 502 Bad gateway"
    assert found.raw is not None
    assert len(found.raw) == 65_536


@pytest.mark.parametrize("status", [204, 205])
def test_a_status_that_has_no_body_is_no_answer(status: int) -> None:
    assert row(evidence(reply(status, b""))) == "unusable bad_json item possible"


@pytest.mark.parametrize("status", [200, 201, 202, 203, 206, 299])
def test_an_answer_counts_under_any_other_2xx(status: int) -> None:
    assert evidence(reply(status, chat())).outcome is AttemptState.ANSWERED


def test_a_body_that_could_not_be_decoded_is_unusable_and_kept() -> None:
    found = evidence(reply(200, FULL, content_encoding="gzip"))
    assert row(found) == "unusable bad_json item possible"
    assert found.message == "200 OK: its body is labelled gzip and is not"
    assert found.raw == FULL


@pytest.mark.parametrize(
    "body",
    [
        FULL_LONE,
        json.dumps(chat("lone \udc00"), ensure_ascii=False).encode("utf-8", "surrogatepass"),
        b"\xef\xbb\xbf" + FULL,
        b"\n\n\n" + FULL + b"\n",
        json.dumps(chat("a NUL \x00 inside")).encode(),
        json.dumps({**chat(), "big": 10**400}).encode(),
    ],
    ids=["lone escape", "lone raw", "byte order mark", "blank lines", "NUL", "big number"],
)
def test_an_odd_but_complete_answer_is_answered_and_kept_as_it_came(body: bytes) -> None:
    found = evidence(reply(200, body))
    assert found.outcome is AttemptState.ANSWERED
    assert found.usage == Usage(10, 5)
    assert found.raw == body


def test_an_answer_loses_the_key_and_nothing_else() -> None:
    found = evidence(reply(200, chat(f"you sent {KEY}, keys begin with sk-SEC")))
    assert found.raw is not None
    assert b"you sent ***, keys begin with sk-SEC" in found.raw
    assert found.charge is Charge.CERTAIN


@pytest.mark.parametrize("identity", [None, 7, "", ["x"], {"a": 1}])
def test_a_response_id_that_is_no_text_is_none(identity: object) -> None:
    assert evidence(reply(200, {**chat(), "id": identity})).response_id is None
