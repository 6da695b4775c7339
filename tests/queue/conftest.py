"""What tests of the rate windows work with: an event loop, and a client of the private Redis."""

import asyncio
from collections.abc import Iterator
from contextlib import closing

import pytest
import redis


@pytest.fixture
def runner() -> Iterator[asyncio.Runner]:
    with asyncio.Runner() as runner:
        yield runner


@pytest.fixture
def client(redis_url: str) -> Iterator[redis.Redis]:
    with closing(redis.Redis.from_url(redis_url, decode_responses=True)) as client:
        yield client
