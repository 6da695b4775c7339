"""The table of BILLING.md, row by row: every status, with the spellings that tell more than the status does."""

import pytest

from batchrun.core.outcome import CAUSES, Break, BreakKind, Charge, Scope
from batchrun.core.states import AttemptState
from tests.endpoint.replies import CHAT, KEY, PAGE, TIMING, chat, error, evidence, flat, reply, row

CF = {"cf_ray": "8a1", "server": "cloudflare"}
LITELLM = {"x_litellm_call_id": "l-1", "x_litellm_response_cost": "0"}
UPSTREAM = {"llm_provider-content-type": "application/json"}
QUOTA_429 = "You exceeded your current quota, please check your plan and billing details."
GEMINI_429 = QUOTA_429 + " * Quota exceeded for metric: free_tier_requests, limit: 15. Please retry in 27.5s."
OPENAI_TPM = "Request too large for gpt-4 in organization org-1 on tokens per min (TPM): Limit 30000, Requested 40000."
VLLM_CONTEXT = "This model's maximum context length is 32768 tokens. However, you requested 40001 tokens."
LLAMA_CONTEXT = "the request exceeds the available context size, try increasing it"
AZURE_FILTER = "The response was filtered due to the prompt triggering Azure OpenAI's content management policy."

# evidence, and the replies that give it: status, body, headers
Replies = list[tuple[int, object, dict[str, str]]]
TABLE: dict[str, Replies] = {
    "refused bad_request item none": [
        # the request's own fault, and the request's alone
        (400, error("max_tokens must be at least 1"), {}),
        (400, flat("temperature must be non-negative"), {}),
        (400, "Bad Request", {}),
        (400, "", {}),
        (422, {"detail": [{"loc": ["body", "messages"], "msg": "Field required"}]}, {}),
        (410, error("gone"), {}),
        (418, error("teapot"), {}),
        (431, "", {}),
        (451, "", {}),
        (400, error("the model was given an image that was not found"), {}),
        (400, error("max_tokens must be at least 1"), LITELLM),
    ],
    "refused conflict item none": [
        (409, error("conflict"), {}),
    ],
    "refused too_large item none": [
        (413, PAGE, {}),
        (429, error(OPENAI_TPM, code="rate_limit_exceeded"), {}),
    ],
    "refused context_length item none": [
        # context length, in many mouths
        (400, error(VLLM_CONTEXT, kind="BadRequestError", code=400), {}),
        (400, flat("context window is 32768 tokens, this request needs 40001"), {}),
        (400, error("too long", code="context_length_exceeded"), {}),
        (400, error(LLAMA_CONTEXT, kind="exceed_context_size_error"), {}),
        (400, error("The decoder prompt (length 40001) is longer than the maximum model length of 32768."), {}),
        (400, error("prompt is too long: 210000 tokens > 200000 maximum"), {}),
        (400, [error("The input token count (9) exceeds the maximum number of tokens allowed (8).")], {}),
        (422, {"error": "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 2048"}, {}),
        (413, error(VLLM_CONTEXT), {}),
    ],
    "refused content_filter item possible": [
        # the provider's filter may have cost something
        (400, error(AZURE_FILTER, code="content_filter"), {}),
        (400, error("no", innererror={"code": "ResponsibleAIPolicyViolation"}), {}),
        (403, error("Your input was flagged"), {}),
    ],
    "refused auth everyone none": [
        # the key
        (401, error("Incorrect API key provided", code="invalid_api_key"), {}),
        (401, PAGE, {}),
    ],
    "refused forbidden everyone none": [
        (403, error("You are not allowed to sample from this model"), {}),
        (403, error("Your account was flagged for abuse"), {}),
        (403, PAGE, CF),
    ],
    "refused quota everyone none": [
        # money and quota
        (402, "", {}),
        (402, error("Insufficient Balance"), {}),
        (429, error(QUOTA_429, code="insufficient_quota", kind="insufficient_quota"), {}),
        (429, error("x", kind="insufficient_quota"), {}),
        (429, error(QUOTA_429), {}),
        (429, error("x", code="credit_balance_exhausted"), {}),
        (429, error("x", code="billing_hard_limit_reached"), {}),
        (429, error("x", code="project_spend_limit_exceeded"), {}),
        (429, error("x", code="organization_usage_limit_exceeded"), {}),
        (403, error("x", code="insufficient_quota"), {}),
        (400, error("Your credit balance is too low to access the API."), {}),
        (400, error("x", code="billing_hard_limit_reached"), {}),
    ],
    "refused quota everyone none after 5 s": [
        (429, error("x", code="insufficient_quota"), {"retry_after": "5"}),
    ],
    "refused rate_limited throttle none": [
        # throttling; that it mentions money does not make it a quota
        (429, error("slow down", code="rate_limit_exceeded"), {}),
        (429, "", {}),
        (429, PAGE, CF),
        (429, error("Rate limit reached. Add credits to your billing account to raise it."), {}),
        (429, [error(GEMINI_429)], {}),
    ],
    "refused rate_limited throttle none after 3 s": [
        (429, error("slow down"), {"retry_after": "3"}),
    ],
    "refused rate_limited throttle none after 1.5 s": [
        (429, error("slow down"), {"retry_after_ms": "1500"}),
    ],
    "refused rate_limited throttle none after 7 s": [
        (429, error("slow down"), {"llm_provider-retry-after": "7", **LITELLM}),
    ],
    "refused rate_limited throttle none after 30 s": [
        (429, error(QUOTA_429), {"retry_after": "30"}),
    ],
    "refused model_not_found everyone none": [
        # the model
        (404, error("The model `x` does not exist or you do not have access to it.", code="model_not_found"), {}),
        (404, flat("The model `a/b-7B` does not exist.", code=404, kind="NotFoundError"), {}),
        (404, error('model "x:7b" not found, try pulling it first', kind="api_error"), {}),
        (404, {"error": "model 'x' not found"}, {}),
        (404, [error("models/gemini-x is not found for API version v1beta")], {}),
        (404, error("x", code="DeploymentNotFound"), {}),
        (404, error("model: claude-x", kind="not_found_error"), {}),
        (404, error("No endpoints found for a/b."), {}),
        (400, error("/chat/completions: Invalid model name passed in model=x.", code="400"), LITELLM),
        (400, error("x is not a valid model ID", code=400), {}),
        (400, error("Model Not Exist"), {}),
        (400, error("The model `x` has been decommissioned", code="model_decommissioned"), {}),
    ],
    "refused route_not_found everyone none": [
        # the route
        (404, {"detail": "Not Found"}, {}),
        (404, "404 page not found", {}),
        (404, "", {}),
        (405, {"detail": "Method Not Allowed"}, {}),
    ],
    "refused redirect everyone none": [
        (301, "", {"location": "https://other/v1"}),
        (302, PAGE, {"location": "/login"}),
        (304, "", {}),
        (307, "", {"location": "/alt"}),
        (308, "", {}),
    ],
    "refused server_error item none": [
        # the server's own "not now"
        (500, error("boom", kind="server_error"), {}),
        (500, {"error": "boom"}, {}),
        (500, {"detail": "boom"}, {}),
        (500, error("boom"), {**LITELLM, **UPSTREAM}),
        (500, error("boom"), {"server": "uvicorn"}),
    ],
    "refused overloaded throttle none": [
        (503, error("Loading model", kind="unavailable_error", code=503), {}),
        (503, error("queue full"), {}),
        (503, error("queue full"), {**LITELLM, **UPSTREAM}),
    ],
    "refused overloaded throttle none after 2 s": [
        (503, error("queue full"), {"retry_after": "2"}),
        (503, PAGE, {"retry_after": "2"}),
    ],
    "refused overloaded item none": [
        (529, {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}, {}),
    ],
    "refused overloaded item none after 2 s": [
        (529, "", {"retry_after": "2"}),
    ],
    "unknown gateway_error item possible": [
        # nobody knows
        (408, error("timeout"), {}),
        (499, "", {}),
        (500, "Internal Server Error", {}),
        (500, PAGE, {}),
        (500, "", {}),
        (500, {}, {}),
        (500, '{"error": {"message": "cut', {}),
        (501, error("x"), {}),
        (502, PAGE, {}),
        (503, "Service Unavailable", {}),
        (503, PAGE, {}),
        (504, error("x"), {}),
        (520, PAGE, CF),
        (524, error("x"), {}),
        (529, "", {}),
        (599, "", {}),
        (600, error("x"), {}),
        (100, "", {}),
        # behind a gateway a JSON error proves less
        (500, error("InternalServerError: Connection error."), LITELLM),
        (503, error("queue full"), {"via": "1.1 proxy"}),
        (500, error("boom"), CF),
        (500, error("boom"), {"x_envoy_upstream_service_time": "3"}),
        (500, {"message": "Internal server error"}, {"x_amzn_requestid": "a"}),
        (500, error("boom"), {"server": "awselb/2.0"}),
        (500, error("boom"), {"x_kong_response_latency": "1"}),
        (529, error("x"), CF),
    ],
    "unknown gateway_error item possible after 9 s": [
        (502, error("x"), {"retry_after": "9"}),
    ],
    "unknown gateway_error item possible after 1 s": [
        (503, "", {"retry_after": "1", "via": "1.1 varnish"}),
    ],
}
ROWS = [(*row, expected) for expected, rows in TABLE.items() for row in rows]


