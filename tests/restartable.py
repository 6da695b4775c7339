"""Servers that a test kills, stops and starts again: same port, same password, same data. Dead when the test is."""

import ctypes
import os
import secrets
import shutil
import signal
import subprocess
import time
from pathlib import Path

from tests.services import RedisServer, ServerUnavailableError, _free_port, _make_folder, _write, find_program

DEADLINE_S = 60.0
POLL_S = 0.02
_PR_SET_PDEATHSIG = 1


class _Restartable:
    """One server process at a time, in a folder that stays."""

    def __init__(self) -> None:
        self.port = _free_port()
        self.password = secrets.token_hex(16)
        self._folder, self._user = _make_folder()
        self._process: subprocess.Popen[bytes] | None = None

    def _command(self) -> list[str]:
        raise NotImplementedError

    def _is_ready(self) -> bool:
        raise NotImplementedError

    def start(self) -> None:
        """Start it and wait until it answers."""
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                self._command(),
                **self._user,
                cwd=self._folder,
                env={name: value for name, value in os.environ.items() if not name.startswith("PG")} | {"LC_ALL": "C"},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                preexec_fn=_die_with_parent,
            )
        deadline = time.monotonic() + DEADLINE_S
        while not self._is_ready():
            if self._process.poll() is not None or time.monotonic() > deadline:
                said = (self._folder / "log").read_text(errors="replace")[-2000:]
                raise ServerUnavailableError(f"the server did not start; it said:\n{said}")
            time.sleep(POLL_S)

    def stop(self, number: int) -> None:
        """Send it a signal and wait for its end."""
        if self._process is not None:
            self._process.send_signal(number)
            self._process.wait(DEADLINE_S)
            self._process = None

    def kill(self) -> None:
        self.stop(signal.SIGKILL)

    def close(self) -> None:
        """End it and remove its folder."""
        self.stop(signal.SIGKILL)
        shutil.rmtree(self._folder, ignore_errors=True)


class RestartableRedis(_Restartable):
    """A redis-server; with `appendonly` it keeps what it has."""

    def __init__(self, *, appendonly: bool = False, maxmemory: str | None = None) -> None:
        super().__init__()
        lines = [
            "bind 127.0.0.1",
            f"port {self.port}",
            f"requirepass {self.password}",
            'save ""',
            f"appendonly {'yes' if appendonly else 'no'}",
            "maxmemory-policy noeviction",
            *([f"maxmemory {maxmemory}"] if maxmemory else []),
        ]
        _write(self._folder / "redis.conf", "\n".join(lines) + "\n")
        self.server = RedisServer(self.port, self.password)
        self.url = self.server.url
        self.start()

    def _command(self) -> list[str]:
        return [find_program("redis-server", package="redis-server"), "redis.conf"]

    def _is_ready(self) -> bool:
        try:
            return self.server.ask("PING") == "+PONG\r\n"
        except OSError:
            return False

    def terminate(self) -> None:
        self.stop(signal.SIGTERM)


class RestartablePostgres(_Restartable):
    """A Postgres cluster with full durability and one empty database, `batchrun`."""

    def __init__(self) -> None:
        super().__init__()
        self._initdb = Path(find_program("initdb", package="postgresql")).resolve()
        _write(self._folder / "password", self.password)
        make = [str(self._initdb), "-D", "data", "--username=batchrun", "--pwfile=password", "--auth=password"]
        options = ["--encoding=UTF8", "--locale=C", "--no-sync"]
        subprocess.run([*make, *options], **self._user, cwd=self._folder, check=True, capture_output=True)
        self.url = f"postgresql://batchrun:{self.password}@127.0.0.1:{self.port}/postgres"
        self.start()

    def _command(self) -> list[str]:
        settings = {
            "port": self.port,
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": "",
            "fsync": "on",
            "synchronous_commit": "on",
            "shared_buffers": "16MB",
        }
        options = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
        return [str(self._initdb.with_name("postgres")), "-D", "data", *options]

    def _is_ready(self) -> bool:
        try:
            lines = (self._folder / "data" / "postmaster.pid").read_text().split("\n")
        except OSError:
            return False
        return len(lines) > 7 and lines[7].strip() == "ready" and lines[0] == str(self._pid)

    @property
    def _pid(self) -> int:
        return self._process.pid if self._process else 0

    def stop_at_once(self) -> None:
        """Stop it as a crash would: no checkpoint, recovery at the next start."""
        self.stop(signal.SIGQUIT)


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
