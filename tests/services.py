"""Private Redis and Postgres servers for tests: own folder, free port, random password, dead when their owner is dead.

Only the standard library is imported, so that any Python can ask `python3 tests/services.py` what is missing.
"""

import contextlib
import dataclasses
import glob
import os
import pwd
import secrets
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

START_DEADLINE_S = 60.0
STOP_DEADLINE_S = 30.0
POLL_S = 0.01
START_TRIES = 5

# The shell that owns one server. Its stdin is a pipe from the test process: its end, by teardown or by kill -9, ends
# the server and removes the folder. A server that dies by itself ends the shell, so that nobody waits for it in vain.
SUPERVISOR = """
signal=$1; folder=$2; shift 2
exec 3<&0
"$@" 3<&- & server=$!
{ read -r _ <&3; kill -s "$signal" "$server"; } 2>/dev/null & reader=$!
wait "$server"; status=$?
kill "$reader" 2>/dev/null; wait "$reader" 2>/dev/null
cd / && rm -rf "$folder"
exit "$status"
"""

# --no-sync is for the empty cluster only; what the tests write is synced.
MAKE_CLUSTER_AND_RUN = """
initdb=$1; postgres=$2; port=$3
"$initdb" -D data --username=batchrun --pwfile=password --auth=password --encoding=UTF8 --locale=C --no-sync || exit
exec "$postgres" -D data -c port="$port" -c listen_addresses=127.0.0.1 -c unix_socket_directories= \\
    -c fsync=on -c synchronous_commit=on -c shared_buffers=16MB -c max_connections=100
"""


class ServerUnavailableError(Exception):
    """The server cannot be had on this machine; nothing was left running."""


@dataclasses.dataclass(frozen=True)
class RedisServer:
    """One running redis-server that writes nothing to disk."""

    port: int
    password: str

    @property
    def url(self) -> str:
        return f"redis://:{self.password}@127.0.0.1:{self.port}/0"

    def ask(self, command: str) -> str:
        """Send one command and return the raw reply (RESP). Raises OSError."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=30) as connection:
            connection.sendall(f"AUTH {self.password}\r\n{command}\r\nQUIT\r\n".encode())
            reply = b"".join(iter(lambda: connection.recv(65536), b""))
        return reply.decode().removeprefix("+OK\r\n").removesuffix("+OK\r\n")


@dataclasses.dataclass(frozen=True)
class PostgresServer:
    """One running Postgres cluster with full durability; the superuser is `batchrun`."""

    port: int
    password: str

    def url(self, database: str = "postgres") -> str:
        return f"postgresql://batchrun:{self.password}@127.0.0.1:{self.port}/{database}"


@contextlib.contextmanager
def run_redis() -> Iterator[RedisServer]:
    """Run a redis-server until the block ends. Raises ServerUnavailableError."""
    program = find_program("redis-server", package="redis-server")
    password = secrets.token_hex(16)

    def prepare(folder: Path, port: int) -> list[str]:
        settings = f"bind 127.0.0.1\nport {port}\nrequirepass {password}\n"
        _write(folder / "redis.conf", settings + 'save ""\nappendonly no\nmaxmemory-policy noeviction\n')
        return [program, "redis.conf"]

    def is_ready(_folder: Path, port: int) -> bool:
        try:
            return RedisServer(port, password).ask("PING") == "+PONG\r\n"
        except OSError:
            return False

    with _running(prepare, is_ready, stop_signal="TERM") as port:
        yield RedisServer(port, password)


@contextlib.contextmanager
def run_postgres() -> Iterator[PostgresServer]:
    """Make a cluster and run it until the block ends. Raises ServerUnavailableError."""
    initdb = find_program("initdb", package="postgresql")
    postgres = str(Path(initdb).resolve().with_name("postgres"))
    password = secrets.token_hex(16)

    def prepare(folder: Path, port: int) -> list[str]:
        _write(folder / "password", password)
        return ["/bin/sh", "-c", MAKE_CLUSTER_AND_RUN, "sh", initdb, postgres, str(port)]

    def is_ready(folder: Path, _port: int) -> bool:
        try:
            lines = (folder / "data/postmaster.pid").read_text().split("\n")
        except FileNotFoundError:
            return False
        return len(lines) > 7 and lines[7].strip() == "ready"

    with _running(prepare, is_ready, stop_signal="QUIT") as port:
        yield PostgresServer(port, password)


def find_program(name: str, *, package: str) -> str:
    """Return the path of a server's program. Raises ServerUnavailableError naming the Debian package that brings it."""
    folders = sorted(
        glob.glob("/usr/lib/postgresql/[0-9]*/bin"), key=lambda path: float(path.split("/")[4]), reverse=True
    )
    found = shutil.which(name) or shutil.which(name, path=os.pathsep.join([*folders, "/usr/sbin", "/usr/local/sbin"]))
    if not found:
        raise ServerUnavailableError(f"'{name}' was not found; on Debian the package '{package}' brings it")
    return found


