"""A job goes on with one copy of its ledger: with the one that did so first, however close they come to each other."""

import shutil
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from threading import Barrier

import pytest

from batchrun.errors import LedgerCopied, LedgerFault, LedgerFull
from batchrun.files.epoch import epoch_file, read_epoch
from batchrun.ledger.epochs import begin_epoch
from batchrun.ledger.jobs import Job, read_job, take
from batchrun.ledger.ledger import Ledger
from batchrun.ledger.liveness import Observer, Worker, enter
from batchrun.runner.epoch import begin, let_go, move_epoch_on, refuse_copy
from batchrun.runner.hold import try_to_hold
from tests.process.limits import small_disk
from tests.runner.bench import Bench


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    """A job that its worker holds, and whose outputs lie in a folder of their own."""
    (tmp_path / "ledger").mkdir()
    return Bench(tmp_path / "ledger")


def copy(bench: Bench, name: str) -> tuple[Ledger, Job, Worker]:
    """Copy the ledger, and let a process of its own hold the job there, as after the death of the one before."""
    bench.ledger.close()
    folder = bench.folder.parent / name
    folder.mkdir()
    shutil.copy(bench.folder / "ledger.db", folder / "ledger.db")
    ledger = Ledger(str(folder / "ledger.db"), folder=folder)
    worker = enter(ledger, name=name, now=time.time())
    with ledger.write() as connection:
        assert take(connection, bench.job_id, worker_id=worker.id, instead_of=bench.worker.id, now=time.time())
        return ledger, read_job(connection, bench.job_id), worker


def output(bench: Bench) -> Path:
    return bench.folder / "out.jsonl"


def test_beginning_writes_the_file_before_anything_is_claimed_and_grows_with_the_job(bench: Bench) -> None:
    epochs = []
    for step in (begin, begin, move_epoch_on, move_epoch_on):
        assert step(bench.ledger, bench.job, bench.worker) in (True, None)
        seen = read_epoch(output(bench))
        assert seen is not None
        assert (seen.ledger, seen.job, seen.token) == (bench.ledger.ledger_id, "job", bench.worker.incarnation)
        assert (bench.job.epoch, bench.job.epoch_token) == (seen.epoch, seen.token)
        epochs.append(seen.epoch)
    let_go(bench.ledger, bench.job, bench.worker, active_s=1.0)
    assert bench.job.holder is None
    last = read_epoch(output(bench))
    assert last is not None
    assert [*epochs, last.epoch] == [1, 2, 3, 4, 5]


def test_holding_without_performing_moves_nothing_on(bench: Bench) -> None:
    assert try_to_hold(bench.ledger, bench.job, bench.worker, Observer(bench.ledger))
    assert move_epoch_on(bench.ledger, bench.job, bench.worker) is None
    let_go(bench.ledger, bench.job, bench.worker, active_s=0.0)
    assert bench.job.epoch == 0
    assert not begin(bench.ledger, bench.job, bench.worker)  # it is not held any more
    assert read_epoch(output(bench)) is None


def test_a_death_between_ledger_and_file_does_not_lock_the_user_out(bench: Bench) -> None:
    assert begin(bench.ledger, bench.job, bench.worker)
    with bench.ledger.write() as connection:  # and it dies before the file is written
        assert begin_epoch(connection, bench.job_id, worker_id=bench.worker.id, token="of the dead one") == 2
    refuse_copy(bench.ledger, bench.job)
    assert begin(bench.ledger, bench.job, bench.worker)
    assert read_epoch(output(bench)).epoch == 3  # type: ignore[union-attr]


@pytest.mark.parametrize("number", range(8))
def test_of_two_copies_that_begin_at_once_one_is_refused(number: int, bench: Bench) -> None:
    begin(bench.ledger, bench.job, bench.worker)
    copies = [copy(bench, name) for name in ("one", "other")]
    start = Barrier(2)

    def race(number: int) -> str:
        start.wait()
        try:
            return str(begin(*copies[number]))
        except LedgerCopied:
            return "refused"

    with ThreadPoolExecutor(2) as threads:
        assert sorted(threads.map(race, range(2))) == ["True", "refused"]


def test_a_copy_is_refused_where_it_would_hold_the_job_and_may_be_purged(bench: Bench) -> None:
    ledger, job, worker = copy(bench, "one")
    assert begin(bench.ledger, bench.job, bench.worker)
    for _ in range(2):
        with pytest.raises(LedgerCopied, match=r"is at 1, this ledger at 0\. Nothing was sent") as refused:
            try_to_hold(ledger, job, worker, Observer(ledger))
        assert f"rm {epoch_file(output(bench))}" in str(refused.value.hint)
    assert try_to_hold(ledger, job, worker, Observer(ledger), goes_on=False)


def test_two_copies_at_work_are_noticed_by_the_one_that_is_behind(bench: Bench) -> None:
    assert begin(bench.ledger, bench.job, bench.worker)
    other = copy(bench, "one")
    epoch_file(output(bench)).unlink()  # by somebody who was sure
    assert begin(*other)
    for _ in range(3):
        assert move_epoch_on(*other) is None
    copied = move_epoch_on(bench.ledger, bench.job, bench.worker)
    assert copied is not None
    assert read_epoch(output(bench)).token == other[2].incarnation  # type: ignore[union-attr]


def test_a_file_that_cannot_be_written_is_named_before_anything_is_sent(bench: Bench) -> None:
    epoch_file(output(bench)).symlink_to("/proc/version")
    with pytest.raises(LedgerFault, match=r"\.epoch"):
        begin(bench.ledger, bench.job, bench.worker)


def with_output(job: Job, output: Path) -> Job:
    return replace(job, spec={**job.spec, "output_file": str(output)})


def test_a_full_disk_is_named_as_one(bench: Bench, tmp_path: Path) -> None:
    with small_disk(tmp_path / "full", "8k") as disk:
        if disk is None:
            pytest.skip("mounting is not permitted here")
        (tmp_path / "full" / "filler").write_bytes(b"\0" * 8_192)
        with pytest.raises(LedgerFull, match=r"No space left on device\. Nothing was sent"):
            begin(bench.ledger, with_output(bench.job, tmp_path / "full" / "out.jsonl"), bench.worker)


def test_where_the_outputs_have_no_folder_the_ledger_alone_counts(bench: Bench, tmp_path: Path) -> None:
    elsewhere = with_output(bench.job, tmp_path / "gone" / "out.jsonl")
    assert begin(bench.ledger, elsewhere, bench.worker)
    assert move_epoch_on(bench.ledger, elsewhere, bench.worker) is None
    assert bench.job.epoch == 2
    assert not (tmp_path / "gone").exists()
    assert try_to_hold(bench.ledger, elsewhere, bench.worker, Observer(bench.ledger))
