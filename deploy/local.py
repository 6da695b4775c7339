"""The scaled topology with plain processes: a Redis, a Postgres and N workers of this checkout. `make up`, `make down`.

What docker-compose.yml does with containers, for a machine without them. Everything is bound to loopback and lies under
one folder; what runs is known by process id and start time, so that nothing else is ever ended.
"""

import argparse
import contextlib
import fcntl
import glob
import hashlib
import os
import pwd
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from deploy.processes import POLL_S, Process, Site, Trouble, write_private

STOP_S = 30.0  # of a server; workers have their drain timeout
TELL_EVERY_S = 10.0
BATCHRUN = [str(Path(sys.executable).parent / "batchrun")]


# -- what is started --------------------------------------------------------------------------------------------------


def program(name: str, *, package: str) -> str:
    """Return the path of a server's program.

    Raises:
        Trouble: it is not there.
    """
    postgres = sorted(glob.glob("/usr/lib/postgresql/*/bin"), key=lambda path: float(path.split("/")[4]), reverse=True)
    found = shutil.which(name) or shutil.which(name, path=os.pathsep.join([*postgres, "/usr/sbin", "/usr/local/sbin"]))
    if found is None:
        raise Trouble(f"{name!r} was not found; on Debian: apt-get install {package}")
    return found


def port_for(known: dict[str, Any], name: str) -> int:
    """Return the port of last time where it is still free, else a new one."""
    for port in (known.get(name, 0), 0):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # a port that waits out its last connection
            with contextlib.suppress(OSError):
                probe.bind(("127.0.0.1", port))
                taken: int = probe.getsockname()[1]
                return taken
    raise Trouble("no port is free on 127.0.0.1")


def redis_answers(port: int, password: str) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=2) as connection:
            connection.sendall(f"AUTH {password}\r\nPING\r\nQUIT\r\n".encode())
            return b"+PONG" in b"".join(iter(lambda: connection.recv(4096), b""))
    except OSError:
        return False


def up_redis(site: Site, known: dict[str, Any]) -> str:
    """Make sure that Redis runs; say what was done."""
    password = known.setdefault("redis_password", secrets.token_hex(16))
    if site.process("redis") is not None:
        return "runs already"
    port = known["redis_port"] = port_for(known, "redis_port")
    folder = site.folder / "redis"
    folder.mkdir(exist_ok=True)
    settings = ["bind 127.0.0.1", f"port {port}", f"requirepass {password}", 'save ""', "appendonly yes"]
    settings += ["appendfsync everysec", "maxmemory-policy noeviction"]
    write_private(folder / "redis.conf", "\n".join(settings) + "\n")
    server = program("redis-server", package="redis-server")
    process = site.start("redis", [server, "redis.conf"], cwd=folder, env=plain_env())
    site.await_ready(process, lambda: redis_answers(port, password))
    return "started"


def up_postgres(site: Site, known: dict[str, Any], folder: Path | None) -> str:
    """Make sure that Postgres runs and has our database; say what was done."""
    password = known.setdefault("postgres_password", secrets.token_hex(16))
    if site.process("postgres") is not None:
        return "runs already"
    initdb = program("initdb", package="postgresql")
    user = server_user()
    place = Path(known.setdefault("postgres_folder", str(folder or place_for_postgres(site, user))))
    port = known["postgres_port"] = port_for(known, "postgres_port")
    if not (place / "data").exists():
        make_cluster(place, initdb, password, user)
    words = [str(Path(initdb).resolve().with_name("postgres")), "-D", "data"]
    for setting in (f"port={port}", "listen_addresses=127.0.0.1", "unix_socket_directories=", "max_connections=200",
                    "fsync=on", "synchronous_commit=on"):  # fmt: skip
        words += ["-c", setting]
    process = site.start("postgres", words, cwd=place, env=plain_env(), **user)
    site.await_ready(process, lambda: has_database(port, password))
    return "started"


def server_user() -> dict[str, Any]:
    """Return as whom Postgres runs: it refuses to be root."""
    if os.geteuid() != 0:
        return {}
    for name in ("postgres", "nobody"):
        with contextlib.suppress(KeyError):
            entry = pwd.getpwnam(name)
            return {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}
    raise Trouble("root may not run Postgres, and there is no user 'postgres' to do it")