@pytest.mark.parametrize(("status", "body", "headers", "expected"), ROWS)
def test_every_status_has_its_row(status: int, body: object, headers: dict[str, str], expected: str) -> None:
    found = evidence(reply(status, body, **headers))
    assert row(found) == expected
    assert found.status == status
    assert found.cause in CAUSES
    assert found.message
    assert str(status) in found.message
    assert found.timing is TIMING


def test_the_table_of_all_statuses_with_a_json_error_reads_as_designed() -> None:
    lines: list[str] = []
    for status in range(300, 600):
        line = row(evidence(reply(status, error("boom"))))
        if not lines or lines[-1].split(": ")[1] != line:
            lines.append(f"{status}: {line}")
    assert lines == [
        "300: refused redirect everyone none",
        "400: refused bad_request item none",
        "401: refused auth everyone none",
        "402: refused quota everyone none",
        "403: refused forbidden everyone none",
        "404: refused route_not_found everyone none",
        "406: refused bad_request item none",
        "408: unknown gateway_error item possible",
        "409: refused conflict item none",
        "410: refused bad_request item none",
        "413: refused too_large item none",
        "414: refused bad_request item none",
        "429: refused rate_limited throttle none",
        "430: refused bad_request item none",
        "499: unknown gateway_error item possible",
        "500: refused server_error item none",
        "501: unknown gateway_error item possible",
        "503: refused overloaded throttle none",
        "504: unknown gateway_error item possible",
        "529: refused overloaded item none",
        "530: unknown gateway_error item possible",
    ]


