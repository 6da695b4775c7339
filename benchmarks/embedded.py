"""Whole jobs in one process: share of the limit, against the plain script, without latency, the ledger's price."""

import json
import statistics
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

from batchrun.mock.config import MockConfig
from batchrun.mock.process import MockProcess
from benchmarks.costs import Child, Cost, batchrun
from benchmarks.figures import Board, Figure, Sample, cpu_ms, in_turn, rates, rss_mb
from benchmarks.jobs import alike, write_job

PLAIN_THERE = 476.0  # items/s of the plain script, 0 ms, concurrency 256, on the machine that the goals were made for
MEAN_OF_LOGNORMAL = 1.1331  # exp(0.5 ** 2 / 2), times the median


@dataclass(frozen=True)
class Work:
    """What there is to do."""

    count: int
    concurrency: int
    latency_ms: float = 0.0
    sigma: float = 0.0

    @property
    def limit(self) -> float:
        """Items a second, if nothing but the endpoint took time."""
        mean = MEAN_OF_LOGNORMAL if self.sigma else 1.0
        return self.concurrency / (self.latency_ms * mean / 1000)


def sample(work: Work, run: Callable[[Path, str], Cost], *, spent_s: float = 0.0, asides: int = 0) -> Sample:
    """Let a contender do the work, and judge it by the endpoint's own log.

    Args:
        spent_s: processor time of its start.
        asides: requests of its own that it sends before any item's; their time is not counted.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_job(folder, alike(work.count), concurrency=work.concurrency)
        log = folder / "log.jsonl"
        config = MockConfig(latency_ms=work.latency_ms, latency_sigma=work.sigma, log_path=str(log))
        with MockProcess(config) as mock:
            cost = run(folder, mock.base_url)
            stats = mock.stats()
        all_told = work.count + asides
        if (stats["posts"], stats["distinct_bodies"], stats["repeated_bodies"]) != (all_told, all_told, 0):
            raise SystemExit(f"{stats['requests']} requests for {work.count} items")
        return Sample(
            rate=work.count / span_s(log, after=asides),
            cpu_ms=(cost.cpu_s - spent_s) / work.count * 1000,
            rss_mb=cost.rss_mb,
        )


def span_s(log: Path, *, after: int = 0) -> float:
    """Return the time from the first arrival to the last end, by the endpoint's own clock; not of the first `after`."""
    seen = [json.loads(text) for text in log.open()]
    posts = [line["req"] for line in seen if line.get("method") == "POST"]  # a look at the models is no work
    asked = set(posts[after:])
    times = [line["t"] for line in seen if line["req"] in asked]
    return float(max(times) - min(times))


def submit(folder: Path, base_url: str, *, prelude: str | None = None) -> Cost:
    """Run the job in the folder, and check that its attempts are as many as its items."""
    cost = batchrun(
        "submit",
        "jobs/job.json",
        "--no-trial",
        "--json",
        folder=folder,
        env={"OPENAI_BASE_URL": base_url},
        prelude=prelude,
    )
    told = json.loads(cost.out)
    total, done = told["counts"]["total"], told["counts"]["completed"]
    if (told["attempts"]["sent"], done) != (total, total):
        raise SystemExit(f"{told['attempts']['total']} attempts for {total} items: {told['counts']}")
    return cost


@cache
def start_s() -> float:
    """Return the processor time of a job of ten items: what a start costs."""
    with tempfile.TemporaryDirectory() as name, MockProcess(MockConfig()) as mock:
        write_job(Path(name), alike(10), concurrency=8)
        return submit(Path(name), mock.base_url).cpu_s


def ours(work: Work, *, prelude: str | None = None) -> Sample:
    return sample(work, partial(submit, prelude=prelude), spent_s=start_s())


def rival(work: Work, script: str, *, python: str = sys.executable, asides: int = 0) -> Sample:
    """Let a script of `rivals/` do the same."""

    def run(folder: Path, base_url: str) -> Cost:
        command = [python, str(Path(__file__).parent / "rivals" / f"{script}.py")]
        cost = Child([*command, base_url, "inputs/in.jsonl", str(work.concurrency)], folder, {}).wait()
        if cost.code:
            raise SystemExit(f"{script} ended with {cost.code}:\n{cost.err}")
        return cost

    return sample(work, run, asides=asides)


