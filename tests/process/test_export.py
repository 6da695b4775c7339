"""An export is whole or it is not there: on a full disk, after a kill, and in bounded memory whatever it exports."""

import json
import resource
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from batchrun.core.concurrency import Concurrency
from batchrun.ledger import jobs as job_moves
from batchrun.ledger import results
from batchrun.ledger.bulk import insert_many
from batchrun.ledger.ledger import Ledger
from batchrun.ledger.liveness import enter
from batchrun.ledger.register import Line, write_items
from batchrun.ledger.schema import answers, attempt_key, attempts
from tests.lab import Lab, Run
from tests.process.limits import small_disk, small_files
from tests.process.steps import TASK, assert_never_locked, until

COUNT = 200
TEXT = "lorem ipsum " * 40
TABLES = ("big.csv", "big.parquet")


def filled(lab: Lab, *, count: int) -> None:
    """Put a job that has ended into the lab's ledger, each item with an answer of half a kilobyte."""
    ledger = lab.ledger()
    worker = enter(ledger, name="filler", now=0.0)
    files = {
        name: str(lab.folder / "outputs" / f"{name}.jsonl") for name in ("input_file", "output_file", "error_file")
    }
    spec = {**files, "trial": {"size": 0}, "price": None, "prompt_template": None, "base_url": lab.base_url}
    with ledger.write() as connection:
        job = job_moves.register_job(
            connection,
            task_id=TASK,
            spec=spec,
            input_digest="",
            params_digest="",
            total=count,
            phase="full",
            on_unknown="hold",
            concurrency=Concurrency.of(1),
            retry_times=0,
            max_cost_pusd=None,
            holder=worker.id,
            now=0.0,
        )
    assert job is not None
    body = json.dumps({"messages": [{"role": "user", "content": TEXT}]}).encode()
    lines = (
        Line(number, number + 1, f"q-{number}", None, "m", None, "/v1/chat/completions", body, None)
        for number in range(count)
    )
    write_items(ledger, job.id, lines, trial=(), now=0.0)
    answer(ledger, job.id, worker.id)
    with ledger.write() as connection:
        for move in ("open", "finalize", "complete"):
            assert job_moves.move_job(connection, job.id, move, now=0.0), move
        job_moves.drop(connection, job.id, worker_id=worker.id, active_s=0.0)
    worker.leave(ledger, now=0.0)
    ledger.close()


def answer(ledger: Ledger, job_id: int, worker_id: int) -> None:
    columns = ["key", "job_id", "worker_id", "endpoint", "state", "queued_at", "claimed_at", "ended_at"]
    columns += ["charge", "cost_pusd", "reserved_pusd"]
    with ledger.write() as connection:
        ids = [row[0] for row in connection.exec_driver_sql("SELECT id FROM items").all()]
        rows = [
            (attempt_key(one, 1), job_id, worker_id, "http://x", "answered", 0, 0, -one, "certain", 0, 0) for one in ids
        ]
        insert_many(connection, attempts, columns, rows)
        raw = json.dumps({"choices": [{"message": {"content": TEXT}, "finish_reason": "stop"}]}).encode()
        insert_many(connection, answers, ("key", "raw"), [(attempt_key(one, 1), raw) for one in ids])
        connection.exec_driver_sql("UPDATE items SET state = 'completed', fence = 1, answer_key = id * 1048576 + 1")


@pytest.mark.parametrize("name", TABLES)
def test_a_table_that_does_not_fit_on_its_disk_leaves_the_old_one(make_lab: Callable[..., Lab], name: str) -> None:
    lab = make_lab()
    filled(lab, count=2_000)
    with small_disk(lab.folder / "outputs", "64k") as disk:
        if disk is None:
            pytest.skip("mounting is not permitted here; the next test does it with ulimit -f")
        old = lab.folder / "outputs" / name
        old.write_text("the old one")
        run = lab.run("export", TASK, "-o", f"outputs/{name}", "--join-prompt", before=incompressible)
        assert run.wait() == 5, run.err + run.out
        assert "No space left on device" in run.err
        assert name in run.err
        assert "batchrun export" in run.err
        assert old.read_text() == "the old one"
        assert [path.name for path in old.parent.iterdir()] == [name]
        disk.resize("64m")
        assert lab.run("export", TASK, "-o", f"outputs/{name}", "--join-prompt", before=incompressible).wait() == 0
        assert old.stat().st_size > 64_000
        lab.stop()


