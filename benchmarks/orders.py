"""What the order of sending brings: shared beginnings in the endpoint's cache, and no long item at the end alone."""

import json
import random
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from batchrun.mock.config import MockConfig
from batchrun.mock.process import MockProcess
from benchmarks.costs import Cost
from benchmarks.embedded import span_s, start_s, submit
from benchmarks.figures import Board, Figure, Sample, cpu_ms, in_turn, rates, rss_mb
from benchmarks.jobs import Line, line, sharing, write_job

GROUPS, EACH, PREFIX_BYTES = 100, 20, 8_000  # 2,000 tokens that twenty requests share, a hundred times
CACHE_BLOCKS = GROUPS * PREFIX_BYTES // 64 // 5  # a fifth of all prefixes
PREFIX_MOCK: dict[str, Any] = {
    "ttft_ms": 20.0,
    "itl_ms": 2.0,
    "prompt_token_ms": 0.1,  # 10,000 tokens a second and request: as read from a GPU that is shared by some
    "prefix_cache_blocks": CACHE_BLOCKS,
}


def shared_prefixes() -> list[Line]:
    return list(sharing(GROUPS, EACH, prefix_bytes=PREFIX_BYTES, shuffle=random.Random(0).shuffle))


def long_and_short() -> list[Line]:
    """Make a thousand lines; one of a hundred asks for a hundred times as much."""
    dice = random.Random(0)
    return [line(number, "hello", max_tokens=2_000 if dice.random() < 0.01 else 20) for number in range(1_000)]


def _sample(lines: Callable[[], list[Line]], order: str, hits: list[float], **mock: Any) -> Sample:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        log, given = folder / "log.jsonl", lines()
        write_job(folder, given, concurrency=32, order=order)
        with MockProcess(MockConfig(log_path=str(log), answer_tokens=4_000, answer_spread=0.0, **mock)) as endpoint:
            cost: Cost = submit(folder, endpoint.base_url)
            stats = endpoint.stats()
        if stats["posts"] != len(given):
            raise SystemExit(f"{stats['requests']} requests for {len(given)} items")
        hits.append(stats["prefix_hits"] / max(1, stats["prefix_queries"]))
        written = [json.loads(text)["custom_id"] for text in (folder / "outputs" / "out.jsonl").open()]
        if written != [one["custom_id"] for one in given]:
            raise SystemExit("the outputs do not stand in input order")
        cpu_s = cost.cpu_s - start_s()
        return Sample(len(given) / span_s(log), cpu_s / len(given) * 1000, cost.rss_mb)


def measure(board: Board, runs: int) -> None:
    """Measure both orders against that of the input."""
    hits: dict[str, list[float]] = {"input": [], "prefix": []}
    prefix = {name: partial(_sample, shared_prefixes, name, hits[name], **PREFIX_MOCK) for name in hits}
    _compare(
        board,
        "prefix",
        in_turn(runs, prefix),
        work=f"{GROUPS} prefixes of {PREFIX_BYTES // 4:,} tokens, shuffled, cache of a fifth: time saved by `prefix`",
        least=0.20,
        note=f"hits {hits['input'][0]:.0%} as they stand, {hits['prefix'][0]:.0%} grouped",
    )
    longest = {
        name: partial(_sample, long_and_short, name, [], ttft_ms=20.0, itl_ms=2.0) for name in ("input", "longest")
    }
    what = "1 of 100 items a hundred times as long, concurrency 32: time saved by `longest`"
    _compare(board, "longest", in_turn(runs, longest), work=what, least=0.0)


def _compare(board: Board, order: str, found: dict[str, list[Sample]], *, work: str, **goal: Any) -> None:
    pairs = zip(rates(found["input"]), rates(found[order]), strict=True)
    saved = [1 - as_they_stand / ordered for as_they_stand, ordered in pairs]
    samples = found[order]
    board.put(Figure("order", work, saved, "of it", cpu_ms=cpu_ms(samples), rss_mb=rss_mb(samples), **goal))
