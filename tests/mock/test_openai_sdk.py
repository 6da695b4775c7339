"""The real OpenAI client is content with every answer."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from openai import AsyncOpenAI, AuthenticationError, NotFoundError, RateLimitError

from tests.mock.wire import run, running

MESSAGES: Any = [{"role": "user", "content": "[[q-1]] hello"}]


@asynccontextmanager
async def sdk(**settings: Any) -> AsyncIterator[AsyncOpenAI]:
    async with (
        running(**settings) as (server, _),
        AsyncOpenAI(base_url=server.base_url, api_key="k", max_retries=0, timeout=10.0) as client,
    ):
        yield client


def test_the_sdk_reads_a_chat_completion() -> None:
    async def test() -> None:
        async with sdk() as client:
            answer = await client.chat.completions.create(model="mock", messages=MESSAGES, max_tokens=5, n=2)
            assert answer.choices[1].finish_reason == "length"
            assert (answer.choices[0].message.content or "").startswith("[[q-1]] ")
            assert answer.usage is not None
            assert answer.usage.completion_tokens == 10
            assert answer._request_id == "req-1"

    run(test)


def test_the_sdk_reads_a_chat_stream() -> None:
    async def test() -> None:
        async with sdk(itl_ms=1.0) as client:
            stream = await client.chat.completions.create(
                model="mock", messages=MESSAGES, max_tokens=5, stream=True, stream_options={"include_usage": True}
            )
            chunks = [chunk async for chunk in stream]
            assert len([c for c in chunks if c.choices and c.choices[0].delta.content]) == 5
            assert chunks[-1].usage is not None

    run(test)


def test_the_sdk_reads_a_legacy_completion() -> None:
    async def test() -> None:
        async with sdk() as client:
            answer = await client.completions.create(model="mock", prompt="[[q-1]] once", max_tokens=5)
            assert answer.choices[0].text.startswith("[[q-1]] ")

    run(test)


def test_the_sdk_reads_embeddings_in_both_encodings() -> None:
    async def test() -> None:
        async with sdk() as client:
            packed = await client.embeddings.create(model="mock", input=["a", "b"], dimensions=16)
            plain = await client.embeddings.create(
                model="mock", input=["a", "b"], dimensions=16, encoding_format="float"
            )
            assert [row.embedding for row in packed.data] == [row.embedding for row in plain.data]
            assert len(plain.data[1].embedding) == 16

    run(test)


def test_the_sdk_reads_a_response_and_its_stream() -> None:
    async def test() -> None:
        async with sdk() as client:
            answer = await client.responses.create(model="mock", input="[[q-1]] hello")
            assert (answer.status, answer.output_text[:8]) == ("completed", "[[q-1]] ")
            assert answer.usage is not None
            cut = await client.responses.create(model="mock", input="[[q-1]] hello", max_output_tokens=3)
            assert cut.incomplete_details is not None
            assert (cut.status, cut.incomplete_details.reason) == ("incomplete", "max_output_tokens")
            async with client.responses.stream(model="mock", input="[[q-1]] hello") as stream:
                final = await stream.get_final_response()
            assert final.output_text.startswith("[[q-1]] ")

    run(test)


@pytest.mark.parametrize(
    ("settings", "error"),
    [
        ({"rate_limit_rate": 1.0}, RateLimitError),
        ({"strict_models": True, "models": ("other",)}, NotFoundError),
        ({"api_key": "another"}, AuthenticationError),
    ],
)
def test_the_sdk_recognises_the_errors(settings: dict[str, Any], error: type[Exception]) -> None:
    async def test() -> None:
        async with sdk(**settings) as client:
            with pytest.raises(error):
                await client.chat.completions.create(model="mock", messages=MESSAGES)

    run(test)


def test_the_sdk_finds_a_stored_completion() -> None:
    async def test() -> None:
        async with sdk(stores=True) as client:
            completions = client.chat.completions
            kept = await completions.create(model="mock", messages=MESSAGES, store=True, metadata={"attempt": "br-7"})
            assert [one.id async for one in completions.list(metadata={"attempt": "br-7"}, limit=1)] == [kept.id]
            assert (await completions.retrieve(kept.id)).choices == kept.choices
            assert [one.content async for one in completions.messages.list(kept.id)] == ["[[q-1]] hello"]

    run(test)
