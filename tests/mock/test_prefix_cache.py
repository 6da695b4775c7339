"""The prefix cache of the mock: whole blocks, known by all before them, the least recently used go first."""

import asyncio
import json

import pytest

from batchrun.mock.prefix_cache import TOKENS_PER_BLOCK, PrefixCache
from tests.mock.wire import run, running


def prompt(*parts: str) -> bytes:
    """Write a body whose prompt consists of these parts, each of which fills a block or about one."""
    return json.dumps({"prompt": "".join(part * 64 for part in parts), "max_tokens": 3}).encode()


def blocks_found(cache: PrefixCache, *parts: str) -> int:
    return cache.read(prompt(*parts)) // TOKENS_PER_BLOCK


def test_a_prompt_is_found_up_to_where_it_differs() -> None:
    cache = PrefixCache(100)
    assert blocks_found(cache, "a", "b", "c") == 0
    assert blocks_found(cache, "a", "b", "c") == 3
    assert blocks_found(cache, "a", "b", "d") == 2
    assert blocks_found(cache, "z", "b", "c") == 0, "the same block behind something else is another one"


def test_the_least_recently_used_goes_first_and_the_end_of_a_prompt_before_its_beginning() -> None:
    cache = PrefixCache(6)
    blocks_found(cache, "a", "b", "c")
    blocks_found(cache, "k", "l", "m")
    assert blocks_found(cache, "a", "b", "c") == 3
    blocks_found(cache, "p", "q")
    assert blocks_found(cache, "a", "b", "c") == 3
    assert blocks_found(cache, "k", "l", "m") == 1


def test_what_the_cache_has_is_told_and_takes_no_time() -> None:
    async def test() -> None:
        loop = asyncio.get_running_loop()
        async with running(prefix_cache_blocks=100, prompt_token_ms=0.2) as (_, client):
            taken, cached = [], []
            for _ in range(2):
                sent_at = loop.time()
                answer = await client.ask("POST", "/v1/completions", prompt(*"a" * 20))
                taken.append(loop.time() - sent_at)
                cached.append(answer.json["usage"]["prompt_tokens_details"]["cached_tokens"])
            tokens = answer.json["usage"]["prompt_tokens"]
            assert cached == [0, 320]
            assert taken[0] >= 0.0002 * tokens
            stats = await client.read_stats()
            assert (stats["prefix_queries"], stats["prefix_hits"]) == (2 * tokens, 320)
            metrics = (await client.ask("GET", "/metrics")).body.decode()
            assert f"}} {2 * tokens}\n" in metrics.split("vllm:prefix_cache_queries_total{")[1]
            responses = await client.ask("POST", "/v1/responses", json.dumps({"input": "hello"}).encode())
            assert responses.json["usage"]["input_tokens_details"]["cached_tokens"] == 0

    run(test)


@pytest.mark.parametrize("settings", [{"prefix_cache_blocks": 0}, {"prompt_token_ms": -1.0}])
def test_what_makes_no_sense_is_refused(settings: dict[str, float]) -> None:
    from batchrun.mock.config import MockConfig

    with pytest.raises(ValueError, match=next(iter(settings))):
        MockConfig(**settings)  # type: ignore[arg-type]
