"""What stands between here and the model makes clean errors of broken answers: no such error may pass for a refusal.

The replies are as a real LiteLLM proxy 1.108 wrote them (docs/gateways.md).
"""

import json
from collections.abc import Mapping

import pytest

from batchrun.core.outcome import Charge
from batchrun.core.states import AttemptState
from tests.endpoint.replies import PAGE, error, evidence, reply, row

JSON, HTML, TEXT = "application/json", "text/html", "text/plain"
OWN_ERROR = json.dumps(error("boom", kind="server_error"))
CUT_ANSWER = (
    "Unable to get json response - Unterminated string starting at: line 1 column 214 (char 213), "
    'Original Response: {"id": "c-1", "choices": [{"message": {"content": "the rate limit is 429'
)
CLASSES = {400: "BadRequestError", 422: "BadRequestError", 429: "RateLimitError", 500: "InternalServerError"}
NO_FALLBACK = "\n\nLiteLLM: model group 'turbo-opt' failed with the error above. No fallback was attempted."
GATEWAY_ERROR = "unknown gateway_error item possible"


def litellm(quoted: str, *, whose: str = "OpenAI", status: int = 500, more: str = NO_FALLBACK) -> dict[str, object]:
    """Write an error as LiteLLM words it."""
    name = CLASSES.get(status, "ServiceUnavailableError")
    return error(f"litellm.{name}: {name}: {whose}Exception - {quoted}{more}", kind="internal_server_error")


def marks(upstream: str | None, **more: str) -> Mapping[str, str]:
    """Return the headers of a proxy whose upstream answered with this content type, or not at all."""
    shown = {} if upstream is None else {"llm_provider-content-type": upstream, "llm_provider-x-request-id": "up-1"}
    return {"x_litellm_call_id": "l-1", "x_litellm_response_cost": "0", "server": "uvicorn", **shown, **more}


@pytest.mark.parametrize("status", [500, 503, 529])
@pytest.mark.parametrize(
    ("upstream", "quoted", "whose"),
    [
        # through OpenAI's client, which names the status of a body that is no error
        (HTML, "Error code: 500", "OpenAI"),  # a web page
        (TEXT, "Error code: 500", "OpenAI"),  # an empty body
        (JSON, "Error code: 500", "OpenAI"),  # cut JSON, {}, null, a list
        (JSON, "Error code: 503", "AzureException API"),
        (None, "Connection error.", "OpenAI"),
        (None, "Unterminated string starting at: line 1 column 214 (char 213)", "OpenAI"),
        (None, "Empty or invalid response from LLM endpoint. Received: None.", "OpenAI"),
        (None, "litellm.APIError: LiteLLM: provider returned a response with no 'choices'.", "OpenAI"),
        (None, "boom", "OpenAI"),
        (HTML, "boom", "OpenAI"),
        (JSON, "", "OpenAI"),
        # from a client that quotes what came
        (HTML, PAGE, "Hosted_vllm"),
        (JSON, PAGE, "Hosted_vllm"),
        (TEXT, "", "Hosted_vllm"),
        (JSON, OWN_ERROR[:30], "Hosted_vllm"),
        (JSON, "{}", "Hosted_vllm"),
        (JSON, "null", "Hosted_vllm"),
        (JSON, CUT_ANSWER, "Hosted_vllm"),  # of a 200
        (JSON, CUT_ANSWER, "Anthropic"),
        (JSON, "out of memory", "Hosted_vllm"),
        (None, OWN_ERROR, "Hosted_vllm"),
        (None, "[Errno 104] Connection reset by peer", "Hosted_vllm"),
        (None, "Response payload is not completed", "Hosted_vllm"),
    ],
)
def test_an_error_behind_litellm_that_shows_no_json_error_of_the_upstream_is_a_doubt(
    status: int, upstream: str | None, quoted: str, whose: str
) -> None:
    answer = reply(status, litellm(quoted, whose=whose, status=status), **marks(upstream))
    assert row(evidence(answer)) == GATEWAY_ERROR
    assert "from behind LiteLLM, which does not show that nothing was done" in (evidence(answer).message or "")


@pytest.mark.parametrize(
    ("upstream", "quoted", "whose", "more"),
    [
        (JSON, "boom", "OpenAI", NO_FALLBACK),
        (f"{JSON}; charset=utf-8", "boom", "OpenAI", ". Received Model Group=turbo-opt\nAvailable Fallbacks=None"),
        (JSON, "boom", "AzureException Internal", NO_FALLBACK),
        (JSON, OWN_ERROR, "Hosted_vllm", NO_FALLBACK),
        (JSON, '{"detail": "boom"}', "Hosted_vllm", NO_FALLBACK),
        (JSON, OWN_ERROR, "Anthropic", ". Handle with `litellm.InternalServerError`." + NO_FALLBACK),
        ("", OWN_ERROR, "Gemini", NO_FALLBACK),  # of which it passes on the length alone
    ],
)
def test_an_upstreams_own_json_error_is_its_refusal_behind_litellm_too(
    upstream: str, quoted: str, whose: str, more: str
) -> None:
    answer = reply(500, litellm(quoted, whose=whose, more=more), **marks(upstream))
    assert row(evidence(answer)) == "refused server_error item none"