def place_for_postgres(site: Site, user: dict[str, Any]) -> Path:
    """Return where its data lie: in the site's folder, or, where its user cannot go there, in one of its own."""
    if not user or subprocess.run(["test", "-x", str(site.folder)], **user).returncode == 0:
        return site.folder / "postgres"
    return Path("/var/lib") / f"batchrun-{hashlib.sha256(str(site.folder).encode()).hexdigest()[:12]}"


def make_cluster(place: Path, initdb: str, password: str, user: dict[str, Any]) -> None:
    """Make an empty cluster: whole, or not at all."""
    place.mkdir(mode=0o700, exist_ok=True)
    shutil.rmtree(place / "data.new", ignore_errors=True)
    write_private(place / "password", password)
    if user:
        for path in (place, place / "password"):
            os.chown(path, user["user"], user["group"])
    words = [initdb, "-D", "data.new", "--username=batchrun", "--pwfile=password", "--auth=scram-sha-256"]
    words += ["--encoding=UTF8", "--locale=C"]
    made = subprocess.run(words, cwd=place, env=plain_env(), capture_output=True, text=True, **user)
    (place / "password").unlink()
    if made.returncode != 0:
        raise Trouble(f"initdb failed: {made.stderr.strip()}")
    (place / "data.new").rename(place / "data")


def has_database(port: int, password: str) -> bool:
    """Make our database where it is missing; say whether it is there, which it cannot be before the server is up."""
    import psycopg

    address = f"postgresql://batchrun:{password}@127.0.0.1:{port}/postgres"
    try:
        with psycopg.connect(address, autocommit=True, connect_timeout=5) as connection:
            found = connection.execute("SELECT 1 FROM pg_database WHERE datname = 'batchrun'").fetchone()
            if found is None:
                connection.execute("CREATE DATABASE batchrun ENCODING 'UTF8' TEMPLATE template0")
            return True
    except psycopg.OperationalError:
        return False


def up_worker(site: Site, number: int, exports: dict[str, str], *, slots: int, drain_s: float) -> str:
    """Make sure that a worker runs; say what was done."""
    name = f"worker-{number}"
    beats = site.folder / f"{name}.heartbeat"
    words = [*BATCHRUN, "worker", "-c", str(slots), "-n", name, "--drain-timeout", f"{drain_s:g}"]
    words += ["--heartbeat-file", str(beats)]
    if (running := site.process(name)) is not None:
        return f"runs already, pid {running.pid}" + ("" if running.command == words else ", with other options")
    beats.unlink(missing_ok=True)
    process = site.start(name, words, cwd=Path.cwd(), env={**os.environ, **exports})
    site.await_ready(process, beats.exists)
    return f"started, pid {process.pid}, {slots} slots"


def plain_env() -> dict[str, str]:
    """Return this environment without what would set up a client of Postgres, for a server."""
    return {name: value for name, value in os.environ.items() if not name.startswith("PG")} | {"LC_ALL": "C"}


# -- up and down ------------------------------------------------------------------------------------------------------


def up(site: Site, *, workers: int, slots: int, drain_s: float, postgres_folder: Path | None) -> None:
    """Start what does not run; end the workers that are more than wanted."""
    for name in ("pids", "logs"):
        (site.folder / name).mkdir(exist_ok=True)
    known = site.read()
    done = {"redis": up_redis(site, known)}
    site.write(known)
    done["postgres"] = up_postgres(site, known, postgres_folder)
    site.write(known)
    for name, what in done.items():
        say(name, f"127.0.0.1:{known[f'{name}_port']}, {what}")
    exports = exports_of(site, known)
    upgraded = subprocess.run(
        [*BATCHRUN, "db", "upgrade"], env={**os.environ, **exports}, capture_output=True, text=True
    )
    if upgraded.returncode != 0:
        raise Trouble(f"batchrun db upgrade failed: {upgraded.stderr.strip()}")
    say("ledger", upgraded.stdout.strip().rpartition(": ")[2])
    end(site, [one for one in site.processes() if is_worker(one) and number_of(one) > workers], drain_s=drain_s)
    for number in range(1, workers + 1):
        say(f"worker-{number}", up_worker(site, number, exports, slots=slots, drain_s=drain_s))
    lines = [f"export {name}='{value}'" for name, value in exports.items()]
    write_private(site.folder / "env", "\n".join(lines) + "\n")
    shown = Path(os.path.relpath(site.folder)) / "env"
    print("", f"{shown} holds:", *(f"  {line}" for line in lines), "", sep="\n")
    endpoint = os.environ.get("OPENAI_BASE_URL")
    print(f"endpoint  {endpoint}, as this shell has it" if endpoint else "endpoint  none: export OPENAI_BASE_URL first")
    commands = (f". {shown}", "batchrun doctor", "batchrun submit jobs/job.json", "make down")
    print("next:  " + "\n       ".join(commands), flush=True)