def missing_packages() -> list[str]:
    """Name the Debian packages that bring the servers, and the tracer, which were not found here."""
    missing = []
    for program, package in {"redis-server": "redis-server", "initdb": "postgresql", "strace": "strace"}.items():
        try:
            find_program(program, package=package)
        except ServerUnavailableError:
            missing.append(package)
    return missing


@contextlib.contextmanager
def _running(
    prepare: Callable[[Path, int], list[str]], is_ready: Callable[[Path, int], bool], *, stop_signal: str
) -> Iterator[int]:
    """Run the command that `prepare` returns until the block ends; yield its port once it is ready."""
    for tries_left in reversed(range(START_TRIES)):
        port = _free_port()
        with tempfile.TemporaryFile() as log:
            folder, user = _make_folder()
            supervisor = subprocess.Popen(
                ["/bin/sh", "-c", SUPERVISOR, "sh", stop_signal, str(folder), *prepare(folder, port)],
                **user,
                cwd=folder,
                env={name: value for name, value in os.environ.items() if not name.startswith("PG")} | {"LC_ALL": "C"},
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
            try:
                if _wait_until_ready(supervisor, lambda folder=folder, port=port: is_ready(folder, port)):
                    yield port
                    return
            finally:
                _stop(supervisor)
            log.seek(0)
            said = log.read().decode(errors="replace")[-2000:]
        # Another process may have taken the port between the look and the start; anything else will not mend itself.
        if not tries_left or "in use" not in said:
            raise ServerUnavailableError(f"the server did not start on port {port}; it said:\n{said}")


def _make_folder() -> tuple[Path, dict]:
    """Make a server's folder; return it and who must run the server there (Postgres refuses to run as root)."""
    if os.geteuid() != 0:
        return Path(tempfile.mkdtemp(prefix="batchrun-test-")), {}
    for name in ("postgres", "nobody"):
        with contextlib.suppress(KeyError):
            user = pwd.getpwnam(name)
            # Not TMPDIR: root's own may be closed to others.
            folder = Path(tempfile.mkdtemp(prefix="batchrun-test-", dir="/tmp"))
            os.chown(folder, user.pw_uid, user.pw_gid)
            return folder, {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
    raise ServerUnavailableError("run by root, and there is neither a user 'postgres' nor 'nobody' to run the server")


def _write(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o644)  # for the server's user; the folder is closed to all others


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def _wait_until_ready(supervisor: subprocess.Popen, is_ready: Callable[[], bool]) -> bool:
    """Poll until the server is ready (True), dead, or past its deadline (False)."""
    deadline = time.monotonic() + START_DEADLINE_S
    while supervisor.poll() is None and time.monotonic() < deadline:
        if is_ready():
            return True
        time.sleep(POLL_S)
    return False


def _stop(supervisor: subprocess.Popen) -> None:
    """Let go of the supervisor's pipe and wait until it has ended the server and removed the folder."""
    with contextlib.suppress(BrokenPipeError):
        supervisor.stdin.close()
    try:
        supervisor.wait(STOP_DEADLINE_S)
    except subprocess.TimeoutExpired:
        os.killpg(supervisor.pid, 9)
        supervisor.wait()


if __name__ == "__main__":
    print(*missing_packages())
