"""`batchrun doctor`: what is well, what is not, and the mend; it makes nothing, pays nothing, and waits for nobody."""

import contextlib
import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
import redis
from sqlalchemy import insert, select, text, update

from batchrun import __version__
from batchrun.cli.main import run
from batchrun.ledger.ledger import Ledger
from batchrun.ledger.liveness import enter
from batchrun.ledger.move import move
from batchrun.ledger.schema import heartbeats, workers
from batchrun.ledger.sight import PostgresFacts
from batchrun.runner.doctor.finding import Notes
from batchrun.runner.doctor.ledger import _note_durability
from batchrun.runner.doctor.machine import _fits, _version
from batchrun.runner.doctor.sending import tiny_request
from tests.cli.contract import read_stream
from tests.cli.doctored import Doctor, Finding, mends, models, rows, serving, silence
from tests.core.specs import parse_spec
from tests.lab import Lab
from tests.ledger.desk import let_lock_go
from tests.process.limits import few_files, obey_permissions

SPEC = {
    "task_id": "batch-001",
    "model": "mock",
    "input_file": "in.jsonl",
    "output_file": "outputs/out.jsonl",
    "max_tokens": 64,
    "concurrency": 8,
    "retry_times": 3,
}
SECRET = "sk-a-long-secret-that-nobody-sees"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder: an input, a place for outputs, a spec, and no ledger."""
    (tmp_path / "outputs").mkdir()
    (tmp_path / "in.jsonl").write_text('{"prompt": "hello"}\n')
    (tmp_path / "job.json").write_text(json.dumps(SPEC))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def doctor(folder: Path, capsys: pytest.CaptureFixture[str]) -> Doctor:
    """Run `batchrun doctor ARGUMENTS... --json` here; each row is held against its schema and must bring its mend."""

    def ask(*arguments: str, code: int) -> list[Finding]:
        given = run(["doctor", *arguments, "--json"])
        (value,) = read_stream(capsys.readouterr().out)
        findings: list[Finding] = value["findings"]
        assert given == code, findings
        assert (value["level"] == "fail") == (code == 1)
        assert [one for one in findings if (one["level"] == "ok") != (one["mend"] is None)] == []
        return findings

    return ask


def write_spec(**changes: Any) -> None:
    Path("job.json").write_text(json.dumps(SPEC | changes))


def all_files(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


# -- the whole --------------------------------------------------------------------------------------------------------


def test_in_an_empty_folder_only_the_endpoint_is_missing_and_nothing_is_made(doctor: Doctor, folder: Path) -> None:
    before = all_files(folder)
    found = doctor(code=1)
    assert [(one["area"], one["name"]) for one in found if one["level"] != "ok"] == [("endpoint", "address")]
    assert "export OPENAI_BASE_URL=" in mends(found, "endpoint")[0]
    assert ("file", "not there yet; the first `batchrun submit` makes it") in rows(found, "ledger")
    assert all_files(folder) == before


def test_a_job_that_can_run_is_all_ok_and_not_one_request_is_sent(make_lab: Callable[..., Lab]) -> None:
    lab = make_lab()
    lab.write_input(3)
    lab.write_spec()
    before = {path for path in lab.folder.rglob("*") if not path.name.startswith("run-")}
    seen = lab.run("doctor", "jobs/job.json", "--json")
    (value,) = read_stream(seen.out)
    assert seen.wait() == 0, seen.out
    assert value["level"] == "ok", value
    found = value["findings"]
    assert {one["area"] for one in found} == {"spec", "ledger", "broker", "workers", "endpoint", "machine"}
    assert ("model", "mock is listed") in rows(found, "endpoint")
    assert ("server", "batchrun's mock") in rows(found, "endpoint")
    assert (lab.judged().posts, lab.judged().billed) == (0, 0)
    assert {path for path in lab.folder.rglob("*") if not path.name.startswith("run-")} == before


@pytest.mark.process
def test_servers_that_never_answer_cost_seconds_hide_nothing_and_hold_up_no_end(folder: Path) -> None:
    with silence() as one, silence() as two, silence() as three:
        env = {**os.environ, "OPENAI_BASE_URL": f"http://127.0.0.1:{one}/v1"}
        env |= {"BATCHRUN_DB": f"postgresql://u:{SECRET}@127.0.0.1:{two}/x"}
        env |= {"BATCHRUN_BROKER": f"redis://:{SECRET}@127.0.0.1:{three}/0"}
        look = "import time; import batchrun.cli.doctor, batchrun.wiring, batchrun.queue.inspection, psycopg; "
        look += "began = time.monotonic(); from batchrun.cli.main import run; code = run(['doctor', '--json']); "
        look += "import sys; print(time.monotonic() - began, time.time(), file=sys.stderr, flush=True); sys.exit(code)"
        for _ in range(3):  # a busy machine makes one late, a fault all
            ended = subprocess.run([sys.executable, "-c", look], env=env, capture_output=True, text=True, timeout=60)
            looking_s, looked_at = map(float, ended.stderr.split())
            leaving_s = time.time() - looked_at
            if looking_s < 8 and leaving_s < 10:
                break
    (value,) = read_stream(ended.stdout)
    assert ended.returncode == 1
    for area in ("ledger", "broker", "endpoint"):
        assert rows(value["findings"], area, "fail"), area
    assert rows(value["findings"], "workers", "warn")
    assert len(rows(value["findings"], "machine", "ok")) >= 4
    assert looking_s < 8, "each look has three seconds, and they are taken side by side"
    assert leaving_s < 10
    assert SECRET not in ended.stdout


def test_a_look_that_fails_in_a_way_nobody_foresaw_hides_no_other(
    doctor: Doctor, monkeypatch: pytest.MonkeyPatch
) -> None:
    def burst(*_: object) -> None:
        raise ZeroDivisionError("odd")

    monkeypatch.setattr("batchrun.runner.doctor.machine._note_packages", burst)
    found = doctor(code=1)
    assert ("usable", "ZeroDivisionError: odd") in rows(found, "machine", "fail")
    assert rows(found, "ledger", "ok")


@pytest.mark.process
@pytest.mark.parametrize(("colours", "has_escapes"), [("", True), ("1", False)])
def test_the_screen_fits_eighty_columns_and_no_color_is_honoured(folder: Path, colours: str, has_escapes: bool) -> None:
    printed = on_a_screen(["doctor", "job.json"], env={"NO_COLOR": colours, "OPENAI_BASE_URL": "http://127.0.0.1:1"})
    lines = printed.replace("\r\n", "\n").split("\n")
    assert ("\x1b[" in printed) == has_escapes
    bare = [line for line in lines if "\x1b" not in line]
    assert [line for line in bare if len(line) > 80] == []
    assert any("mend: start the endpoint" in line for line in lines), printed


def on_a_screen(arguments: list[str], *, env: dict[str, str]) -> str:
    """Run a command with a terminal of 80 columns for its output; return what was written there."""
    import fcntl
    import struct
    import termios

    here, there = os.openpty()
    fcntl.ioctl(there, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    clean = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "COLUMNS", "CI")}
    child = subprocess.Popen(
        [sys.executable, "-m", "batchrun", *arguments], env=clean | env, stdin=there, stdout=there, stderr=there
    )
    os.close(there)
    written = b""
    with contextlib.suppress(OSError):  # a terminal whose last user has gone
        while piece := os.read(here, 65536):
            written += piece
    os.close(here)
    child.wait(30)
    return written.decode()


# -- the ledger -------------------------------------------------------------------------------------------------------


def make_ledger() -> Ledger:
    return Ledger("sqlite:///.batchrun/ledger.db", folder=Path(".batchrun"))


def test_a_ledger_in_use_is_read_and_left_as_it_is(doctor: Doctor, folder: Path) -> None:
    ledger = make_ledger()
    with ledger.write() as connection:  # a log lies beside the file
        connection.execute(text("UPDATE ledgers SET next_item_id = 2"))
    before = all_files(folder)
    found = doctor(code=1)
    assert any(name == "schema" and said.endswith("no jobs yet") for name, said in rows(found, "ledger", "ok"))
    assert all_files(folder) == before
    ledger.close()
    digest = Path(".batchrun/ledger.db").read_bytes()
    doctor(code=1)
    assert {str(path) for path in Path(".batchrun").iterdir()} == {".batchrun/ledger.db"}
    assert Path(".batchrun/ledger.db").read_bytes() == digest


@pytest.mark.parametrize(
    ("statement", "words", "mend"),
    [
        ("UPDATE alembic_version SET version_num = '9999'", "of a later batchrun", "upgrade batchrun here"),
        ("DROP TABLE alembic_version", "tables of something else", "another database with --db"),
    ],
)
def test_a_ledger_of_another_kind_is_named(doctor: Doctor, statement: str, words: str, mend: str) -> None:
    ledger = make_ledger()
    with ledger.write() as connection:
        connection.execute(text(statement))
    ledger.close()
    found = doctor(code=1)
    assert any(words in said for name, said in rows(found, "ledger", "fail") if name == "schema")
    assert any(mend in told for told in mends(found, "ledger"))


def test_a_ledger_that_was_moved_is_named_with_its_new_place(doctor: Doctor) -> None:
    make_ledger().close()
    move(".batchrun/ledger.db", "elsewhere.db")
    (said,) = [said for name, said in rows(doctor(code=1), "ledger", "fail") if name == "moved"]
    assert said.startswith("it was moved to sqlite:///")
    assert "elsewhere.db" in said
    assert rows(doctor("--db", "elsewhere.db", code=1), "ledger", "fail") == []


def test_a_file_that_is_no_ledger_is_named(doctor: Doctor, folder: Path) -> None:
    Path("junk.db").write_bytes(b"no database" * 500)
    assert rows(doctor("--db", "junk.db", code=1), "ledger", "fail") == [("usable", "file is not a database")]
    assert rows(doctor("--db", "outputs", code=1), "ledger", "fail") == [("file", "'outputs' is a folder")]
    assert "another file with --db" in mends(doctor("--db", "junk.db", code=1), "ledger")[0]
    Path("empty.db").touch()
    assert rows(doctor("--db", "empty.db", code=1), "ledger", "fail") == []
    assert Path("empty.db").stat().st_size == 0


def test_a_ledger_that_may_not_be_written_is_named(lab: Lab) -> None:
    lab.run("db", "upgrade").wait()
    (lab.folder / ".batchrun").chmod(0o555)
    seen = lab.run("doctor", "--json", before=obey_permissions)
    (lab.folder / ".batchrun").chmod(0o755)
    found = seen.json["findings"]
    assert any("cannot be written to" in said for name, said in rows(found, "ledger", "fail") if name == "access")


def test_a_ledger_on_a_network_file_system_or_in_memory_is_named(
    doctor: Doctor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("batchrun.runner.doctor.ledger.network_file_system", lambda folder: "nfs4")
    monkeypatch.setattr("batchrun.runner.doctor.places.file_system", lambda folder: "tmpfs")
    found = doctor(code=1)
    assert any("network file system (nfs4)" in said for name, said in rows(found, "ledger", "fail") if name == "place")
    assert any("lies in memory" in said for name, said in rows(found, "ledger", "warn") if name == "memory")


@pytest.mark.parametrize(("free_bytes", "level"), [(10**12, "ok"), (5 * 10**8, "warn"), (10**7, "fail")])
def test_a_disk_that_is_nearly_full_is_named(
    doctor: Doctor, free_bytes: int, level: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda path: type("Usage", (), {"free": free_bytes}))
    assert [name for name, _ in rows(doctor(code=1), "ledger", level)].count("disk") == 1


def test_an_old_sqlite_is_a_warning_and_with_a_write_ahead_log_a_failure(
    doctor: Doctor, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_ledger().close()
    faulty = type("Faulty", (), {"sqlite_version": "3.40.1", "__name__": "sqlite3.dbapi2"})
    monkeypatch.setattr("batchrun.runner.doctor.ledger.sqlite_module", lambda: faulty)
    found = doctor(code=1)
    assert any("WAL-reset" in said for name, said in rows(found, "ledger", "fail") if name == "sqlite")
    found = doctor("--db", "other.db", code=1)
    assert any("rollback journal" in said for name, said in rows(found, "ledger", "warn") if name == "sqlite")


def test_postgres_is_asked_for_its_durability_and_its_tables(doctor: Doctor, postgres_url: str) -> None:
    found = doctor("--db", postgres_url, code=1)
    assert ("durability", "fsync on, synchronous_commit on") in rows(found, "ledger", "ok")
    assert any(said.startswith("an empty database") for name, said in rows(found, "ledger", "ok") if name == "schema")
    with psycopg.connect(postgres_url) as connection:
        assert connection.execute("SELECT count(*) FROM pg_tables WHERE schemaname = 'public'").fetchone() == (0,)
    assert run(["db", "upgrade", "--db", postgres_url]) == 0


def test_a_postgres_that_cannot_be_used_says_why_and_no_password(doctor: Doctor, postgres_url: str) -> None:
    address, _, database = postgres_url.rpartition("/")
    start, _, host = address.partition("@")
    wrong = doctor("--db", f"postgresql://batchrun:{SECRET}@{host}/{database}", code=1)
    assert "password authentication failed" in rows(wrong, "ledger", "fail")[0][1]
    assert mends(wrong, "ledger") == ["correct user and password in BATCHRUN_DB"]
    gone = doctor("--db", f"{address}/nowhere", code=1)
    assert mends(gone, "ledger")[0].startswith("createdb it")
    assert SECRET not in json.dumps(wrong)
    assert start.rpartition(":")[2] not in json.dumps([wrong, gone])


def test_a_role_without_rights_is_told_which_it_needs(
    doctor: Doctor, postgres_url: str, request: pytest.FixtureRequest
) -> None:
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute("CREATE ROLE weak LOGIN PASSWORD 'weak'")
        try:
            found = doctor("--db", postgres_url.replace(postgres_url.split("@")[0], "postgresql://weak:weak"), code=1)
        finally:
            connection.execute("DROP ROLE weak")
    assert [name for name, _ in rows(found, "ledger", "fail")] == ["rights"]


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"is_standby": True}, "primary"),
        ({"fsync": False}, "durability"),
        ({"synchronous_commit": "off"}, "durability"),
        ({"encoding": "LATIN1"}, "encoding"),
    ],
)
def test_a_server_that_would_forget_what_was_paid_fails(changes: dict[str, Any], name: str) -> None:
    sound: dict[str, Any] = {"version": "15", "is_standby": False, "synchronous_commit": "on", "fsync": True}
    sound |= {"full_page_writes": True, "encoding": "UTF8", "may_create": True, "connections": 1}
    sound |= {"max_connections": 100, "clock_ahead_s": 0.0, "answer_s": 0.001}
    notes = Notes()
    _note_durability(notes, PostgresFacts(**sound | changes))
    assert [found.name for found in notes.findings if found.level == "fail"] == [name]


# -- the broker -------------------------------------------------------------------------------------------------------


@pytest.fixture
def settings_of_redis(redis_url: str) -> Iterator[redis.Redis]:
    """A Redis whose settings are put back."""
    with redis.Redis.from_url(redis_url, decode_responses=True) as client:
        names = ("maxmemory", "maxmemory-policy", "appendonly", "appendfsync")
        before = client.config_get(*names)
        yield client
        for name, value in before.items():
            client.config_set(name, value)


def test_a_broker_is_asked_for_eviction_persistence_and_time(
    doctor: Doctor, redis_url: str, settings_of_redis: redis.Redis
) -> None:
    settings_of_redis.config_set("appendonly", "yes")
    found = doctor("--broker", redis_url, code=1)
    assert rows(found, "broker", "warn") == []
    assert [name for name, _ in rows(found, "broker", "ok")] == ["reachable", "eviction", "persistence", "clock"]
    assert rows(found, "workers", "warn") == [("online", "none, so nothing works on what is submitted")]
    assert ("hosts", "a file, so every worker must run on this host; Postgres serves many") in rows(found, "ledger")
    settings_of_redis.config_set("maxmemory-policy", "allkeys-lru")
    settings_of_redis.config_set("maxmemory", "100mb")
    settings_of_redis.config_set("appendfsync", "no")
    found = doctor("--broker", redis_url, code=1)
    assert [name for name, _ in rows(found, "broker", "warn")] == ["eviction", "persistence"]
    assert "config set maxmemory-policy noeviction" in mends(found, "broker")[0]
    settings_of_redis.config_set("appendonly", "no")
    assert "no append-only file" in rows(doctor("--broker", redis_url, code=1), "broker", "warn")[1][1]


def test_looking_at_a_broker_leaves_nothing_there(doctor: Doctor, redis_url: str) -> None:
    doctor("--broker", redis_url, code=1)
    with redis.Redis.from_url(redis_url) as client:
        assert client.dbsize() == 0


def test_a_broker_that_cannot_be_used_says_why_and_no_password(doctor: Doctor, redis_url: str) -> None:
    password = redis_url.split(":")[2].split("@")[0]
    wrong = doctor("--broker", redis_url.replace(password, SECRET), code=1)
    assert "it refuses the password" in rows(wrong, "broker", "fail")[0][1]
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        down = doctor("--broker", f"redis://:{SECRET}@127.0.0.1:{unused.getsockname()[1]}/0", code=1)
    assert [name for name, _ in rows(down, "broker", "fail")] == ["reachable"]
    assert mends(down, "broker")[0].startswith("start redis-server")
    other = doctor("--broker", f"amqp://guest:{SECRET}@127.0.0.1", code=1)
    assert "batchrun takes Redis" in rows(other, "broker", "fail")[0][1]
    assert SECRET not in json.dumps([wrong, down, other])
    assert password not in json.dumps([wrong, down, other])


# -- the workers ------------------------------------------------------------------------------------------------------


def test_workers_are_told_apart_into_living_dead_and_silent(doctor: Doctor, folder: Path) -> None:
    ledger = make_ledger()
    alive = enter(ledger, name="alive", now=time.time())
    dead = enter(ledger, name="dead", now=time.time())
    left = enter(ledger, name="left", now=time.time())
    let_lock_go(dead)
    left.leave(ledger, now=time.time())
    far = [hello_from_afar(ledger, name) for name in ("beats", "silent")]
    stop = threading.Event()
    heart = threading.Thread(target=keep_beating, args=(ledger, far[0], stop))
    heart.start()
    try:
        found = doctor(code=1)
    finally:
        stop.set()
        heart.join()
        alive.leave(ledger, now=time.time())
        ledger.close()
    (online,) = (said for name, said in rows(found, "workers", "ok") if name == "online")
    assert online.startswith("2, with 0 requests in flight: alive ")
    assert "beats (elsewhere, pid 1)" in online
    warned = dict(rows(found, "workers", "warn"))
    assert warned["dead"].startswith("1 dead")
    assert "dead (" in warned["dead"]
    assert "silent (elsewhere, pid 1)" in warned["silent"]
    assert f"beats (elsewhere, pid 1) runs batchrun 0.0.1, this is {__version__}" in warned["version"]


def hello_from_afar(ledger: Ledger, name: str) -> int:
    """Enter a worker whose files are on a host that cannot be seen from here."""
    values = {"incarnation": name, "name": name, "host": "elsewhere", "pid": 1, "folder": "/no/such/folder"}
    values |= {"version": "0.0.1", "started_at": time.time()}
    with ledger.write() as connection:
        worker_id: int = connection.execute(insert(workers).values(values).returning(workers.c.id)).scalar_one()
        connection.execute(insert(heartbeats).values(worker_id=worker_id, beat=0, in_flight=0))
    return worker_id


def keep_beating(ledger: Ledger, worker_id: int, stop: threading.Event) -> None:
    while not stop.wait(0.1):
        with ledger.write() as connection:
            beats = update(heartbeats).where(heartbeats.c.worker_id == worker_id)
            connection.execute(beats.values(beat=heartbeats.c.beat + 1))


def test_looking_at_workers_changes_nothing_of_them(doctor: Doctor) -> None:
    ledger = make_ledger()
    hello_from_afar(ledger, "silent")
    doctor(code=1)
    with ledger.read() as connection:
        assert connection.execute(select(workers.c.ended_at)).scalars().all() == [None]
    ledger.close()


# -- the endpoint -----------------------------------------------------------------------------------------------------


def at(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", address)


def test_a_server_is_known_by_its_models_and_tells_its_version(doctor: Doctor, monkeypatch: pytest.MonkeyPatch) -> None:
    replies = {"/v1/models": models("Qwen/Qwen3-8B", owned_by="vllm", max_model_len=4096)}
    with serving(replies | {"/version": (200, {}, b'{"version": "0.11.0"}')}) as server:
        at(server.base_url, monkeypatch)
        found = doctor(code=0)
        assert ("server", "vLLM 0.11.0") in rows(found, "endpoint", "ok")
        assert ("models", "1: Qwen/Qwen3-8B") in rows(found, "endpoint", "ok")
        write_spec(model="Qwen/Qwen3-8B")
        found = doctor("job.json", code=0)
        assert ("model", "Qwen/Qwen3-8B is listed, 4,096 tokens of context") in rows(found, "endpoint", "ok")
        write_spec(model="Qwen/Qwen3-8B", max_tokens=4096)
        assert "leaves no room for a prompt" in rows(doctor("job.json", code=1), "endpoint", "fail")[0][1]
        write_spec(model="qwen3-8b")
        ((name, said),) = rows(doctor("job.json", code=1), "endpoint", "fail")
        assert name == "model"
        assert "Did you mean 'Qwen/Qwen3-8B'?" in said
    assert all(asked.startswith("GET ") for asked in server.asked)
    assert [asked for asked in server.asked if asked.endswith("/v1/models")] == ["GET /v1/models"] * 12


def test_a_server_that_may_take_any_name_is_only_warned_of(doctor: Doctor, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving({"/v1/models": models("one", owned_by="llamacpp")}) as server:
        at(server.base_url, monkeypatch)
        found = doctor("job.json", code=0)
    assert ("server", "llama.cpp") in rows(found, "endpoint")
    assert "'mock' is not listed" in rows(found, "endpoint", "warn")[0][1]


@pytest.mark.parametrize(
    ("headers", "level", "words"),
    [
        ({"x-litellm-call-id": "1"}, "warn", "every request of ours forbids that"),
        ({"Via": "1.1 somewhere"}, "warn", "may send a request again by itself"),
        ({"x-kong-upstream-latency": "1"}, "warn", "Kong"),
        ({"cf-ray": "1", "openai-version": "2020-10-01"}, "ok", "Cloudflare"),
        ({}, None, ""),
    ],
)
def test_a_gateway_is_named_with_what_it_may_do(
    doctor: Doctor, headers: dict[str, str], level: str | None, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving({"/v1/models": models("mock", owned_by="openai", headers=headers)}) as server:
        at(server.base_url, monkeypatch)
        found = doctor("job.json", code=0)
    gateways = [(one["level"], one["message"]) for one in found if one["name"] == "gateway"]
    assert [told for told, _ in gateways] == ([level] if level else [])
    assert all(words in said for _, said in gateways)


@pytest.mark.parametrize(
    ("reply", "code", "name", "words"),
    [
        ((401, {}, b'{"error": {"message": "no"}}'), 1, "answer", "401"),
        ((302, {"Location": "https://example.org/"}, b""), 1, "answer", "302"),
        ((500, {}, b'{"error": {"message": "broken"}}'), 1, "answer", "broken"),
        ((200, {"Content-Type": "text/html"}, b"<html><title>Hi</title></html>"), 0, "models", "no list of models"),
        ((404, {}, b"{}"), 0, "reachable", "lists no models"),
    ],
)
def test_an_answer_that_is_no_list_is_told_by_what_it_is(
    doctor: Doctor, reply: Any, code: int, name: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving({"/v1/models": reply}) as server:
        at(server.base_url, monkeypatch)
        found = doctor(code=code)
    told = {one["name"]: one["message"] for one in found if one["area"] == "endpoint" and one["level"] != "ok"}
    assert words in told[name]


def test_a_litellm_proxy_is_known_by_its_page_of_health(doctor: Doctor, monkeypatch: pytest.MonkeyPatch) -> None:
    """A real one (1.108) puts no mark of its own on its list of models."""
    replies = {"/v1/models": models("turbo-opt", owned_by="openai"), "/health/liveliness": (200, {}, b'"I\'m alive!"')}
    with serving(replies) as server:
        at(server.base_url, monkeypatch)
        (gateway,) = [one for one in doctor(code=0) if one["name"] == "gateway"]
        write_spec(model="other")
        refused = rows(doctor("job.json", code=1), "endpoint", "fail")
    assert gateway["message"].startswith("LiteLLM")
    assert "`fallbacks`" in gateway["mend"]
    assert [name for name, _ in refused] == ["model"], "it takes no model that it does not list"


def test_a_server_that_refuses_who_brings_no_key_is_told_one(doctor: Doctor, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving({"/v1/models": (400, {}, b'{"error": {"message": "No connected db."}}')}) as server:
        at(server.base_url, monkeypatch)
        assert "set OPENAI_API_KEY" in mends(doctor(code=1), "endpoint")[0]


def test_an_endpoint_that_is_not_there_is_a_failure(doctor: Doctor, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        at(f"http://127.0.0.1:{unused.getsockname()[1]}/v1", monkeypatch)
        found = doctor(code=1)
    ((name, said),) = rows(found, "endpoint", "fail")
    assert (name, "connection refused" in said) == ("reachable", True)


def test_a_clock_that_differs_from_the_endpoints_is_a_warning(doctor: Doctor, monkeypatch: pytest.MonkeyPatch) -> None:
    headers = {"Date": "Thu, 01 Jan 2026 00:00:00 GMT"}
    with serving({"/v1/models": models("mock", headers=headers)}) as server:
        at(server.base_url, monkeypatch)
        assert "clocks" in rows(doctor(code=0), "endpoint", "warn")[0][1].replace("clock and", "clocks")


def test_several_specs_are_asked_for_at_their_own_endpoints(doctor: Doctor, folder: Path) -> None:
    with serving({"/v1/models": models("a")}) as one, serving({"/v1/models": models("b")}) as two:
        specs = [
            SPEC | {"task_id": "a", "model": "a", "base_url": one.base_url, "output_file": "outputs/a.jsonl"},
            SPEC | {"task_id": "b", "model": "b", "base_url": two.base_url, "output_file": "outputs/b.jsonl"},
        ]
        Path("all.jsonl").write_text("".join(json.dumps(spec) + "\n" for spec in specs))
        found = doctor("all.jsonl", code=0)
    subjects = {one["subject"] for one in found if one["area"] == "endpoint"}
    assert subjects == {one.base_url, two.base_url}
    assert [said for name, said in rows(found, "endpoint") if name == "model"] == ["a is listed", "b is listed"]
    assert {one["subject"] for one in found if one["area"] == "spec"} == {"all.jsonl line 1", "all.jsonl line 2"}


@pytest.mark.parametrize(
    ("env", "level", "words"),
    [
        ({"HTTP_PROXY": "http://127.0.0.1:9"}, "ok", "a loopback address never goes through it"),
        ({}, None, ""),
    ],
)
def test_a_proxy_is_named_and_never_used_for_loopback(
    doctor: Doctor, env: dict[str, str], level: str | None, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    with serving({"/v1/models": models("mock")}) as server:
        at(server.base_url, monkeypatch)
        found = doctor(code=0)
    told = [(one["level"], one["message"]) for one in found if one["name"] == "proxy"]
    assert [one for one, _ in told] == ([level] if level else [])
    assert all(words in said for _, said in told)


def test_a_proxy_that_cannot_be_used_or_is_on_the_way_to_a_private_address_is_named(
    doctor: Doctor, monkeypatch: pytest.MonkeyPatch
) -> None:
    at("http://10.1.2.3:8000", monkeypatch)
    monkeypatch.setenv("HTTP_PROXY", "socks5://127.0.0.1:9")
    assert "'socks5' proxy" in rows(doctor(code=1), "endpoint", "fail")[0][1]
    monkeypatch.setenv("HTTP_PROXY", f"http://user:{SECRET}@127.0.0.1:9")
    found = doctor(code=1)
    assert "is a private address" in rows(found, "endpoint", "warn")[0][1]
    assert SECRET not in json.dumps(found)
    assert "export NO_PROXY=10.1.2.3" in mends(found, "endpoint")


# -- the key ----------------------------------------------------------------------------------------------------------


def test_the_key_is_told_by_its_variable_and_never_shown(
    doctor: Doctor, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving({"/v1/models": models("mock")}) as server:
        at(server.base_url, monkeypatch)
        assert any("none set" in said for name, said in rows(doctor(code=0), "endpoint") if name == "key")
        Path(".env").write_text(f"OPENAI_API_KEY={SECRET}\n")
        found = doctor(code=0)
        assert ("key", "set by OPENAI_API_KEY in the env file (not shown)") in rows(found, "endpoint", "ok")
        monkeypatch.setenv("MY_KEY", SECRET)
        write_spec(api_key_env="MY_KEY")
        found += doctor("job.json", code=0)
        assert ("key", "set by MY_KEY (the spec's api_key_env) (not shown)") in rows(found, "endpoint", "ok")
        monkeypatch.setenv("OPENAI_API_KEY", f"{SECRET[:9]}\u201c{SECRET[9:]}")
        found += doctor(code=1)
    assert "a curly quote (U+201C) as character 10" in rows(found, "endpoint", "fail")[0][1]
    assert SECRET not in json.dumps(found)


def test_a_public_endpoint_without_its_key_is_a_failure(doctor: Doctor) -> None:
    write_spec(base_url="https://api.example.invalid/v1", api_key_env="MY_KEY")
    failed = dict(rows(doctor("job.json", code=1), "endpoint", "fail"))
    assert "'MY_KEY' (api_key_env) is not set" in failed["key"]
    assert "does not resolve" in failed["reachable"], "the one failure hides not the other"


# -- the spec and its files -------------------------------------------------------------------------------------------


def test_a_faulty_spec_and_missing_files_are_named_beside_all_else(doctor: Doctor, folder: Path) -> None:
    write_spec(concurrency=0, modell="x")
    found = doctor("job.json", code=1)
    assert [name for name, _ in rows(found, "spec", "fail")] == ["spec", "spec"]
    assert rows(found, "ledger", "ok")
    write_spec(input_file="nothing.jsonl", output_file="nowhere/out.jsonl")
    found = doctor("job.json", code=1)
    assert len(rows(found, "spec", "fail")) == 2
    assert any(mend.startswith("mkdir -p") for mend in mends(found, "spec"))
    assert not Path("nowhere").exists()


def test_a_spec_that_is_not_there_is_a_wrong_command(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["doctor", "none.json"]) == 2
    assert run(["doctor", "--send"]) == 2
    assert "--send needs a SPEC" in capsys.readouterr().err


# -- sending ----------------------------------------------------------------------------------------------------------


def test_one_request_of_one_token_is_sent_when_asked_and_no_ledger_is_made(make_lab: Callable[..., Lab]) -> None:
    lab = make_lab()
    lab.write_input(3)
    lab.write_spec(params={"temperature": 0, "n": 4, "max_completion_tokens": 900}, system="be brief")
    seen = lab.run("doctor", "jobs/job.json", "--send", "--json")
    assert seen.wait() == 0, seen.out
    ((name, said),) = rows(seen.json["findings"], "request")
    assert name == "answered"
    assert said.endswith("1 out (billed as usage)")
    assert (lab.judged().posts, lab.judged().billed) == (1, 1)
    assert not (lab.folder / ".batchrun").exists()


def test_a_refused_request_fails_with_the_endpoints_words(make_scripted: Callable[..., Any]) -> None:
    refusal = {"status": 400, "json": {"error": {"message": "temperature must be 1"}}}
    lab, endpoint = make_scripted(rules=[{"when": {}, "replies": [refusal], "then": "again"}], models=["mock"])
    lab.write_input(1)
    lab.write_spec()
    seen = lab.run("doctor", "jobs/job.json", "--send", "--json")
    assert seen.wait() == 1
    ((name, said),) = rows(seen.json["findings"], "request", "fail")
    assert name == "refused"
    assert "temperature must be 1 (not billed)" in said
    assert len(endpoint.requests) == 1


@pytest.mark.parametrize(
    ("path", "field", "least"),
    [
        ("/v1/chat/completions", "max_tokens", 1),
        ("/v1/completions", "max_tokens", 1),
        ("/v1/responses", "max_output_tokens", 16),
        ("/v1/embeddings", None, None),
    ],
)
def test_the_request_is_the_jobs_own_but_for_its_length(path: str, field: str | None, least: int | None) -> None:
    spec = SPEC | {"endpoint": path, "params": {"temperature": 0.5, "n": 9, "best_of": 9, "max_tokens": 500}}
    request = tiny_request(parse_spec(json.dumps(spec), where="job.json"))
    body = json.loads(request.body)
    assert (request.path, body["model"], body["temperature"]) == (path, "mock", 0.5)
    assert not {"n", "best_of"} & set(body)
    assert max((body[name] for name in body if name.startswith("max_")), default=None) == least
    assert field is None or request.max_output_tokens == least


# -- the machine ------------------------------------------------------------------------------------------------------


def test_too_few_open_files_for_the_concurrency_is_a_failure(make_lab: Callable[..., Lab]) -> None:
    lab = make_lab()
    lab.write_input(3)
    lab.write_spec(concurrency=900)
    seen = lab.run("doctor", "jobs/job.json", "--json", before=few_nine_hundred)
    assert seen.wait() == 1
    ((name, said),) = rows(seen.json["findings"], "machine", "fail")
    assert (name, said) == ("open files", "at most 900; 900 requests at once need about 964")


def few_nine_hundred() -> None:
    few_files(900)


@pytest.mark.parametrize(
    ("version", "wanted", "answer"),
    [
        ("5.7.0", ">=5.7,<5.8", True),
        ("5.8.0", ">=5.7,<5.8", False),
        ("5.6.9", "<5.8,>=5.7", False),
        ("3.1.6", ">=3.1.6,<4", True),
        ("4.0.0rc1", ">=3.1.6,<4", False),
        ("25.4", ">=25.4", True),
        ("26.1.0", ">=25.4", True),
        ("2.0", "!=2.0", True),
    ],
)
def test_a_package_outside_of_its_range_is_seen(version: str, wanted: str, answer: bool) -> None:
    assert _fits(_version(version), wanted) is answer


def test_a_package_that_was_changed_behind_our_back_is_named(doctor: Doctor, monkeypatch: pytest.MonkeyPatch) -> None:
    from importlib import metadata

    real = metadata.version
    monkeypatch.setattr(metadata, "version", lambda name: "6.1.0" if name == "celery" else real(name))
    ((name, said),) = rows(doctor(code=1), "machine", "warn")
    assert name == "packages"
    assert said.startswith("celery 6.1.0 is installed")


def test_a_clock_before_our_time_is_a_failure(doctor: Doctor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("batchrun.runner.doctor.machine.BUILT_AT", time.time() + 1e6)
    assert [name for name, _ in rows(doctor(code=1), "machine", "fail")] == ["clock"]