def limits(board: Board, runs: int) -> None:
    """Measure the share of what concurrency and latency allow."""
    _shares(board, "limit", runs, stretch=1.0)


def stretched(board: Board, runs: int) -> None:
    """Measure the same with latencies that are as much longer as the plain script is slower here than it was there.

    So the work between two answers is to the wait for them what it is on the machine that the goals were made for.
    """
    plain = [rival(Work(2_000, 256), "plain") for _ in range(runs)]
    stretch = max(1.0, PLAIN_THERE / statistics.median(rates(plain)))
    note = f"{PLAIN_THERE:,.0f} where the goals were made: latencies are {stretch:.2f} times as long"
    _put(board, "stretched", "the plain script, 0 ms, concurrency 256", rates(plain), "items/s", plain, note=note)
    _shares(board, "stretched", runs, stretch=stretch)


def _shares(board: Board, part: str, runs: int, *, stretch: float) -> None:
    goals = {
        Work(800, 8, 100 * stretch): 0.95,
        Work(4_000, 64, 100 * stretch): 0.95,
        Work(10_000, 256, 100 * stretch): 0.90,
        Work(20_000, 1_024, 100 * stretch): 0.40,
        Work(10_000, 256, 100 * stretch, sigma=0.5): 0.87,
        Work(10_240, 1_024, 1_000 * stretch): 0.95,
    }
    names = {
        f"embedded, {work.latency_ms:,.0f} ms, concurrency {work.concurrency:,}"
        + (", lognormal (sigma 0.5), against the mean" if work.sigma else ""): work
        for work in goals
    }
    found = in_turn(runs, {name: partial(ours, work) for name, work in names.items()})
    for name, work in names.items():
        _put(board, part, name, rates(found[name], over=work.limit), "of the limit", found[name], least=goals[work])


def scripts(board: Board, runs: int) -> None:
    """Measure against the plain script: AsyncOpenAI, a semaphore, gather, and no ledger."""
    slow, fast = Work(10_000, 256, 100), Work(12_000, 256)
    contenders: dict[str, Callable[[], Sample]] = {
        "ours, 100 ms": partial(ours, slow),
        "the plain script, 100 ms": partial(rival, Work(2_000, 256, 100), "plain"),
        "ours, 0 ms": partial(ours, fast),
        "the plain script, 0 ms": partial(rival, Work(2_000, 256), "plain"),
        "ours, 0 ms, concurrency 64": partial(ours, Work(10_000, 64)),
    }
    found = in_turn(runs, contenders)
    for latency, least in (("100 ms", 5.0), ("0 ms", 8.0)):
        mine, theirs = found[f"ours, {latency}"], found[f"the plain script, {latency}"]
        ratios = [one / other for one, other in zip(rates(mine), rates(theirs), strict=True)]
        work = f"embedded, {latency}, concurrency 256, against the plain script"
        _put(board, "script", work, ratios, "x", mine, least=least)
        _put(board, "script", f"the plain script, {latency}, concurrency 256", rates(theirs), "items/s", theirs)
    for name, least in (("ours, 0 ms", 4_000.0), ("ours, 0 ms, concurrency 64", 2_800.0)):
        concurrency = 64 if name.endswith("64") else 256
        work = f"embedded, 0 ms, concurrency {concurrency}"
        _put(board, "script", work, rates(found[name]), "items/s", found[name], least=least)
    cpus = [one.cpu_ms for one in found["ours, 0 ms"]]
    _put(board, "script", "CPU an item, 0 ms, concurrency 256", cpus, "ms", found["ours, 0 ms"], most=0.25)


def ledger(board: Board, runs: int) -> None:
    """Measure what it costs to wait for the disk, twice an item."""
    work = Work(10_000, 256)
    found = in_turn(runs, {"with": partial(ours, work), "without": partial(ours, work, prelude="undurable")})
    shares = [one / other for one, other in zip(rates(found["with"]), rates(found["without"]), strict=True)]
    what = "embedded, 0 ms, concurrency 256, with against without durable writes"
    _put(board, "ledger", what, shares, "x", found["with"], least=0.90)


def _put(
    board: Board, part: str, work: str, values: list[float], unit: str, samples: list[Sample], **goal: Any
) -> None:
    board.put(Figure(part, work, values, unit, cpu_ms=cpu_ms(samples), rss_mb=rss_mb(samples), **goal))
