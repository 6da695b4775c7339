"""By hand, against a real vLLM: how much of a shared-prefix set it finds in its cache, as the lines stand and grouped.

vllm serve MODEL ... --num-gpu-blocks-override N      (a cache that is smaller than the set)
python -m benchmarks.real http://127.0.0.1:8000 MODEL [GROUPS EACH PREFIX_BYTES]
"""

import random
import re
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

from benchmarks.embedded import submit
from benchmarks.jobs import sharing, write_job

COUNTERS = ("prefix_cache_queries", "prefix_cache_hits")
CONCURRENCY = 4


def read_counters(server: str) -> dict[str, float]:
    """Read the server's own counters, in tokens."""
    text = urllib.request.urlopen(f"{server}/metrics", timeout=30).read().decode()
    return {
        name: sum(float(value) for value in re.findall(rf"^vllm:{name}_total\{{.*\}} (\S+)$", text, re.MULTILINE))
        for name in COUNTERS
    }


def main(server: str, model: str, groups: int = 40, each: int = 6, prefix_bytes: int = 3_000) -> None:
    """Run the same shuffled set in both orders, each with prefixes of its own: the second must not find the first's."""
    for number, order in enumerate(("input", "prefix")):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            lines = sharing(
                groups, each, prefix_bytes=prefix_bytes, shuffle=random.Random(0).shuffle, seed=number * groups
            )
            write_job(folder, lines, concurrency=CONCURRENCY, order=order, model=model, max_tokens=8)
            before, began = read_counters(server), time.monotonic()
            submit(folder, f"{server}/v1")
            took_s = time.monotonic() - began
            after = read_counters(server)
        queries, hits = (after[name] - before[name] for name in COUNTERS)
        print(
            f"{order:6}  {groups * each} requests, {queries:,.0f} prompt tokens, {hits:,.0f} of them in the cache: "
            f"hit rate {hits / queries:.1%}, {took_s:.1f} s",
            flush=True,
        )


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], *(int(one) for one in sys.argv[3:]))
