"""`make up` and `make down`: the scaled topology with real processes, started once, ended exactly, its data kept."""

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg
import pytest
import redis

from batchrun.mock.config import MockConfig
from batchrun.mock.process import MockProcess
from deploy.local import exports_of, place_for_postgres, port_for, server_user
from deploy.processes import Process, Site, Trouble, stat_of, write_private
from tests import conftest, services
from tests.lab import batch_line

ROOT = Path(__file__).parents[1]
BATCHRUN = str(Path(sys.executable).parent / "batchrun")


@dataclass
class Place:
    """A project's folder, with the topology's own below it."""

    folder: Path
    postgres_folder: Path
    env: dict[str, str] = field(default_factory=dict)

    @property
    def site(self) -> Site:
        return Site(self.folder / "local")

    def do(self, *arguments: str, code: int = 0) -> str:
        """Run `deploy.local ARGUMENTS...` here; return what it said."""
        words = [sys.executable, "-m", "deploy.local", *arguments, "--folder", "local"]
        if arguments[0] == "up":
            words += ["--postgres-folder", str(self.postgres_folder)]
        env = {**os.environ, **self.env, "PYTHONPATH": str(ROOT)}
        ended = subprocess.run(words, cwd=self.folder, env=env, capture_output=True, text=True, timeout=150)
        assert ended.returncode == code, ended.stdout + ended.stderr
        return ended.stdout + ended.stderr

    def batchrun(self, *arguments: str) -> dict[str, Any]:
        """Run a command as the printed exports say."""
        env = {**os.environ, **self.env, **self.exports()}
        ended = subprocess.run(
            [BATCHRUN, *arguments, "--json"], cwd=self.folder, env=env, capture_output=True, text=True, timeout=100
        )
        value: dict[str, Any] = json.loads(ended.stdout.splitlines()[-1])
        return value

    def exports(self) -> dict[str, str]:
        lines = (self.folder / "local" / "env").read_text().splitlines()
        return {
            name: value.strip("'") for name, value in (line.removeprefix("export ").split("=", 1) for line in lines)
        }

    def pids(self) -> dict[str, int]:
        return {process.name: process.pid for process in self.site.processes()}


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    if missing := services.missing_packages():
        conftest.server_unavailable(f"not installed: {' '.join(missing)}")
    postgres_folder = Path(tempfile.mkdtemp(prefix="batchrun-test-", dir="/tmp"))  # where its user can go
    postgres_folder.chmod(0o755)
    made = Place(tmp_path, postgres_folder / "postgres")
    yield made
    for process in made.site.processes():
        process.kill()
    shutil.rmtree(postgres_folder)


@pytest.mark.process
@pytest.mark.slow
@pytest.mark.timeout(240)
def test_the_topology_comes_up_works_grows_shrinks_ends_and_comes_back(place: Place) -> None:
    (place.folder / "in.jsonl").write_text("".join(batch_line(f"a{number}") for number in range(12)))
    spec = {"task_id": "job", "model": "mock", "input_file": "in.jsonl", "output_file": "out.jsonl", "max_tokens": 8}
    (place.folder / "job.json").write_text(json.dumps(spec | {"concurrency": 4, "retry_times": 1}))
    with MockProcess(MockConfig()) as mock:
        place.env["OPENAI_BASE_URL"] = mock.base_url
        said = place.do("up", "--workers", "1")
        assert [name for name in place.exports() if f"export {name}=" in said] == [
            "BATCHRUN_DB",
            "BATCHRUN_BROKER",
            "BATCHRUN_HOME",
        ]
        first = place.pids()
        assert set(first) == {"redis", "postgres", "worker-1"}
        is_what_it_should_be(place)

        assert "started" not in place.do("up", "--workers", "2").replace("worker-2  started", "")
        assert {name: pid for name, pid in place.pids().items() if name != "worker-2"} == first
        doctor = place.batchrun("doctor", "job.json")
        troubles = {one["name"] for one in doctor["findings"] if one["level"] != "ok"}
        assert troubles <= {"distance"}, doctor  # how long the ledger takes to answer is the machine's
        (online,) = (one["message"] for one in doctor["findings"] if one["name"] == "online")
        assert online.startswith("2, with 0 requests in flight: worker-1 (")

        place.batchrun("submit", "job.json")
        assert place.batchrun("status", "job")["counts"]["completed"] == 12
        assert len((place.folder / "out.jsonl").read_text().splitlines()) == 12

        place.do("up", "--workers", "1")
        assert place.pids() == first

        stranger = subprocess.Popen(["sleep", "600"])
        borrow_number(place, stranger.pid)
        place.do("down")
        assert place.pids() == {}
        assert [pid for pid in first.values() if stat_of(pid) and stat_of(pid)[0] not in "ZX"] == []
        assert stranger.poll() is None, "a number that is another's by now is left alone"
        stranger.kill()
        stranger.wait()
        assert "nothing runs" in place.do("down")

        place.do("up", "--workers", "1")
        assert place.batchrun("status", "job")["state"] == "completed"
        place.do("down")


