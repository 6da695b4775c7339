"""Forking: a process that has imported everything and opened nothing makes others, and waits for them by their ids."""

import faulthandler
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable
from typing import NoReturn

from batchrun.mock.config import MockConfig
from batchrun.mock.server import serve


def fork(work: Callable[[], object]) -> int:
    """Do some work in a fork of this process; return its process id. It exits with 0 where nothing is raised."""
    if (pid := os.fork()) != 0:
        return pid
    _work(work)


def _work(work: Callable[[], object]) -> NoReturn:
    code = 70
    faulthandler.register(signal.SIGUSR1, file=2)  # where does it hang?
    try:
        work()
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def wait(pid: int, *, timeout_s: float) -> int:
    """Wait for the end of a fork; return its exit code, or the negated signal that killed it.

    Raises:
        TimeoutError: it did not end. It was killed.
    """
    deadline, pause_s = time.monotonic() + timeout_s, 0.001
    while True:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() > deadline:
            os.kill(pid, signal.SIGUSR1)
            time.sleep(0.5)
            kill(pid)
            raise TimeoutError(f"process {pid} did not end within {timeout_s} s")
        time.sleep(pause_s)
        pause_s = min(0.01, pause_s * 1.5)


def kill(pid: int) -> None:
    """Kill a fork of this process, and wait for its end."""
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


def fork_endpoint(config: MockConfig) -> tuple[int, int]:
    """Start a mock endpoint; return its process id and its port."""
    reading, writing = os.pipe()

    def listen() -> None:
        os.close(reading)
        os.setsid()
        serve(config, on_ready=lambda host, port: (os.write(writing, b"%d\n" % port), os.close(writing)))

    pid = fork(listen)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        line = pipe.readline()
    if not line:
        raise RuntimeError("the mock endpoint did not start")
    return pid, int(line)
