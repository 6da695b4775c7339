"""`make bench`: what a run costs, printed as a table. No network; minutes; nothing is judged but the sums.

Each line names what was done, the median of its runs with their range, and the CPU and memory of the runner's process.
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from batchrun.mock.config import MockConfig
from batchrun.mock.process import MockProcess
from benchmarks import scaled
from benchmarks.jobs import write_job


@dataclass
class Cost:
    """What one process took."""

    wall_s: float
    cpu_s: float
    rss_mb: float
    code: int
    out: str


def run(arguments: list[str], folder: Path, env: dict[str, str]) -> Cost:
    """Run `batchrun` once and account for it."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    began = time.monotonic()
    child = subprocess.Popen(
        [sys.executable, "-m", "batchrun", *arguments],
        cwd=folder,
        env=os.environ | env,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    out, err = child.communicate()
    wall_s = time.monotonic() - began
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    if child.returncode not in (0, 3, 6):
        raise SystemExit(f"batchrun {' '.join(arguments)} ended with {child.returncode}:\n{err}")
    return Cost(wall_s, cpu_s, peak_mb(child), child.returncode, out)


def peak_mb(child: subprocess.Popen[str]) -> float:
    """Return the largest resident size of all children so far: the runner is the largest here."""
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024


def throughput(*, count: int, concurrency: int, latency_ms: float, runs: int) -> None:
    """Measure whole jobs: items per second from the first request to the last answer, by the endpoint's own clock."""
    rates, cpus, rss = [], [], 0.0
    for _ in range(runs):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            write_job(folder, count=count, concurrency=concurrency)
            with MockProcess(MockConfig(latency_ms=latency_ms, log_path=str(folder / "log.jsonl"))) as mock:
                cost = run(
                    ["submit", "jobs/job.json", "--no-trial", "--json"], folder, {"OPENAI_BASE_URL": mock.base_url}
                )
                stats = mock.stats()
            if stats["requests"] != count or json.loads(cost.out)["attempts"]["total"] != count:
                raise SystemExit(f"{stats['requests']} requests for {count} items")
            times = [json.loads(line)["t"] for line in (folder / "log.jsonl").open()]
            rates.append(count / (max(times) - min(times)))
            cpus.append(cost.cpu_s / count * 1000)
            rss = max(rss, cost.rss_mb)
    share = f"  {statistics.median(rates) / (concurrency / latency_ms * 1000):.3f} of the limit" if latency_ms else ""
    print(
        f"embedded, {latency_ms:g} ms, concurrency {concurrency:>4}, {count:,} items: "
        f"{statistics.median(rates):,.0f} items/s ({min(rates):,.0f}-{max(rates):,.0f}){share}"
        f"  CPU {statistics.median(cpus):.2f} ms an item, start included  RSS {rss:.0f} MB",
        flush=True,
    )


def registration(*, count: int, pad: int) -> None:
    """Measure how long a submit takes until its items stand in the ledger, and its memory."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_job(folder, count=count, concurrency=8, pad=pad)
        size_mb = (folder / "inputs" / "in.jsonl").stat().st_size / 1e6
        env = {
            "OPENAI_BASE_URL": "http://127.0.0.1:9/v1",
            "BATCHRUN_NEVER_REACHED_S": "0.01",
            "BATCHRUN_PROBE_S": "0.01",
        }
        began = time.monotonic()
        child = subprocess.run(
            [sys.executable, "-m", "batchrun", "submit", "jobs/job.json", "--no-trial", "--json"],
            cwd=folder,
            env=os.environ | env,
            capture_output=True,
            text=True,
            check=False,
        )
        wall_s = time.monotonic() - began
        rss = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
        if child.returncode != 5 or json.loads(child.stdout)["counts"]["pending"] != count:
            raise SystemExit(child.stderr)
        print(
            f"submit of {count:,} lines ({size_mb:,.0f} MB), checked and in the ledger: {wall_s:.1f} s, start-up and "
            f"the outputs so far included  RSS {rss:.0f} MB",
            flush=True,
        )


def start_up(runs: int) -> None:
    """Measure `batchrun --help`."""
    walls = []
    for _ in range(runs):
        began = time.monotonic()
        subprocess.run([sys.executable, "-m", "batchrun", "--help"], stdout=subprocess.DEVNULL, check=True)
        walls.append((time.monotonic() - began) * 1000)
    print(f"batchrun --help: {statistics.median(walls):.0f} ms ({min(walls):.0f}-{max(walls):.0f})", flush=True)


def main() -> None:
    """Run what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one run each and no million lines")
    quick = parser.parse_args().quick
    runs = 1 if quick else 3
    from batchrun.ledger.engines import journal_mode, sqlite_module

    module = sqlite_module()
    name = module.__name__.split(".")[0]
    print(f"SQLite {module.sqlite_version} ({name}), journal {journal_mode(module)}, synchronous FULL")
    start_up(5)
    throughput(count=8_000, concurrency=64, latency_ms=0, runs=runs)
    throughput(count=10_000, concurrency=256, latency_ms=0, runs=runs)
    throughput(count=1_000, concurrency=8, latency_ms=100, runs=runs)
    throughput(count=5_000, concurrency=64, latency_ms=100, runs=runs)
    throughput(count=10_000, concurrency=256, latency_ms=100, runs=runs)
    scaled.measure(runs)
    registration(count=100_000, pad=400)
    if not quick:
        registration(count=1_000_000, pad=400)


if __name__ == "__main__":
    main()