def incompressible() -> None:
    """Let a process find long random ids, which no compression makes small."""
    import random

    from batchrun.runner import telling

    real = telling.output_item
    dice = random.Random(1)

    def with_noise(*args: object, **options: object) -> object:
        from dataclasses import replace

        return replace(real(*args, **options), custom_id=f"{dice.getrandbits(800):x}")  # type: ignore[arg-type, type-var]

    telling.output_item = with_noise  # type: ignore[assignment]


@pytest.mark.parametrize("name", TABLES)
def test_a_file_that_may_not_grow_stops_the_export_in_words(make_lab: Callable[..., Lab], name: str) -> None:
    lab = make_lab()
    filled(lab, count=200)
    run = lab.run("export", TASK, "-o", name, before=partial(small_files, 300))
    assert run.wait() == 5, run.err + run.out
    assert "cannot be written" in run.err
    assert "Traceback" not in run.err
    assert not list(lab.folder.glob(f"*{name}*"))


def slow_chunks() -> None:
    """Let a process read an item at a time."""
    results._FIRST = 1
    results._fitting = lambda rows: time.sleep(0.005) or 1


@pytest.mark.parametrize("name", ["big.jsonl", *TABLES])
def test_a_killed_export_leaves_the_old_file_and_the_next_one_clears_up(
    make_lab: Callable[..., Lab], name: str
) -> None:
    lab = make_lab()
    filled(lab, count=COUNT)
    old = lab.folder / name
    old.write_text("the old one")
    run = lab.start("export", TASK, "-o", name, before=slow_chunks)
    until(lambda: list(lab.folder.glob(f".{name}.tmp-*")) or not run.process.is_alive(), "it is being written")
    run.kill()
    run.process.join()
    assert old.read_text() == "the old one", "it was over too soon for this test"
    assert list(lab.folder.glob(f".{name}.tmp-*"))
    assert lab.run("export", TASK, "-o", name).wait() == 0
    assert old.stat().st_size > 1_000
    assert not list(lab.folder.glob(f".{name}.tmp-*"))
    assert_never_locked(lab)


# -- memory -----------------------------------------------------------------------------------------------------------

FEW, MANY = 7_000, 21_000  # the smaller one fills a row group of Parquet, too
GROWTH_MB = 40
CHECKED = [
    ("big.csv", "--join-prompt"),
    ("big.parquet", "--join-prompt"),
    ("big.jsonl", "--order", "finish"),
]


def tell_peak() -> None:
    """Let a process say how much memory it took at the most, in kB, as the last line of stderr."""
    import os
    import sys

    real = os._exit

    def tell_and_exit(code: int) -> None:
        print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, file=sys.stderr, flush=True)
        real(code)

    os._exit = tell_and_exit  # type: ignore[assignment]


def peak_mb(run: Run) -> float:
    assert run.wait() == 0, run.err
    return int(run.err.splitlines()[-1]) / 1024


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_a_large_job_takes_no_more_memory_than_a_small_one_to_export_and_to_purge(make_lab: Callable[..., Lab]) -> None:
    labs = {count: make_lab(f"of-{count}") for count in (FEW, MANY)}
    for count, lab in labs.items():
        filled(lab, count=count)
    commands = [("export", TASK, "-o", *options) for options in CHECKED] + [("purge", TASK, "-y")]
    for command in commands:
        few, many = (peak_mb(lab.run(*command, before=tell_peak)) for lab in labs.values())
        assert many - few < GROWTH_MB, (command, few, many)
    assert Path(labs[MANY].folder / "big.csv").stat().st_size > MANY * len(TEXT)