@pytest.mark.parametrize(
    ("status", "body", "unknown", "refused", "expected"),
    [
        (400, error("x"), {400}, set(), "unknown gateway_error item possible"),
        (429, error("x"), {429}, set(), "unknown gateway_error item possible"),
        (500, error("x"), {500}, set(), "unknown gateway_error item possible"),
        (502, PAGE, set(), {502}, "refused server_error item none"),
        (504, "", set(), {504}, "refused server_error item none"),
        (408, "", set(), {408}, "refused server_error item none"),
        (503, "", set(), {503}, "refused overloaded throttle none"),
        (529, "", set(), {529}, "refused overloaded item none"),
        (429, error("x"), set(), {429}, "refused rate_limited throttle none"),
    ],
)
def test_a_profile_moves_statuses(
    status: int, body: object, unknown: set[int], refused: set[int], expected: str
) -> None:
    found = evidence(reply(status, body), unknown_statuses=frozenset(unknown), refused_statuses=frozenset(refused))
    assert row(found) == expected


def test_a_profile_wins_over_the_marks_of_a_gateway() -> None:
    answer = reply(500, error("x"), cf_ray="8a1")
    assert row(evidence(answer, refused_statuses=frozenset({500}))) == "refused server_error item none"


def test_a_profile_does_not_touch_answers() -> None:
    found = evidence(reply(200, chat()), unknown_statuses=frozenset({200}), refused_statuses=frozenset({200}))
    assert found.outcome is AttemptState.ANSWERED


# --- messages ---

NO_PROOF = "which does not show that nothing was done"


