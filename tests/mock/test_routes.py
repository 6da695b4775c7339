"""Routes: what is answered on which path, and what is refused how."""

import asyncio
from typing import Any

import pytest

from batchrun.core.measuring.server_metrics import read_metrics
from tests.mock.wire import CHAT, Answer, Client, run, running, write_body


def ask(method: str, path: str, body: bytes = b"", /, headers: dict[str, str] | None = None, **settings: Any) -> Answer:
    async def test() -> Answer:
        async with running(**settings) as (_, client):
            return await client.ask(method, path, body, **(headers or {}))

    return run(test)


def test_the_models_are_listed() -> None:
    answer = ask("GET", "/v1/models", models=("a", "b")).json
    assert answer["object"] == "list"
    assert [(model["id"], model["object"]) for model in answer["data"]] == [("a", "model"), ("b", "model")]


def test_health_is_answered_without_a_key() -> None:
    assert ask("GET", "/health", api_key="secret").status == 200


@pytest.mark.parametrize(("method", "path"), [("GET", "/v1/other"), ("POST", "/v2/chat"), ("GET", "/__other")])
def test_an_unknown_route_is_404_in_json(method: str, path: str) -> None:
    answer = ask(method, path)
    assert (answer.status, answer.json["error"]["type"]) == (404, "invalid_request_error")
    assert path in answer.json["error"]["message"]


def test_a_known_route_with_another_method_is_405() -> None:
    assert ask("GET", CHAT).status == 405


@pytest.mark.parametrize("path", [CHAT, "/v1/completions", "/v1/embeddings", "/v1/responses"])
def test_an_unknown_model_is_refused_when_strict(path: str) -> None:
    answer = ask("POST", path, write_body(model="gpt-none"), strict_models=True)
    assert answer.status == 404
    error = answer.json["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert (error["code"], error["param"]) == ("model_not_found", "model")
    assert "gpt-none" in error["message"]


def test_any_model_is_served_when_not_strict() -> None:
    assert ask("POST", CHAT, write_body(model="gpt-none")).json["model"] == "gpt-none"
    assert ask("POST", CHAT, write_body(model=None), models=("first", "second")).json["model"] == "first"


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[1]",
        b'"text"',
        b"\xff\xfe{}",
        b"[" * 100_000,
        b'{"model":"mock"}',
        write_body(model=7),
        write_body(max_tokens=0),
        write_body(max_tokens="many"),
        write_body(max_tokens=True),
        write_body(max_tokens=10**30),
        write_body(n=0),
        write_body(n=1000),
        write_body(stream="yes"),
    ],
)
def test_a_malformed_body_is_400_and_not_billed(body: bytes) -> None:
    async def test() -> None:
        async with running() as (_, client):
            answer = await client.ask("POST", CHAT, body)
            assert (answer.status, answer.json["error"]["type"]) == (400, "invalid_request_error")
            stats = await client.read_stats()
            assert (stats["posts"], stats["billed"], stats["in_flight"]) == (1, 0, 0)

    run(test)


def test_a_wrong_or_missing_key_is_401() -> None:
    for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": "secret"}):
        answer = ask("POST", CHAT, write_body(), headers=headers, api_key="secret")
        assert (answer.status, answer.json["error"]["code"]) == (401, "invalid_api_key")
    assert ask("POST", CHAT, write_body(), headers={"Authorization": "Bearer secret"}, api_key="secret").status == 200
    assert ask("GET", "/v1/models", api_key="secret").status == 401


def test_every_answer_has_a_request_id() -> None:
    assert ask("POST", CHAT, write_body()).headers["x-request-id"] == "req-1"


def test_a_legacy_completion_answers_every_prompt() -> None:
    answer = ask("POST", "/v1/completions", write_body(prompt="a", n=2)).json
    assert (answer["object"], len(answer["choices"])) == ("text_completion", 2)
    body = b'{"model":"mock","prompt":["a","b","c"],"n":2}'
    choices = ask("POST", "/v1/completions", body).json["choices"]
    assert [choice["index"] for choice in choices] == [0, 1, 2, 3, 4, 5]
    assert all(choice["text"] for choice in choices)


def test_every_input_gets_its_own_embedding() -> None:
    body = b'{"model":"mock","input":["a","b","a"],"dimensions":4}'
    answer = ask("POST", "/v1/embeddings", body).json
    vectors = [row["embedding"] for row in answer["data"]]
    assert [row["index"] for row in answer["data"]] == [0, 1, 2]
    assert [len(vector) for vector in vectors] == [4, 4, 4]
    assert vectors[0] == vectors[2] != vectors[1]
    assert all(-1.0 <= number < 1.0 for vector in vectors for number in vector)
    assert answer["usage"]["total_tokens"] == answer["usage"]["prompt_tokens"] == len(body) // 4


@pytest.mark.parametrize(("given", "count"), [('"one"', 1), ("[1,2,3]", 1), ("[[1,2],[3]]", 2), ('["a","b"]', 2)])
def test_an_embedding_takes_text_and_token_ids(given: str, count: int) -> None:
    body = f'{{"model":"mock","input":{given}}}'.encode()
    assert len(ask("POST", "/v1/embeddings", body).json["data"]) == count


def test_the_metrics_have_vllms_names() -> None:
    async def test() -> str:
        async with running(models=("m",)) as (_, client):
            assert (await client.post(max_tokens=3)).status == 200
            return (await client.ask("GET", "/metrics")).body.decode()

    lines = run(test).splitlines()
    values = dict(line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
    label = 'engine="0",model_name="m"'
    for name, value in {
        "num_requests_running": "0",
        "num_requests_waiting": "0",
        "kv_cache_usage_perc": "0.0",
        "prefix_cache_queries_total": "0",
        "prefix_cache_hits_total": "0",
        "generation_tokens_total": "3",
    }.items():
        assert values[f"vllm:{name}{{{label}}}"] == value
    assert int(values[f"vllm:prompt_tokens_total{{{label}}}"]) > 0
    assert values[f'vllm:request_success_total{{{label},finished_reason="length"}}'] == "1"
    assert values[f'vllm:request_success_total{{{label},finished_reason="stop"}}'] == "0"


def test_the_metrics_tell_where_the_time_went() -> None:
    async def test() -> tuple[str, float]:
        loop = asyncio.get_running_loop()
        async with running(slots=1, ttft_ms=40, itl_ms=10) as (server, client):
            guests = [await Client.connect(server.port) for _ in range(3)]
            await client.ask("POST", "/__capacity", b'{"admits": 0}')
            sent_at = loop.time()
            for guest in guests:
                await guest.send("POST", CHAT, write_body(max_tokens=3))
            await client.wait_for_stats(waiting=3)  # all three wait before one is served
            await client.ask("POST", "/__capacity", b'{"admits": null}')
            for guest in guests:
                assert (await guest.read()).status == 200
            took_s = loop.time() - sent_at
            for guest in guests:
                guest.close()
            return (await client.ask("GET", "/metrics")).body.decode(), took_s

    text, took_s = run(test)
    found = read_metrics(text.encode())
    assert found is not None
    assert (found.values["queue_count"], found.values["prefill_count"]) == (3, 3)
    assert found.values["prefill_s"] == pytest.approx(0.12)
    assert found.values["decode_s"] == pytest.approx(0.06)
    # One waits for the whole of the first answer, one for the second too; and none for longer than all of it took.
    assert 0.06 + 0.12 - 1e-3 <= found.values["queue_s"] <= 3 * took_s - 0.18 + 1e-3
