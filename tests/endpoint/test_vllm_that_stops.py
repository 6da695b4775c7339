"""What vLLM 0.32 says while it is being stopped: its own bytes, the texts in them shortened."""

import json

import pytest

from batchrun.core.outcome import Reply, Usage
from batchrun.core.retry import RetryPolicy, Tries, decide
from batchrun.core.states import ItemState
from tests.endpoint.replies import CHAT, evidence, row
from tests.endpoint.scripted import always, exchange_with, replied
from tests.endpoint.scripted import reply as http

ABORTED_CHAT = (
    b'{"id":"chatcmpl-aae43572048fed3d","object":"chat.completion","created":1795990029,"model":"turbo-opt",'
    b'"choices":[{"index":0,"message":{"role":"assistant","content":" prun[[gtscores00fer","refusal":null,'
    b'"annotations":null,"audio":null,"function_call":null,"reasoning":null},"logprobs":null,"finish_reason":"abort",'
    b'"stop_reason":null,"token_ids":null,"routed_experts":null}],"service_tier":null,'
    b'"system_fingerprint":"vllm-0.32.0-5c430912","usage":{"prompt_tokens":9,"total_tokens":56,"completion_tokens":47,'
    b'"prompt_tokens_details":null,"completion_tokens_details":null},"prompt_logprobs":null,"prompt_token_ids":null,'
    b'"prompt_text":null,"kv_transfer_params":null,"ec_transfer_params":null,"metrics":null}'
)
ABORTED_COMPLETION = (
    b'{"id":"cmpl-8f2f5056459fb06e","object":"text_completion","created":1795992169,"model":"turbo-opt",'
    b'"choices":[{"index":0,"text":" ): boolore","logprobs":null,"finish_reason":"abort","stop_reason":null,'
    b'"token_ids":null,"prompt_logprobs":null,"prompt_token_ids":null,"routed_experts":null}],"service_tier":null,'
    b'"system_fingerprint":"vllm-0.32.0-5c430912","usage":{"prompt_tokens":3,"total_tokens":180,'
    b'"completion_tokens":177,"prompt_tokens_details":null,"completion_tokens_details":null},'
    b'"kv_transfer_params":null,"ec_transfer_params":null,"metrics":null}'
)
ENGINE_DIED = (
    b'{"error":{"message":"EngineCore encountered an issue. See stack trace (above) for the root cause.",'
    b'"type":"InternalServerError","param":null,"code":500}}'
)
DRAINING = (
    b'{"error":{"message":"cannot schedule new futures after shutdown",'
    b'"type":"InternalServerError","param":null,"code":500}}'
)


def policy(on_unknown: str) -> RetryPolicy:
    return RetryPolicy(
        on_unknown="retry" if on_unknown == "retry" else "hold",
        is_spent=lambda counted: counted > 3,
        backoff_s=lambda counted: 1.0,
        throttle_s=lambda throttled_s: 2.0,
    )


def said(body: bytes, status: str) -> Reply:
    """Let a server say it, and take it down as the client does."""
    outcome, _ = exchange_with(always(http(body, status=status)))
    return replied(outcome)


@pytest.mark.parametrize(
    ("path", "body", "usage"),
    [(CHAT, ABORTED_CHAT, Usage(9, 47)), ("/v1/completions", ABORTED_COMPLETION, Usage(3, 177))],
)
def test_half_an_answer_of_a_server_that_stopped_is_kept_but_is_no_answer(path: str, body: bytes, usage: Usage) -> None:
    found = evidence(said(body, "200 OK"), path=path)
    assert row(found) == "unusable error_in_answer item certain"
    assert (found.usage, found.raw) == (usage, body)
    assert "choices[0] was broken off by the endpoint" in (found.message or "")


def test_one_broken_off_choice_of_several_spoils_the_answer() -> None:
    body = json.loads(ABORTED_CHAT)
    body["choices"].insert(0, {**body["choices"][0], "finish_reason": "stop"})
    found = evidence(said(json.dumps(body).encode(), "200 OK"))
    assert row(found) == "unusable error_in_answer item certain"
    assert "choices[1] was broken off" in (found.message or "")


@pytest.mark.parametrize(("on_unknown", "to"), [("hold", ItemState.FAILED), ("retry", ItemState.PENDING)])
def test_half_an_answer_is_sent_again_only_where_that_is_allowed(on_unknown: str, to: ItemState) -> None:
    found = evidence(said(ABORTED_CHAT, "200 OK"))
    assert decide(found, Tries(counted=0, throttled_s=0.0), policy(on_unknown)).to is to


def test_a_draining_server_is_waited_for_and_costs_no_retry() -> None:
    found = evidence(said(DRAINING, "500 Internal Server Error"))
    assert row(found) == "refused overloaded throttle none"
    assert (found.message or "").startswith("the endpoint is shutting down: 500 Internal Server Error: cannot schedule")
    decision = decide(found, Tries(counted=3, throttled_s=0.0), policy("hold"))
    assert (decision.to, decision.counted, decision.wait_s) == (ItemState.PENDING, 0, 2.0)


def test_a_draining_server_behind_a_gateway_proves_nothing() -> None:
    reply = said(DRAINING, "500 Internal Server Error")
    behind = Reply(reply.status, {**reply.headers, "via": "1.1 x"}, reply.body, reply.timing)
    assert row(evidence(behind)) == "unknown gateway_error item possible"


def test_an_engine_that_died_counts_as_a_try_since_the_request_may_be_what_kills_it() -> None:
    found = evidence(said(ENGINE_DIED, "500 Internal Server Error"))
    assert row(found) == "refused server_error item none"
    assert decide(found, Tries(counted=0, throttled_s=0.0), policy("hold")).counted == 1
