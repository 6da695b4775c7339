"""The private servers are private, empty, durable where they should be, and die with their owner."""

import dataclasses
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest
import redis

from tests import conftest, services

OWNER = """
import sys
from tests import services
with services.run_redis() as redis_server, services.run_postgres() as postgres_server:
    print(redis_server.port, postgres_server.port, flush=True)
    sys.stdin.read()
"""


def test_redis_is_empty_private_and_keeps_nothing_on_disk(redis_url: str) -> None:
    with redis.Redis.from_url(redis_url) as client:
        assert client.dbsize() == 0
        assert client.config_get("appendonly", "save", "bind") == {"appendonly": "no", "save": "", "bind": "127.0.0.1"}
        client.set("left", "behind")


def test_redis_refuses_a_stranger(redis_server: services.RedisServer) -> None:
    stranger = dataclasses.replace(redis_server, password="wrong")
    assert stranger.ask("PING").startswith("-WRONGPASS")


def test_redis_forgets_what_an_earlier_test_left(
    redis_server: services.RedisServer, request: pytest.FixtureRequest
) -> None:
    redis_server.ask("SET left behind")
    url = request.getfixturevalue("redis_url")
    with redis.Redis.from_url(url) as client:
        assert client.dbsize() == 0


def test_postgres_keeps_its_durability(postgres_url: str) -> None:
    with psycopg.connect(postgres_url) as connection:
        shown = {name: connection.execute(f"SHOW {name}").fetchone()[0] for name in ("fsync", "synchronous_commit")}
    assert shown == {"fsync": "on", "synchronous_commit": "on"}


def test_each_postgres_database_is_empty_and_apart(
    postgres_url: str, make_postgres_database: Callable[[], str]
) -> None:
    with psycopg.connect(postgres_url) as connection:
        connection.execute("CREATE TABLE item (id int)")
    with psycopg.connect(make_postgres_database()) as connection:
        assert connection.execute("SELECT to_regclass('item')").fetchone() == (None,)


def test_postgres_refuses_a_stranger(postgres_server: services.PostgresServer) -> None:
    with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
        psycopg.connect(postgres_server.url().replace(postgres_server.password, "wrong"))


@pytest.mark.process
def test_servers_die_with_an_owner_that_was_killed(
    redis_server: services.RedisServer, postgres_server: services.PostgresServer
) -> None:
    here, pipe = Path(__file__).parents[1], subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", OWNER], cwd=here, stdin=pipe, stdout=pipe, text=True) as owner:
        ports = owner.stdout.readline().split()
        running = _processes_naming(*ports)
        assert len(running) >= 2
        owner.send_signal(signal.SIGKILL)
    deadline = time.monotonic() + 60
    while left := _processes_naming(*ports) or [path for path in running.values() if path.exists()]:
        assert time.monotonic() < deadline, left
        time.sleep(0.02)


def test_a_server_that_does_not_start_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(services, "find_program", lambda *_, **__: "/bin/cat")  # it shows its configuration and ends
    with (
        pytest.raises(services.ServerUnavailableError, match=r"(?s)did not start.*appendonly no"),
        services.run_redis(),
    ):
        pass


@pytest.mark.parametrize(("ci", "verdict"), [("true", pytest.fail.Exception), ("", pytest.skip.Exception)])
def test_a_missing_server_skips_at_home_and_fails_in_ci(
    ci: str, verdict: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CI", ci)
    monkeypatch.setattr(services.shutil, "which", lambda *_, **__: None)
    assert services.missing_packages() == ["redis-server", "postgresql", "strace"]
    with pytest.raises(verdict, match="the package 'redis-server' brings it"):
        next(conftest._run_or_skip(services.run_redis))


def _processes_naming(*ports: str) -> dict[int, Path]:
    """Find the servers' processes by the port in their command line; return each with its folder."""
    found = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                words = (entry / "cmdline").read_bytes().decode(errors="replace")
                if any(port in words for port in ports):
                    found[int(entry.name)] = Path(os.readlink(entry / "cwd"))
            except OSError:
                continue
    return found
