"""Whatever the bytes are, exactly one evidence comes of them, and it keeps the promise's arithmetic."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batchrun.core.outcome import CAUSES, Charge, Evidence, Reply, Scope
from batchrun.core.states import AttemptState
from batchrun.endpoint import classify as module
from batchrun.endpoint.classify import Profile, classify
from batchrun.endpoint.problem import problem_of
from tests.endpoint.replies import CHAT, KEY, MASK, TIMING, chat, reply
from tests.examples import drawn

PATHS = st.sampled_from([CHAT, "/v1/completions", "/v1/embeddings", "/v1/responses", "/v1/other", ""])
WORDS_TEXT = """
error message code type choices content finish_reason usage prompt_tokens data embedding output
status detail text id object loc msg title errors tool_calls incomplete_details reason innererror
total_tokens
"""
WORDS = st.sampled_from(WORDS_TEXT.split())
TEXTS = st.one_of(
    st.text(max_size=20), st.sampled_from(["length", "insufficient_quota", "429", "error", "completed", KEY])
)
NUMBERS = st.one_of(st.integers(), st.integers(300, 600), st.floats(allow_nan=False, allow_infinity=False))
SCALARS = st.one_of(st.none(), st.booleans(), NUMBERS, TEXTS)
VALUES: st.SearchStrategy[Any] = st.recursive(
    SCALARS,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.one_of(WORDS, TEXTS), inner, max_size=5)),
    max_leaves=20,
)
HEADER_NAMES_TEXT = """
retry-after retry-after-ms llm_provider-retry-after content-type content-encoding location via
server cf-ray x-litellm-call-id x-request-id llm_provider-x
"""
HEADER_NAMES = st.sampled_from(HEADER_NAMES_TEXT.split())
HEADERS = st.dictionaries(st.one_of(HEADER_NAMES, st.text(max_size=9)), st.text(max_size=30), max_size=4)
STATUSES = st.one_of(st.sampled_from([200, 200, 200, 400, 404, 429, 500, 503, 529]), st.integers(-1, 1000))
PROFILES = st.builds(
    Profile, st.frozensets(st.integers(300, 599), max_size=3), st.frozensets(st.integers(300, 599), max_size=3)
)
LONE = st.characters(categories=["Cs"])


def check(found: Evidence, status: int) -> None:
    assert found.outcome not in (AttemptState.INTENT, AttemptState.NOT_SENT)  # a reply came
    assert (found.cause is None) == (found.outcome is AttemptState.ANSWERED) == (found.message is None)
    assert found.cause is None or found.cause in CAUSES
    if found.outcome in (AttemptState.UNKNOWN, AttemptState.UNUSABLE):
        assert found.charge is not Charge.NONE
        assert found.scope is Scope.ITEM
    if found.outcome is AttemptState.REFUSED and found.cause != "content_filter":
        assert found.charge is Charge.NONE
    if found.outcome is AttemptState.ANSWERED:
        assert found.charge is Charge.CERTAIN
        assert 200 <= status < 300
    for text in (found.message, found.request_id, found.response_id, found.finish_reason, found.warning):
        assert text is None or text.isprintable()
        assert KEY not in (text or "")
        (text or "").encode()  # storable: no lone surrogate
    assert len(found.message or "") < 500
    assert KEY.encode() not in (found.raw or b"")


@settings(max_examples=drawn(400), deadline=None)
@given(status=STATUSES, headers=HEADERS, body=st.binary(max_size=200), path=PATHS, profile=PROFILES)
def test_any_bytes_make_one_evidence(
    status: int, headers: dict[str, str], body: bytes, path: str, profile: Profile
) -> None:
    answer = Reply(status, headers, body, TIMING)
    check(module._of_reply(answer, path, profile, MASK), status)


@settings(max_examples=drawn(1_500), deadline=None)
@given(status=STATUSES, headers=HEADERS, value=VALUES, path=PATHS, profile=PROFILES)
def test_any_json_makes_one_evidence(
    status: int, headers: dict[str, str], value: object, path: str, profile: Profile
) -> None:
    answer = Reply(status, headers, json.dumps(value).encode(), TIMING)
    check(module._of_reply(answer, path, profile, MASK), status)


PARTS = st.sampled_from(["id", "choices", "usage", "object", "error"])
SPOTS = st.sampled_from(["index", "message", "finish_reason", "error", "text"])


@settings(max_examples=drawn(800), deadline=None)
@given(part=PARTS, spot=SPOTS, value=VALUES, inner=VALUES, content=VALUES)
def test_an_answer_with_anything_in_one_place_makes_one_evidence(
    part: str, spot: str, value: object, inner: object, content: object
) -> None:
    for body in (
        chat(content),
        {**chat(), part: value},
        {**chat(), "choices": [{**chat()["choices"][0], spot: inner}]},
    ):
        check(module._of_reply(reply(200, body), CHAT, Profile(), MASK), 200)


@settings(max_examples=drawn(200), deadline=None)
@given(text=st.text(alphabet=st.one_of(st.characters(), LONE), max_size=40), status=STATUSES)
def test_lone_surrogates_anywhere_make_evidence_that_can_be_stored(text: str, status: int) -> None:
    for body in ({**chat(text), "id": text}, {"error": {"message": text, "code": text}}, {"detail": [{"msg": text}]}):
        answer = Reply(status, {"x-request-id": text, "location": text}, json.dumps(body).encode(), TIMING)
        check(module._of_reply(answer, CHAT, Profile(), MASK), status)


@settings(max_examples=drawn(300), deadline=None)
@given(value=VALUES)
def test_a_problem_is_found_in_anything_or_not_but_never_a_fault(value: object) -> None:
    problem = problem_of(value)
    if problem:
        assert isinstance(problem.message, str)
        assert problem.status is None or 300 <= problem.status <= 599


def test_a_fault_of_our_own_keeps_the_bytes_and_claims_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(module, "read_answer", fail)
    body = json.dumps(chat()).encode()
    found = classify(Reply(200, {}, body, TIMING), path=CHAT, profile=Profile(), mask=MASK)
    assert (found.outcome, found.charge, found.raw) == (AttemptState.UNUSABLE, Charge.POSSIBLE, body)
    assert found.message == "200 OK: batchrun could not read this reply (ZeroDivisionError)"