def is_what_it_should_be(place: Place) -> None:
    """Private, durable, on loopback, and readable by nobody else."""
    exports = place.exports()
    with redis.Redis.from_url(exports["BATCHRUN_BROKER"], decode_responses=True) as client:
        assert client.config_get("appendonly", "maxmemory-policy", "bind") == {
            "appendonly": "yes",
            "maxmemory-policy": "noeviction",
            "bind": "127.0.0.1",
        }
    with psycopg.connect(exports["BATCHRUN_DB"]) as connection:
        shown = {name: connection.execute(f"SHOW {name}").fetchone()[0] for name in ("fsync", "listen_addresses")}  # type: ignore[index]
    assert shown == {"fsync": "on", "listen_addresses": "127.0.0.1"}
    stranger = exports["BATCHRUN_DB"].replace(exports["BATCHRUN_DB"].split(":")[2].split("@")[0], "wrong")
    with pytest.raises(psycopg.OperationalError, match="password"):
        psycopg.connect(stranger)
    for name in ("env", "state.json", "redis/redis.conf"):
        assert (place.site.folder / name).stat().st_mode & 0o077 == 0, name


def borrow_number(place: Place, pid: int) -> None:
    """Leave a note of a worker that is long dead, whose process number somebody else has now."""
    write_private(place.site.folder / "pids" / "worker-9", json.dumps({"pid": pid, "born": "1", "command": []}))


@pytest.mark.process
def test_what_does_not_start_is_told_with_the_end_of_its_log(tmp_path: Path) -> None:
    site = Site(tmp_path)
    for name in ("logs", "pids"):
        (tmp_path / name).mkdir()
    words = ["sh", "-c", "echo the reason >&2; exit 3"]
    process = site.start("thing", words, cwd=tmp_path, env=dict(os.environ))
    with pytest.raises(Trouble, match=r"(?s)thing ended at once.*the reason"):
        site.await_ready(process, lambda: False)
    assert site.process("thing") is None


@pytest.mark.process
def test_a_process_is_killed_with_what_it_started(tmp_path: Path) -> None:
    with subprocess.Popen(["sh", "-c", "sleep 600 & echo $!; wait"], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        Process("thing", parent.pid, stat_of(parent.pid)[19], []).kill()
        parent.wait(10)
    deadline = time.monotonic() + 60
    while stat_of(child) and stat_of(child)[0] not in "ZX":
        assert time.monotonic() < deadline


def test_the_port_of_last_time_is_kept_while_it_is_free() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert port_for({"redis_port": port}, "redis_port") != port
    assert port_for({"redis_port": port}, "redis_port") == port


def test_a_broken_note_of_a_process_is_none(tmp_path: Path) -> None:
    (tmp_path / "pids").mkdir()
    (tmp_path / "pids" / "redis").write_text("{")
    assert Site(tmp_path).process("redis") is None
    assert Site(tmp_path).processes() == []


def test_the_exports_name_the_home_that_all_workers_share(tmp_path: Path) -> None:
    known = {"postgres_port": 1, "postgres_password": "p", "redis_port": 2, "redis_password": "r"}
    exports = exports_of(Site(tmp_path), known)
    assert exports["BATCHRUN_HOME"] == str(tmp_path / "home")
    assert exports["BATCHRUN_BROKER"] == "redis://:r@127.0.0.1:2/0"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root must run Postgres as somebody else")
@pytest.mark.parametrize(("mode", "is_inside"), [(0o755, True), (0o700, False)])
def test_postgres_keeps_its_data_where_its_user_can_go(mode: int, is_inside: bool) -> None:
    above = Path(tempfile.mkdtemp(prefix="batchrun-test-", dir="/tmp"))
    site = Site(above / "local")
    site.folder.mkdir()
    above.chmod(mode)
    place = place_for_postgres(site, server_user())
    assert (place == site.folder / "postgres") == is_inside
    assert place.parent == (site.folder if is_inside else Path("/var/lib"))
    shutil.rmtree(above)
