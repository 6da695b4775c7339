"""How soon something happens: `--help`, and the first request of a small job."""

import json
import tempfile
from datetime import datetime
from pathlib import Path

from batchrun.mock.config import MockConfig
from batchrun.mock.process import MockProcess
from benchmarks.costs import batchrun
from benchmarks.embedded import submit
from benchmarks.figures import Board, Figure
from benchmarks.jobs import alike, write_job


def measure(board: Board, runs: int) -> None:
    """Measure wall and processor time; on a busy machine only the latter says something."""
    helps, firsts = [], []
    for _ in range(max(3, runs)):
        with tempfile.TemporaryDirectory() as name:
            folder, log = Path(name), Path(name) / "log.jsonl"
            helps.append(batchrun("--help", folder=folder, env={}))
            write_job(folder, alike(10), concurrency=8)
            with MockProcess(MockConfig(log_path=str(log))) as mock:
                began = datetime.now().astimezone()
                submit(folder, mock.base_url)
            first = datetime.fromisoformat(json.loads(log.open().readline())["at"])
            firsts.append((first - began).total_seconds())
    walls = [one.wall_s * 1000 for one in helps]
    cpu = min(one.cpu_s for one in helps) * 1000
    rss_mb = max(one.rss_mb for one in helps)
    note = f"CPU {cpu:.0f} ms"
    board.put(Figure("start", "`batchrun --help`", walls, "ms", most=200, rss_mb=rss_mb, note=note))
    board.put(Figure("start", "submit of 10 items, until the first request", firsts, "s", most=1.5))
