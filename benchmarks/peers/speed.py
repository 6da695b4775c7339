"""Other ways to send a batch, each in an environment of its own: in the same run, with the same requests.

What cannot be installed, or does not run, is skipped with a word.
"""

import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from benchmarks.embedded import Work, ours, rival
from benchmarks.figures import Board, Figure, Sample, cpu_ms, in_turn, rates, rss_mb

FOLDER = Path("build/peers")
INSTALL_S = 600


@dataclass(frozen=True)
class Peer:
    """Another way, and how much of ours it is to be at the most."""

    name: str
    script: str
    package: str
    least: float  # times as fast are we to be
    share: float  # of our items it is given: it must not take minutes
    asides: int = 0  # requests that it sends before those of the items


PEERS = (
    Peer("flexllm", "flexllm_way", "flexllm==0.17.10", 1.8, 0.5),
    Peer("aiperf", "aiperf_way", "aiperf==0.13.0", 2.0, 0.3),
    Peer("the cookbook's way", "cookbook", "aiohttp==3.14.5", 3.0, 0.3),
    Peer("async-batch-llm", "async_batch_llm_way", "async-batch-llm==0.28.0", 5.0, 0.2),
    Peer("Curator", "curator_way", "bespokelabs-curator==0.1.31", 5.0, 0.1, asides=1),
    Peer("litellm", "litellm_way", "litellm==1.110.2", 10.0, 0.1),
)
WORKS = (Work(10_000, 64), Work(10_000, 256, 100))


def measure(board: Board, runs: int) -> None:
    """Measure all that can be had."""
    pythons = {peer: python for peer in PEERS if (python := _python(peer, board)) is not None}
    for work in WORKS:
        contenders: dict[str, Callable[[], Sample]] = {"ours": partial(ours, work)}
        for peer, python in pythons.items():
            part = Work(int(work.count * peer.share), work.concurrency, work.latency_ms)
            contenders[peer.name] = partial(rival, part, peer.script, python=python, asides=peer.asides)
        found = in_turn(runs, contenders)
        for peer in pythons:
            theirs = found[peer.name]
            ratios = [one / other for one, other in zip(rates(found["ours"]), rates(theirs), strict=True)]
            what = f"embedded, {work.latency_ms:g} ms, concurrency {work.concurrency}, against {peer.name}"
            note = f"it: {rates(theirs)[0]:,.0f} items/s, {cpu_ms(theirs):.2f} ms, {rss_mb(theirs):.0f} MB"
            board.put(
                Figure(
                    "peers",
                    what,
                    ratios,
                    "x",
                    least=peer.least,
                    cpu_ms=cpu_ms(found["ours"]),
                    rss_mb=rss_mb(found["ours"]),
                    note=note,
                )
            )


def _python(peer: Peer, board: Board) -> str | None:
    """Return the Python of a peer's environment, which is made when it is first asked for."""
    folder = (FOLDER / peer.package).absolute()
    python, done = folder / "bin" / "python", folder / "installed"
    if not done.exists():
        pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        try:
            subprocess.run([sys.executable, "-m", "venv", "--clear", str(folder)], check=True, capture_output=True)
            subprocess.run([*pip, peer.package, "openai"], check=True, capture_output=True, timeout=INSTALL_S)
        except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
            board.skip(f"{peer.name}: it could not be installed ({type(error).__name__})")
            return None
        done.touch()
    return str(python)
