"""A million lines of 1 kB: submit, memory, cost of an item, resume after a kill -9, export; and the same at 10,000."""

import json
import signal
import sqlite3
import tempfile
import time
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from batchrun.mock.config import MockConfig
from batchrun.mock.process import MockProcess
from benchmarks.costs import Child, Cost, batchrun, start
from benchmarks.figures import Board, Figure
from benchmarks.jobs import alike, write_job

SMALL, LARGE, LINE_BYTES = 10_000, 1_000_000, 1_000
FROM, TO = 2_000, 9_000  # the requests over which the cost of an item is taken, in both jobs
POLL_S = 0.02
MOST_S = 900.0


@dataclass
class Seen:
    """What one size of job came to."""

    submit_s: float  # from the start of the command to the first request: checked, in the ledger, claimed
    cpu_ms: float  # an item, in the middle of the run
    rss_mb: float  # of whichever process needed most
    resume_s: float = 0.0
    export_s: float = 0.0


def measure(board: Board, count: int = LARGE) -> None:
    """Measure both sizes, one after the other."""
    small, large = _job(SMALL), _job(count)
    size = f"{count:,} lines of 1 kB"
    rss = f"{small.rss_mb:.0f} MB at {SMALL:,}"
    put = board.put
    put(Figure("large", f"{size}: submit to the first request", [large.submit_s], "s", most=25.0, rss_mb=large.rss_mb))
    put(Figure("large", f"{size}: peak RSS of every process", [large.rss_mb], "MB", most=160.0, note=rss))
    put(Figure("large", f"{size}: peak RSS against {SMALL:,} lines", [large.rss_mb / small.rss_mb], "x", most=1.15))
    put(Figure("large", f"{size}: resume after kill -9, to the first request", [large.resume_s], "s", most=5.0))
    put(Figure("large", f"{size}: export of all answers", [large.export_s], "s", most=30.0))
    costs, note = [large.cpu_ms / small.cpu_ms], f"{small.cpu_ms:.2f} ms at {SMALL:,}"
    work = f"{size}: CPU of an item against {SMALL:,} lines, 0 ms, concurrency 64"
    put(Figure("large", work, costs, "x", most=1.15, cpu_ms=large.cpu_ms, note=note))


def _job(count: int) -> Seen:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_job(folder, alike(count, size_bytes=LINE_BYTES), concurrency=64)
        with MockProcess(MockConfig(log_path=str(folder / "log.jsonl"))) as mock:
            env = {"OPENAI_BASE_URL": mock.base_url}
            began = datetime.now().astimezone()
            child = start("submit", "jobs/job.json", "--no-trial", "--no-progress", folder=folder, env=env)
            _await(mock, child, 1)
            seen = Seen((_first_at(folder / "log.jsonl") - began).total_seconds(), 0.0, 0.0)
            seen.cpu_ms = _cpu_ms(mock, child)
            child.process.send_signal(signal.SIGKILL)
            seen.rss_mb = child.wait().rss_mb
            if count > SMALL:
                _resume(seen, folder, mock, env)
        _answer_the_rest(folder / ".batchrun" / "ledger.db")
        cost = batchrun("export", "bench", "--json", folder=folder, env={})
        _check_export(folder, count, cost)
        seen.rss_mb, seen.export_s = max(seen.rss_mb, cost.rss_mb), cost.wall_s
        return seen


def _resume(seen: Seen, folder: Path, mock: MockProcess, env: dict[str, str]) -> None:
    before = mock.stats()["posts"]
    child = start("resume", "bench", "-y", "--no-progress", folder=folder, env=env)
    began = child.began
    _await(mock, child, before + 1)
    seen.resume_s = time.monotonic() - began
    child.process.send_signal(signal.SIGTERM)
    cost = child.wait()
    seen.rss_mb = max(seen.rss_mb, cost.rss_mb)
    if mock.stats()["repeated_bodies"]:
        raise SystemExit("an item was sent twice")


def _await(mock: MockProcess, child: Child, requests: int) -> float:
    """Wait until the endpoint has seen so many requests; return the moment."""
    deadline = time.monotonic() + MOST_S
    while mock.stats()["posts"] < requests:
        if not child.is_alive or time.monotonic() > deadline:
            raise SystemExit(f"request {requests} never came:\n{child.wait().err}")
        time.sleep(POLL_S)
    return time.monotonic()


def _cpu_ms(mock: MockProcess, child: Child) -> float:
    """Return what an item costs the runner in the middle of its run, in milliseconds of processor time."""
    counts, spent = [], []
    for requests in (FROM, TO):
        _await(mock, child, requests)
        counts.append(mock.stats()["posts"])
        spent.append(child.cpu_s)
    return (spent[1] - spent[0]) / (counts[1] - counts[0]) * 1000


def _first_at(log: Path) -> datetime:
    with log.open() as lines:
        return datetime.fromisoformat(json.loads(lines.readline())["at"])


def _answer_the_rest(path: Path) -> None:
    """Give every item that has no answer one, as the endpoint would have: an export of a whole job is measured.

    Only this file is written by anything but batchrun, and nothing is sent after it.
    """
    raw = json.dumps(
        {"id": "chatcmpl-0", "object": "chat.completion", "choices": [{"index": 0, "message": {"content": "x" * 500}}]}
    ).encode()
    with sqlite3.connect(path) as ledger:
        ledger.execute("PRAGMA synchronous=OFF")
        ledger.execute(
            "INSERT OR IGNORE INTO attempts (key, job_id, worker_id, endpoint, state, queued_at, claimed_at, charge,"
            " reserved_pusd) SELECT (id << 20) | (fence + 1), job_id, 1, 'http://bench', 'answered', 0, 0, 'certain', 0"
            " FROM items WHERE state != 'completed'"
        )
        ledger.execute(
            "INSERT OR IGNORE INTO answers (key, raw) SELECT (id << 20) | (fence + 1), ? FROM items"
            " WHERE state != 'completed'",
            (raw,),
        )
        ledger.execute(
            "UPDATE items SET state = 'completed', answer_key = (id << 20) | (fence + 1), fence = fence + 1"
            " WHERE state != 'completed'"
        )


def _check_export(folder: Path, count: int, cost: Cost) -> None:
    lines = sum(1 for _ in (folder / "outputs" / "out.jsonl").open("rb"))
    if lines != count:
        raise SystemExit(f"{lines:,} lines were exported of {count:,}:\n{cost.err}")
