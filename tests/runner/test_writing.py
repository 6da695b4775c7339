"""The outputs while they are written: how far that is can be seen, and a person can stop it without harm."""

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from batchrun.core.states import ItemState, JobState
from batchrun.runner.finalize import finalize
from batchrun.runner.progress import Progress
from batchrun.runner.writing import GivenUp, Writing
from tests.runner.bench import Bench


def written(bench: Bench, write: Callable[[Writing], object], watch: Callable[[Writing, Progress], None]) -> list[int]:
    """Write beside an event loop; return how often there was a sign of life."""
    beats: list[int] = []

    async def beat() -> None:
        beats.append(1)

    async def go() -> None:
        counts = {state: bench.counts[state.value] for state in ItemState}
        writing = Writing(bench.job, counts, lines=bench.count)
        await writing.watched(lambda: write(writing), watch=lambda moment: watch(writing, moment), beat=beat)

    asyncio.run(go())
    return beats


def test_how_far_it_is_can_be_seen_meanwhile(tmp_path: Path) -> None:
    bench = Bench(tmp_path, count=20)
    bench.run()
    is_seen = threading.Event()
    moments: list[Progress] = []

    def write(writing: Writing) -> None:
        def wrote(lines: int) -> None:
            writing.wrote(lines)
            if lines == 7:
                assert is_seen.wait(10)

        finalize(bench.ledger, bench.job, holder=bench.worker.id, wrote=wrote)

    def watch(writing: Writing, moment: Progress) -> None:
        moments.append(moment)
        if moment.scope_done == 7:
            is_seen.set()

    assert written(bench, write, watch)
    assert (moments[-1].phase, moments[-1].unit) == ("finalizing", "lines")
    assert (moments[-1].scope_done, moments[-1].scope_total) == (7, 20)
    assert bench.job.state is JobState.COMPLETED
    assert len((tmp_path / "out.jsonl").read_text().splitlines()) == 20


def test_given_up_it_leaves_no_half_of_a_file_and_can_be_done_again(tmp_path: Path) -> None:
    bench = Bench(tmp_path, count=20)
    bench.run()

    def write(writing: Writing) -> None:
        def wrote(lines: int) -> None:
            writing.is_given_up = lines == 7
            writing.wrote(lines)

        finalize(bench.ledger, bench.job, holder=bench.worker.id, wrote=wrote)

    with pytest.raises(GivenUp):
        written(bench, write, lambda writing, moment: None)
    assert bench.job.state is JobState.FINALIZING
    left = sorted(path.name for path in tmp_path.iterdir() if path.name.startswith((".", "out")))
    assert left == []
    finalize(bench.ledger, bench.job, holder=bench.worker.id)
    assert bench.job.state is JobState.COMPLETED
    assert len((tmp_path / "out.jsonl").read_text().splitlines()) == 20
