"""The scaled form: worker processes over Redis and Postgres, and what lies in Redis meanwhile."""

import contextlib
import json
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from batchrun.mock.config import MockConfig
from batchrun.mock.process import MockProcess
from batchrun.runner.feed import PACKETS
from batchrun.runner.intake import HINTS_PER_SLOT
from benchmarks.costs import Child, start
from benchmarks.embedded import span_s
from benchmarks.figures import Board, Figure, Sample, cpu_ms, in_turn, rates, rss_mb
from benchmarks.jobs import alike, write_job
from tests.services import RedisServer, ServerUnavailableError, run_postgres, run_redis

POLL_S = 0.1
STARTED_AT = 500  # requests: from here on what a worker has spent is the items'


@dataclass(frozen=True)
class Crew:
    """Workers, and what they are given."""

    size: int
    count: int
    concurrency: int
    latency_ms: float = 0.0
    on_postgres: bool = True


class Scene:
    """The servers that all runs use, and what was seen in Redis."""

    def __init__(self, redis: RedisServer, postgres_url: str) -> None:
        self._redis, self._postgres_url = redis, postgres_url
        self._jobs = 0
        self.most_hints: dict[Crew, list[int]] = {}

    def sample(self, crew: Crew) -> Sample:
        """Let a crew do one job, and judge it by the endpoint's own log."""
        self._jobs += 1
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            log = folder / "log.jsonl"
            write_job(folder, alike(crew.count), concurrency=crew.concurrency, name=f"bench-{self._jobs}")
            self._redis.ask("FLUSHALL")
            with MockProcess(MockConfig(latency_ms=crew.latency_ms, log_path=str(log))) as mock:
                env = {"OPENAI_BASE_URL": mock.base_url, "BATCHRUN_BROKER": self._redis.url}
                env |= {"BATCHRUN_DB": self._postgres_url} if crew.on_postgres else {}
                with _workers(crew, folder, env) as workers:
                    child = start("submit", "jobs/job.json", "--no-trial", "--json", folder=folder, env=env)
                    spent, left = self._watch(crew, child, mock, workers)
                    cost = child.wait()
                requests = mock.stats()["posts"]
            if cost.code or requests != crew.count or json.loads(cost.out)["attempts"]["sent"] != crew.count:
                raise SystemExit(f"{requests} requests for {crew.count} items, exit {cost.code}:\n{cost.err}")
            return Sample(crew.count / span_s(log), spent / left * 1000, self._rss_mb)

    def _watch(self, crew: Crew, child: Child, mock: MockProcess, workers: list[Child]) -> tuple[float, int]:
        """Watch a job until it is over; return the processor time that so many items took."""
        base, at, most = 0.0, 0, 0
        while child.is_alive:
            most = max(most, self._hinted(crew))
            if not at and (requests := mock.stats()["posts"]) >= STARTED_AT:
                base, at = sum(one.cpu_s for one in workers), requests
            time.sleep(POLL_S)
        self.most_hints.setdefault(crew, []).append(most)
        self._rss_mb = max(_peak_mb(one) for one in workers)
        return sum(one.cpu_s for one in workers) - base, crew.count - at

    def _hinted(self, crew: Crew) -> int:
        """Return the most items that can be hinted at in the broker: a hint names at most a part of the window."""
        keys = [word for word in self._redis.ask("KEYS batchrun:*:hints").split() if word.endswith(":hints")]
        hints = sum(int(self._redis.ask(f"LLEN {key}").split()[0].lstrip(":")) for key in keys)
        return hints * max(1, HINTS_PER_SLOT * crew.concurrency // PACKETS)


def _peak_mb(child: Child) -> float:
    status = Path(f"/proc/{child.process.pid}/status").read_text()
    return next(int(line.split()[1]) / 1024 for line in status.splitlines() if line.startswith("VmHWM"))


@contextlib.contextmanager
def _workers(crew: Crew, folder: Path, env: dict[str, str]) -> Iterator[list[Child]]:
    """Run the workers until the block ends; they are all ready before it begins."""
    command = ("worker", "--alone", "-c", str(crew.concurrency))
    workers = [start(*command, folder=folder, env=env) for _ in range(crew.size)]
    try:
        while not all("is ready" in one.said() for one in workers):
            if not all(one.is_alive for one in workers):
                raise SystemExit("a worker did not start:\n" + "\n".join(one.said() for one in workers))
            time.sleep(POLL_S)
        yield workers
    finally:
        for one in workers:
            one.process.terminate()
        for one in workers:
            one.wait()


def measure(board: Board, runs: int) -> None:
    """Measure with private servers; without them say so."""
    crews = {
        "1 worker, 0 ms, concurrency 128": Crew(1, 8_000, 128),
        "2 workers, 0 ms, concurrency 128": Crew(2, 8_000, 128),
        "1 worker, 0 ms, concurrency 128, SQLite": Crew(1, 8_000, 128, on_postgres=False),
        "1 worker, 100 ms, concurrency 256": Crew(1, 10_000, 256, latency_ms=100.0),
    }
    try:
        with run_redis() as redis, run_postgres() as postgres:
            scene = Scene(redis, postgres.url())
            found = in_turn(runs, {name: partial(scene.sample, crew) for name, crew in crews.items()})
    except ServerUnavailableError as error:
        board.skip(f"scaled: {error}")
        return
    goals = {"1 worker, 0 ms, concurrency 128": 2_000.0, "1 worker, 100 ms, concurrency 256": 0.75}
    for name, crew in crews.items():
        limit = crew.concurrency / crew.latency_ms * 1000 if crew.latency_ms else 1.0
        values, unit = rates(found[name], over=limit), "of the limit" if crew.latency_ms else "items/s"
        _put(board, f"scaled, {name}", values, unit, found[name], least=goals.get(name))
    one, two = (rates(found[name]) for name in list(crews)[:2])
    gains = [both / alone for both, alone in zip(two, one, strict=True)]
    _put(board, "scaled, 0 ms, two workers against one", gains, "x", found[list(crews)[1]])
    hints = [most / crew.concurrency for crew, seen in scene.most_hints.items() for most in seen]
    board.put(Figure("scaled", "items hinted at in Redis, most at any time, per slot", [max(hints)], "x", most=4.0))


def _put(
    board: Board, work: str, values: list[float], unit: str, samples: list[Sample], *, least: float | None = None
) -> None:
    board.put(Figure("scaled", work, values, unit, least=least, cpu_ms=cpu_ms(samples), rss_mb=rss_mb(samples)))
