"""What tests of the rate windows work with: an event loop, and a client of the private Redis."""

import asyncio
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager

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


@pytest.fixture
def silence(client: redis.Redis) -> Callable[[], AbstractContextManager[None]]:
    """Return a block in which the private Redis says nothing, and after which it answers what it was asked."""

    @contextmanager
    def silent() -> Iterator[None]:
        pid = client.info("server")["process_id"]
        os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(pid, signal.SIGCONT)

    return silent