@pytest.mark.parametrize(
    ("status", "body", "headers", "message"),
    [
        (400, error("bad field"), {}, "400 Bad Request: bad field"),
        (400, flat("bad field"), {}, "400 Bad Request: bad field"),
        (400, {"error": "bad field"}, {}, "400 Bad Request: bad field"),
        (422, {"detail": [{"loc": ["n"], "msg": "big"}, {"msg": "b"}]}, {}, "422 Unprocessable Entity: n: big; b"),
        (400, error("", code="odd_code"), {}, "400 Bad Request: odd_code"),
        (400, "", {}, "400 Bad Request"),
        (401, error("bad key"), {}, "the endpoint refused the key: 401 Unauthorized: bad key"),
        (402, error("see billing"), {}, "quota or billing: 402 Payment Required: see billing"),
        (503, error("Loading model"), {}, "the endpoint is loading its model: 503 Service Unavailable: Loading model"),
        (502, PAGE, {}, "502 Bad Gateway: 502 Bad gateway"),
        (502, "<html><body><h1>Bad &amp; ugly</h1></body></html>", {}, "502 Bad Gateway: Bad & ugly"),
        (502, "<html><style>p{}</style><p>just <b>text</b>", {}, "502 Bad Gateway: just text"),
        (502, b"\x00\x01\x02binary", {}, "502 Bad Gateway"),
        (599, "", {}, "599"),
        (307, "", {"location": "/alt"}, "307 Temporary Redirect: it redirects to '/alt', where nothing was sent"),
        (304, "", {}, "304 Not Modified: it redirects to nowhere"),
        (503, error("boom"), {"via": "1.1 x"}, f"503 Service Unavailable: boom: from behind a proxy, {NO_PROOF}"),
        (400, error("two\nlines\x1b[31m and \u2028 more\x00"), {}, "400 Bad Request: two lines [31m and more"),
        (400, error("lone \ud800 surrogate"), {}, "400 Bad Request: lone surrogate"),
        (400, error(f"you sent Bearer {KEY}"), {}, "400 Bad Request: you sent Bearer ***"),
        (400, error("you sent sk-SEC...more"), {}, "400 Bad Request: you sent ***...more"),
    ],
)  # fmt: skip
def test_a_message_is_in_the_servers_words_short_and_printable(
    status: int, body: object, headers: dict[str, str], message: str
) -> None:
    assert evidence(reply(status, body, **headers)).message == message


def test_a_long_message_is_cut_and_a_long_page_is_not_kept() -> None:
    long = evidence(reply(400, error("word " * 1000)))
    assert len(long.message or "") < 340
    assert (long.message or "").endswith("...")
    page = evidence(reply(502, PAGE + "<p>pad</p>" * 10_000))
    assert len(page.message or "") < 340
    assert page.raw is None


def test_a_json_error_is_kept_with_the_key_masked() -> None:
    found = evidence(reply(500, error(f"upstream rejected header Bearer {KEY}")))
    assert found.raw is not None
    assert b"SECRET" not in found.raw
    assert b"upstream rejected" in found.raw


@pytest.mark.parametrize(
    ("headers", "request_id"),
    [
        ({"x_request_id": "r-1", "x_litellm_call_id": "l-1"}, "r-1"),
        ({"x_litellm_call_id": "l-1", "request_id": "q-1"}, "l-1"),
        ({"request_id": "q-1"}, "q-1"),
        ({"x_request_id": ""}, None),
        ({"x_request_id": "x" * 900}, "x" * 197 + "..."),
        ({"x_request_id": KEY}, "***"),
        ({}, None),
    ],
)
def test_the_request_id_is_found_in_its_headers(headers: dict[str, str], request_id: str | None) -> None:
    assert evidence(reply(400, error("x"), **headers)).request_id == request_id
    assert evidence(reply(200, chat(), **headers)).request_id == request_id


# --- breaks ---


@pytest.mark.parametrize(
    ("kind", "status", "expected"),
    [
        (BreakKind.CONNECT, None, "not_sent connect unreachable none"),
        (BreakKind.DNS, None, "not_sent dns unreachable none"),
        (BreakKind.TLS, None, "not_sent tls unreachable none"),
        (BreakKind.CONNECT_TIMEOUT, None, "not_sent connect_timeout unreachable none"),
        (BreakKind.TIMEOUT, None, "unknown timeout item possible"),
        (BreakKind.TIMEOUT, 200, "unknown timeout item possible"),
        (BreakKind.LOST, None, "unknown connection_lost item possible"),
        (BreakKind.LOST, 200, "unknown cut_body item possible"),
        (BreakKind.LOST, 429, "unknown cut_body item possible"),
        (BreakKind.ABORTED, None, "unknown aborted item possible"),
    ],
)
def test_every_kind_of_break_has_its_row(kind: BreakKind, status: int | None, expected: str) -> None:
    fault = Break(kind, f"it broke with {KEY}", TIMING, status, b"half of " + KEY.encode() if status else b"")
    found = evidence(fault, path=CHAT)
    assert row(found) == expected
    assert found.message == "it broke with ***"
    assert found.raw == (b"half of ***" if status else None)
    assert found.cause in CAUSES
    assert (found.scope is Scope.UNREACHABLE) == (found.charge is Charge.NONE)


def test_the_table_knows_every_kind_of_break() -> None:
    for kind in BreakKind:
        assert evidence(Break(kind, "x", TIMING)).cause in CAUSES
