"""`make bench`: what a run costs, each as a ratio in one run on one machine. No network but for the peers; minutes.

Every fault-free run is checked: requests = attempts = items, none sent twice. The figures are printed, and written as
JSON and into the table of docs/performance.md.
"""

import argparse
import json
import os
import platform
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from batchrun.ledger.engines import journal_mode, sqlite_module
from benchmarks import embedded, large, orders, scaled, startup
from benchmarks.figures import HEAD, Board
from benchmarks.peers.speed import measure as speed_of_peers
from benchmarks.report import Conditions, write_table

RESULT = Path("build/bench.json")
DOCUMENT = Path("docs/performance.md")
PARTS: dict[str, Callable[[Board, int], None]] = {
    "start": startup.measure,
    "limit": embedded.limits,
    "stretched": embedded.stretched,
    "script": embedded.scripts,
    "ledger": embedded.ledger,
    "order": orders.measure,
    "scaled": scaled.measure,
    "large": lambda board, _runs: large.measure(board),
    "peers": speed_of_peers,
}


def main() -> None:
    """Measure the parts that were asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"all of {', '.join(PARTS)}, or some")
    parser.add_argument("--runs", type=int, default=3, help="runs of each contender, in turn (default: 3)")
    parser.add_argument("--first", action="store_true", help="go before other processes of this machine (root)")
    parser.add_argument("--write", action="store_true", help=f"write the table of {DOCUMENT} anew")
    wanted = parser.parse_args()
    if unknown := set(wanted.parts) - PARTS.keys():
        parser.error(f"no part {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}")
    if wanted.first:
        go_first()
    conditions = Conditions.now(" ".join(["python -m benchmarks.bench", *sys.argv[1:]]), sqlite=_sqlite())
    print(conditions.told, HEAD, sep="\n\n", flush=True)
    board = Board()
    for name, measure in PARTS.items():
        if not wanted.parts or name in wanted.parts:
            began = time.monotonic()
            measure(board, wanted.runs)
            print(f"<!-- {name}: {time.monotonic() - began:.0f} s -->", flush=True)
            RESULT.parent.mkdir(exist_ok=True)
            RESULT.write_text(json.dumps(conditions.as_json(board), indent=1) + "\n")
    if wanted.write:
        write_table(DOCUMENT, conditions, board)
    missed = [figure.work for figure in board.figures if figure.is_met is False]
    print(f"\n{len(board.figures)} figures, {len(missed)} goals missed; {RESULT}")


def go_first() -> None:
    """Ask the kernel to let this process and its children go before others, in their own group and among all."""
    with suppress(PermissionError):  # who leads a group of processes has its own already
        os.setsid()
    os.nice(-15)
    group = Path("/proc/self/autogroup")
    if group.exists():
        group.write_text("-15")


def _sqlite() -> str:
    module = sqlite_module()
    return f"SQLite {module.sqlite_version}, journal {journal_mode(module)}, synchronous FULL"


if __name__ == "__main__":
    print(f"Python {platform.python_version()}", file=sys.stderr)
    main()
