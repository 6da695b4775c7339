"""Fixtures for every test: a clean environment and private servers, started only by the tests that ask for them."""

import gc
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from itertools import count
from typing import Any, TypeVar
from zlib import crc32

import pytest
from hypothesis import settings

from batchrun.ledger.ledger import Ledger
from tests import services

Server = TypeVar("Server")
_OPEN = Ledger.__init__


def pytest_configure() -> None:
    """Take the user's own endpoint, key, ledger and proxies out of the environment of the tests and their processes."""
    for name in list(os.environ):
        if name.upper().startswith(("BATCHRUN_", "OPENAI_")) or name.upper().endswith("_PROXY"):
            del os.environ[name]
    if settings.get_current_profile_name() == "ci":
        settings.register_profile("ci", settings.get_profile("ci"), derandomize=False)  # tests/examples.py tells why
        settings.load_profile("ci")
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as a shell starts what runs in its background
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_finish() -> None:
    """Keep thousands of tests, and all that they import, out of every later look for garbage: a third of the CPU."""
    gc.collect()
    gc.freeze()


# Whole processes that run for seconds: all of them together take longer than anybody waits for.
LONG = (
    "tests/process/",
    "tests/acceptance/test_measuring.py",
    "tests/corpus/",
    "tests/proof/test_chains.py",
    "tests/proof/test_disk.py",
    "tests/proof/test_every_state.py",
    "tests/ledger/test_machine.py",
    "tests/ledger/test_contention.py",
    "tests/ledger/test_cost_cap.py",
    "tests/ledger/test_register.py::test_a_hundred_thousand",
    "tests/ledger/test_move.py",
    "tests/bench/test_bench_command.py",
    "tests/cli/test_exit_codes.py::test_a_process_ends_with_the_code_of_what_happened[7-the_demo",
    "tests/cli/test_json_contract.py::test_the_proof_of_the_demo",
    "tests/cli/test_completion.py",
    "tests/cli/test_terminal.py",
    "tests/cli/test_series.py",
    "tests/cli/test_shadow.py",
    "tests/test_demo.py",
    "tests/test_local.py",
)
# Of these files, what a change elsewhere breaks: a new table, say, that the ledger to be moved has no row of.
EVERY_DAY = ("tests/ledger/test_move.py::test_the_ledger_that_is_moved_here_has_rows_in_every_table",)
SHARES = 4
# What takes a minute begins first: at the end all the others would wait for it.
FIRST = (
    "tests/docs/test_commands.py",
    "tests/proof/test_matrix.py",
    "tests/proof/test_points.py",
    "tests/proof/test_disk.py",
    "tests/test_demo.py",
)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Put the slowest first. In CI, run a quarter of the long tests, another one each day.

    `make test` runs them all, as does ALL_TESTS=1.
    """
    items.sort(key=lambda item: not item.nodeid.startswith(FIRST))
    if os.environ.get("CI", "").lower() not in ("true", "1") or os.environ.get("ALL_TESTS"):
        return
    today = datetime.now(UTC).date().toordinal() % SHARES
    long = [item for item in items if item.nodeid.startswith(LONG) and not item.nodeid.startswith(EVERY_DAY)]
    late = [item for item in long if crc32(item.nodeid.encode()) % SHARES != today]
    config.hook.pytest_deselected(items=late)
    gone = set(late)
    items[:] = [item for item in items if item not in gone]


@pytest.fixture(autouse=True)
def _closed_ledgers(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Close what a test opened: a test process runs thousands of tests, and a ledger keeps three files open."""
    opened: list[Ledger] = []

    def remember(ledger: Ledger, *args: Any, **named: Any) -> None:
        opened.append(ledger)
        _OPEN(ledger, *args, **named)

    monkeypatch.setattr(Ledger, "__init__", remember)
    yield
    for ledger in opened:
        if hasattr(ledger, "engine"):
            ledger.close()


@pytest.fixture(scope="session")
def redis_server() -> Iterator[services.RedisServer]:
    """This test process's own redis-server; ask for `redis_url` to find it empty."""
    yield from _run_or_skip(services.run_redis)


@pytest.fixture
def redis_url(redis_server: services.RedisServer) -> str:
    """The address of a private Redis that holds nothing yet."""
    assert redis_server.ask("FLUSHALL") == "+OK\r\n"
    return redis_server.url


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[services.PostgresServer]:
    """This test process's own Postgres cluster; ask for `postgres_url` to get a database in it."""
    yield from _run_or_skip(services.run_postgres)


@pytest.fixture(scope="session")
def make_postgres_database(postgres_server: services.PostgresServer) -> Iterator[Callable[[], str]]:
    """Return a function that makes one more empty database and returns its address."""
    import psycopg

    numbers = count(1)
    with psycopg.connect(postgres_server.url(), autocommit=True) as admin:

        def make() -> str:
            name = f"test_{next(numbers)}"
            admin.execute(f"CREATE DATABASE {name}")
            return postgres_server.url(name)

        yield make


@pytest.fixture
def postgres_url(make_postgres_database: Callable[[], str]) -> str:
    """The address of an empty Postgres database of this test's own."""
    return make_postgres_database()


def _run_or_skip(run: Callable[[], AbstractContextManager[Server]]) -> Iterator[Server]:
    try:
        with run() as server:
            yield server
    except services.ServerUnavailableError as reason:
        server_unavailable(str(reason))


def server_unavailable(reason: str) -> None:
    """Skip at home; fail where a skipped test would go unseen (CI=true)."""
    if os.environ.get("CI", "").lower() in ("true", "1"):
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)
