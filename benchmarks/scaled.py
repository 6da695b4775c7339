"""The scaled form: items a second of one and two workers over Redis and Postgres, and what lies in Redis meanwhile."""

import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from batchrun.mock.config import MockConfig
from batchrun.mock.process import MockProcess
from benchmarks.jobs import write_job
from tests.services import RedisServer, ServerUnavailableError, run_postgres, run_redis

COUNT, CONCURRENCY = 8_000, 128


@contextlib.contextmanager
def workers(count: int, folder: Path, env: dict[str, str]) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Run so many workers until the block ends; yield them when all are ready."""
    command = [sys.executable, "-m", "batchrun", "worker", "--alone", "-c", str(CONCURRENCY)]
    logs = [folder / f"worker-{number}.log" for number in range(count)]
    crew = []
    for log in logs:
        with log.open("wb") as out:
            crew.append(subprocess.Popen(command, cwd=folder, env=os.environ | env, stderr=out))
    try:
        while not all("is ready" in log.read_text() for log in logs):
            if any(one.poll() is not None for one in crew):
                raise SystemExit("a worker did not start:\n" + "\n".join(log.read_text() for log in logs))
            time.sleep(0.05)
        yield crew
    finally:
        for one in crew:
            one.terminate()
        for one in crew:
            one.wait(30)


def throughput(crew_size: int, *, redis: RedisServer, ledger: str | None, runs: int) -> None:
    """Measure whole jobs by the endpoint's own clock, and the longest queue that was seen in Redis."""
    rates, longest = [], 0
    for number in range(runs):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            write_job(folder, count=COUNT, concurrency=CONCURRENCY, name=f"bench-{crew_size}-{number}")
            redis.ask("FLUSHALL")
            with MockProcess(MockConfig(log_path=str(folder / "log.jsonl"))) as mock:
                env = {"OPENAI_BASE_URL": mock.base_url, "BATCHRUN_BROKER": redis.url}
                env |= {"BATCHRUN_DB": ledger} if ledger else {}
                with workers(crew_size, folder, env):
                    submit = [sys.executable, "-m", "batchrun", "submit", "jobs/job.json", "--no-trial", "--json"]
                    child = subprocess.Popen(
                        submit, cwd=folder, env=os.environ | env, stdout=subprocess.PIPE, stderr=subprocess.PIPE
                    )
                    while child.poll() is None:
                        longest = max(longest, _queued(redis))
                        time.sleep(0.1)
                    out, err = child.communicate()
                requests = mock.stats()["requests"]
            if child.returncode or requests != COUNT or json.loads(out)["attempts"]["total"] != COUNT:
                raise SystemExit(f"{requests} requests for {COUNT} items, exit {child.returncode}:\n{err.decode()}")
            times = [json.loads(line)["t"] for line in (folder / "log.jsonl").open()]
            rates.append(COUNT / (max(times) - min(times)))
    who = f"{crew_size} worker{'s' if crew_size > 1 else ''}, Redis and {'Postgres' if ledger else 'SQLite'}"
    print(
        f"scaled, {who}, 0 ms, concurrency {CONCURRENCY}, {COUNT:,} items: "
        f"{statistics.median(rates):,.0f} items/s ({min(rates):,.0f}-{max(rates):,.0f})"
        f"  longest queue {longest:,} hints",
        flush=True,
    )


def _queued(redis: RedisServer) -> int:
    keys = [word for word in redis.ask("KEYS batchrun:*:hints").split() if word.endswith(":hints")]
    return sum(int(redis.ask(f"LLEN {key}").split()[0].lstrip(":")) for key in keys)


def measure(runs: int) -> None:
    """Measure with private servers; without them say so."""
    try:
        with run_redis() as redis, run_postgres() as postgres:
            for crew_size in (1, 2):
                throughput(crew_size, redis=redis, ledger=postgres.url(), runs=runs)
            throughput(1, redis=redis, ledger=None, runs=runs)
    except ServerUnavailableError as error:
        print(f"scaled: not measured, {error}", flush=True)
