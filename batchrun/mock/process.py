"""A mock endpoint in a child process, for tests, demos and benchmarks."""

import json
import os
import select
import subprocess
import sys
import time
from http.client import HTTPConnection
from pathlib import Path
from typing import IO, Any

from batchrun.mock.config import MockConfig
from batchrun.mock.server import render_base_url

READY_TIMEOUT_S = 30.0
STATS_TIMEOUT_S = 10.0


class MockProcess:
    """Run a mock endpoint while the `with` block lasts; it dies with this process, however that ends.

    `log_path`, if given, stands for the configuration's own.
    """

    def __init__(self, config: MockConfig) -> None:
        self.config = config
        self._child: subprocess.Popen[bytes] | None = None
        self._port = 0

    def __enter__(self) -> "MockProcess":
        self.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.stop()

    @property
    def port(self) -> int:
        """The port in use."""
        return self._port

    @property
    def base_url(self) -> str:
        """What a client takes as its base URL."""
        return render_base_url(self.config.host, self._port)

    @property
    def pid(self) -> int:
        """The child's process id; `RuntimeError` before the start."""
        if self._child is None:
            raise RuntimeError("the mock endpoint was not started")
        return self._child.pid

    @property
    def log_path(self) -> Path | None:
        """Where the request log is."""
        return None if self.config.log_path is None else Path(self.config.log_path)

    def start(self) -> None:
        """Start the child and wait until it listens; `RuntimeError` if it does not."""
        command = [sys.executable, "-m", "batchrun.mock"]
        # A process group of its own: Ctrl-C at a terminal reaches the runner, which may still need its endpoint.
        self._child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, process_group=0)
        stdin, stdout = self._child.stdin, self._child.stdout
        assert stdin is not None
        assert stdout is not None
        try:
            stdin.write(self.config.to_json().encode() + b"\n")
            stdin.flush()
            self._port = json.loads(_read_line(stdout, READY_TIMEOUT_S))["port"]
        except (OSError, ValueError) as error:
            self.kill()
            raise RuntimeError("the mock endpoint did not start; its own message is on standard error") from error

    def stats(self) -> dict[str, Any]:
        """Return the counters of `GET /__stats`."""
        return self._ask("GET", "/__stats")

    def reset(self) -> None:
        """Set the counters to zero, and forget how often each body came."""
        self._ask("POST", "/__reset")

    def resize(self, **told: int | float | None) -> None:
        """Change what it can do at once (capacity.py), the gate included; `ValueError` if that makes no sense."""
        self._ask("POST", "/__capacity", json.dumps(told).encode())

    def stop(self) -> None:
        """Let it finish what is in flight (see `drain_s`) and wait for its end; harmless if it has ended."""
        if self._child is not None:
            self._child.terminate()
            try:
                self._child.wait(self.config.drain_s + 5.0)
            except subprocess.TimeoutExpired:
                self._child.kill()
            self._bury()

    def kill(self) -> None:
        """End it with SIGKILL, as a crash of the endpoint would."""
        if self._child is not None:
            self._child.kill()
            self._bury()

    def _bury(self) -> None:
        child, self._child = self._child, None
        assert child is not None
        child.wait()
        for pipe in (child.stdin, child.stdout):
            if pipe is not None:
                pipe.close()

    def _ask(self, method: str, path: str, body: bytes | None = None) -> dict[str, Any]:
        connection = HTTPConnection(self.config.host, self._port, timeout=STATS_TIMEOUT_S)
        try:
            connection.request(method, path, body)
            response = connection.getresponse()
            answer: dict[str, Any] = json.loads(response.read())
            if response.status != 200:
                raise ValueError(answer["error"]["message"])
            return answer
        finally:
            connection.close()


def _read_line(pipe: IO[bytes], timeout_s: float) -> bytes:
    deadline = time.monotonic() + timeout_s
    line = b""
    poll = select.poll()  # select() refuses a descriptor above 1,023
    poll.register(pipe, select.POLLIN)
    while not line.endswith(b"\n"):
        readable = poll.poll(1_000 * max(deadline - time.monotonic(), 0.0))
        piece = os.read(pipe.fileno(), 4096) if readable else b""
        if not piece:
            raise OSError("the mock endpoint said nothing")
        line += piece
    return line
