"""Run a mock endpoint as a process of its own: `python -m batchrun.mock '{"port": 8000}'`.

Without an argument the settings are read as one line from standard input, which is then the lifeline: the mock stops
when the other end is closed or its parent is gone. One line of JSON with host and port is printed once it listens.
"""

import gc
import json
import os
import select
import signal
import sys
import threading

from batchrun.mock.config import MockConfig
from batchrun.mock.server import serve

PARENT_CHECK_S = 1.0
GC_THRESHOLD = 50_000  # objects; the default of 700 costs a tenth of the throughput


def main() -> None:
    """Read the settings and serve."""
    if len(sys.argv) > 1:
        text = sys.argv[1]
    else:
        text = _read_line(sys.stdin.fileno())
        threading.Thread(target=_watch_lifeline, args=(sys.stdin.fileno(), os.getppid()), daemon=True).start()
    gc.freeze()
    gc.set_threshold(GC_THRESHOLD)
    serve(MockConfig.from_json(text), on_ready=_print_ready)


def _print_ready(host: str, port: int) -> None:
    print(json.dumps({"host": host, "port": port}), flush=True)


def _read_line(fd: int) -> str:
    data = b""
    while not data.endswith(b"\n"):
        if not (piece := os.read(fd, 65536)):
            break
        data += piece
    return data.decode()


def _watch_lifeline(fd: int, parent: int) -> None:
    """Stop this process when standard input ends, or when its parent is gone though a copy of the pipe lives on."""
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    while os.getppid() == parent:
        if poll.poll(1_000 * PARENT_CHECK_S) and not os.read(fd, 4096):
            break
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    main()
