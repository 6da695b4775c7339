"""How many tokens a prompt has, by the server's own tokenizer; and what is no answer to that."""

import asyncio
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from batchrun.endpoint.client import Endpoint
from batchrun.endpoint.tokenizing import count_tokens
from batchrun.mock.config import MockConfig
from batchrun.mock.process import MockProcess
from tests.acceptance.endpoint import ScriptedEndpoint

ASKED = {"model": "mock", "messages": [{"role": "user", "content": "a few words ü"}]}


@pytest.fixture
def replying(tmp_path: Path) -> Iterator[Callable[[dict[str, Any]], ScriptedEndpoint]]:
    """Return a function that starts an endpoint with one reply to everything."""
    started: list[ScriptedEndpoint] = []

    def start(reply: dict[str, Any]) -> ScriptedEndpoint:
        endpoint = ScriptedEndpoint({"rules": [], "default": reply}, log=tmp_path / "requests.jsonl")
        endpoint.start()
        started.append(endpoint)
        return endpoint

    yield start
    for one in started:
        one.stop()


def counted(base_url: str, body: dict[str, Any]) -> int | None:
    async def ask() -> int | None:
        async with Endpoint(base_url, "EMPTY", timeout_s=60) as endpoint:
            return await count_tokens(endpoint, json.dumps(body).encode())

    return asyncio.run(ask())


def test_the_count_is_what_usage_says_of_the_same_prompt() -> None:
    async def usage(base_url: str) -> int:
        async with Endpoint(base_url, "EMPTY", timeout_s=60) as endpoint:
            body = json.dumps({**ASKED, "max_tokens": 1, "temperature": 0}).encode()
            reply = await endpoint.exchange(path="/v1/chat/completions", body=body, attempt_id="a-1")
            tokens: int = json.loads(reply.body)["usage"]["prompt_tokens"]  # type: ignore[union-attr]
            return tokens

    with MockProcess(MockConfig(tokenizes=True)) as mock:
        assert counted(mock.base_url, ASKED) == asyncio.run(usage(mock.base_url))
        assert counted(mock.base_url, {"model": "mock"}) is None, "it has no prompt"
        assert (counted(mock.base_url, {"model": "mock", "prompt": "a " * 40}) or 0) > 20
    with MockProcess(MockConfig()) as mock:
        assert counted(mock.base_url, ASKED) is None, "it has no tokenizer"


@pytest.mark.parametrize(
    "reply",
    [
        {"status": 404, "json": {"detail": "Not Found"}},
        {"json": {"tokens": []}},  # llama.cpp
        {"json": {"count": 0}},
        {"json": {"count": True}},
        {"json": {"count": "12"}},
        {"json": {"count": 10**12}},
        {"json": [1]},
        {"text": "<html>"},
        {"break_at": "head"},
    ],
)
def test_what_is_no_count_is_none(
    replying: Callable[[dict[str, Any]], ScriptedEndpoint], reply: dict[str, Any]
) -> None:
    endpoint = replying(reply)
    assert counted(endpoint.base_url, ASKED) is None
    (request,) = endpoint.requests
    assert request.path == "/tokenize"
    assert request.json == ASKED