def exports_of(site: Site, known: dict[str, Any]) -> dict[str, str]:
    database = f"127.0.0.1:{known['postgres_port']}/batchrun"
    return {
        "BATCHRUN_DB": f"postgresql://batchrun:{known['postgres_password']}@{database}",
        "BATCHRUN_BROKER": f"redis://:{known['redis_password']}@127.0.0.1:{known['redis_port']}/0",
        "BATCHRUN_HOME": str(site.folder / "home"),
    }


def down(site: Site, *, drain_s: float) -> None:
    """End what runs: the workers first, which finish what is in flight. All data stay."""
    running = site.processes()
    if not running:
        say("down", "nothing runs")
        return
    end(site, [one for one in running if is_worker(one)], drain_s=drain_s)
    end(site, [one for one in running if not is_worker(one)], drain_s=STOP_S)
    say("down", f"the data stay in {os.path.relpath(site.folder)}{_apart(site)}")
    print("next:  unset BATCHRUN_DB BATCHRUN_BROKER BATCHRUN_HOME   # in the shell that had read its env", flush=True)


def _apart(site: Site) -> str:
    """Name the folder of Postgres where it lies apart: below root's own it could not be read by its user."""
    known = site.read() or {}
    apart = known.get("postgres_folder")
    return f", and Postgres's in {apart}" if apart and not Path(apart).is_relative_to(site.folder) else ""


def is_worker(process: Process) -> bool:
    return process.name.startswith("worker-")


def number_of(process: Process) -> int:
    return int(process.name.removeprefix("worker-"))


def end(site: Site, processes: Sequence[Process], *, drain_s: float) -> None:
    """End processes together and in order; one that does not is asked once more, and then killed."""
    for process in processes:
        # Postgres takes SIGTERM for "when the last client has gone"; with SIGINT it ends their sessions.
        process.send(signal.SIGINT if process.name == "postgres" else signal.SIGTERM)
    for wait_s, next_step in ((drain_s + STOP_S, "stops it at once"), (STOP_S, "kills it"), (STOP_S, "")):
        await_end(processes, wait_s)
        late = [process for process in processes if process.is_alive]
        for process in late:
            if not next_step:
                raise Trouble(f"{process.name} (pid {process.pid}) cannot be ended")
            say(process.name, f"has not ended in its time: a signal {next_step}; what it sent becomes doubt")
            process.kill() if next_step == "kills it" else process.send(signal.SIGTERM)
    for process in processes:
        (site.folder / "pids" / process.name).unlink(missing_ok=True)
        say(process.name, "ended")


def await_end(processes: Sequence[Process], wait_s: float) -> None:
    began = told = time.monotonic()
    while left := [process.name for process in processes if process.is_alive]:
        now = time.monotonic()
        if now - began > wait_s:
            return
        if now - told > TELL_EVERY_S:
            told = now
            say("down", f"{', '.join(left)} finishes what is in flight; Ctrl-C leaves it to that")
        time.sleep(POLL_S)


def say(name: str, text: str) -> None:
    print(f"{name:<9} {text}", flush=True)


@contextlib.contextmanager
def alone(folder: Path) -> Iterator[Site]:
    """Make the folder and keep every other `up` and `down` out of it."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield Site(folder)


def main(arguments: Sequence[str] | None = None) -> int:
    """Carry out `up` or `down`; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("what", choices=["up", "down"])
    parser.add_argument("--workers", type=int, default=2, metavar="N")
    parser.add_argument("--slots", type=int, default=32, metavar="N", help="requests at once of each worker")
    parser.add_argument("--drain-timeout", type=float, default=600.0, metavar="SECONDS")
    parser.add_argument("--folder", type=Path, default=Path(".batchrun/local"))
    parser.add_argument("--postgres-folder", type=Path, help="where its data lie, if not in the folder")
    given = parser.parse_args(arguments)
    try:
        with alone(given.folder.absolute()) as site:
            if given.what == "down":
                down(site, drain_s=given.drain_timeout)
            else:
                up(
                    site,
                    workers=given.workers,
                    slots=given.slots,
                    drain_s=given.drain_timeout,
                    postgres_folder=given.postgres_folder,
                )
    except Trouble as trouble:
        print(f"error: {trouble}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nstopped; what runs, runs on: make up and make down go on from here", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