@pytest.mark.parametrize("status", [400, 422, 429, 500, 503])
@pytest.mark.parametrize(
    ("more", "headers"),
    [
        ("\n\nLiteLLM: 'a' failed with the error above. Fallback to b also failed: Connection error.", {}),
        ("\nError doing the fallback: litellm.APIConnectionError", {}),
        (" LiteLLM Retried: 2 times, LiteLLM Max Retries: 2", {}),
        ("", {"x_litellm_attempted_retries": "1"}),
        ("", {"x_litellm_attempted_fallbacks": "1"}),
    ],
)
def test_a_refusal_after_which_litellm_asked_again_proves_nothing(
    status: int, more: str, headers: dict[str, str]
) -> None:
    answer = reply(status, litellm("boom", status=status, more=more), **marks(JSON, **headers))
    assert row(evidence(answer)) == GATEWAY_ERROR


@pytest.mark.parametrize(
    ("status", "quoted", "whose"),
    [
        # a 200 whose body it could not read; the words in it decide on the status
        (422, "Error converting to valid response block=Unterminated string starting at: line 1", "Gemini"),
        (429, CUT_ANSWER, "Hosted_vllm"),
        (400, CUT_ANSWER, "Hosted_vllm"),
    ],
)
def test_a_4xx_that_litellm_makes_of_an_answer_is_a_doubt(status: int, quoted: str, whose: str) -> None:
    assert row(evidence(reply(status, litellm(quoted, whose=whose, status=status), **marks(JSON)))) == GATEWAY_ERROR


@pytest.mark.parametrize(
    ("status", "body", "upstream", "expected"),
    [
        (429, litellm("slow down", status=429), JSON, "refused rate_limited throttle none"),
        (429, litellm("Error code: 429", status=429), HTML, "refused rate_limited throttle none"),
        (
            429,  # it keeps a server that failed aside for a while, and sends nothing meanwhile
            error("No deployments available for selected model, Try again in 5 seconds. Passed model=turbo-opt."),
            None,
            "refused rate_limited throttle none",
        ),
        (400, litellm("Error code: 400", status=400), HTML, "refused bad_request item none"),
        (401, error("Authentication Error, Invalid proxy server token passed."), None, "refused auth everyone none"),
        (400, error("Violated guardrail policy"), None, "refused content_filter item possible"),
    ],
)
def test_what_litellm_refuses_is_refused(status: int, body: object, upstream: str | None, expected: str) -> None:
    assert row(evidence(reply(status, body, **marks(upstream)))) == expected


@pytest.mark.parametrize("headers", [{}, {"server": "uvicorn"}, {"llm_provider-content-type": HTML}])
def test_litellm_is_known_by_its_words_where_its_headers_were_taken_away(headers: dict[str, str]) -> None:
    assert row(evidence(reply(500, litellm("Connection error."), **headers))) == GATEWAY_ERROR
    assert row(evidence(reply(500, litellm("Error code: 500"), **headers))) == GATEWAY_ERROR


@pytest.mark.parametrize("status", [500, 503, 529])
@pytest.mark.parametrize(
    "words",
    [
        "upstream connect error or disconnect/reset before headers. reset reason: connection termination",
        "Connection error.",
        "Provider returned error",
        "The upstream server is timing out",
        "read ECONNRESET",
        "socket hang up",
        "bad_response_status_code",
        "Request timed out.",
        "Expecting value: line 1 column 1 (char 0)",
    ],
)
def test_trouble_on_the_way_to_another_server_is_a_doubt_without_any_mark(status: int, words: str) -> None:
    found = evidence(reply(status, error(words)))
    assert (found.outcome, found.charge) == (AttemptState.UNKNOWN, Charge.POSSIBLE)


@pytest.mark.parametrize(
    "headers",
    [
        {"x_oneapi_request_id": "1"},
        {"proxy_status": "ExampleCDN; error=http_response_incomplete"},
        {"x_squid_error": "ERR_READ_ERROR 104"},
        {"via": "1.1 proxy"},
        {"cf_ray": "8a1"},
        {"x_envoy_upstream_service_time": "3"},
        {"server": "istio-envoy"},
    ],
)
def test_behind_any_other_gateway_a_json_500_is_a_doubt(headers: dict[str, str]) -> None:
    assert row(evidence(reply(500, error("boom"), **headers))) == GATEWAY_ERROR


def test_a_check_of_answers_that_fails_at_a_gateway_may_be_billed_and_is_final() -> None:
    answer = reply(446, {"error": {"message": "The guardrail checks defined in the config failed."}})
    assert row(evidence(answer)) == "refused content_filter item possible"
