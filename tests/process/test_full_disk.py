"""No space, no folder, no permission, no file descriptors: it stops in words, and nothing that was paid is lost."""

import shutil
from collections.abc import Callable
from functools import partial

import pytest

from batchrun.core.states import ItemState, JobState
from tests.acceptance.endpoint import ScriptedEndpoint
from tests.lab import Lab, Run, assert_accounts_agree, assert_outputs_whole
from tests.process.limits import failing_spool, few_files, obey_permissions, small_disk, small_files
from tests.process.steps import TASK, assert_sent_once, assert_settled, ids

COUNT, CONCURRENCY = 40, 4
SUBMIT = ("submit", "jobs/job.json", "--no-trial")
RESUME = ("resume", TASK)
LARGE = {"letters": ["0123456789", 1_500]}  # an answer of 15 kB
Scripted = Callable[..., tuple[Lab, ScriptedEndpoint]]


@pytest.fixture
def lab(make_scripted: Scripted) -> Lab:
    lab, _ = make_scripted(default={**LARGE, "delay_s": 0.02})
    lab.write_input(COUNT)
    lab.write_spec(concurrency=CONCURRENCY)
    return lab


def _stopped(lab: Lab, run: Run, *words: str) -> None:
    assert run.wait() == 5, run.err + run.out
    for one in words:
        assert one in run.err + run.out, run.err + run.out
    assert "batchrun resume" in run.err + run.out
    assert "Traceback" not in run.err
    assert_accounts_agree(lab, is_over=False)


def _finished(lab: Lab, *, doubts_at_most: int = 0) -> None:
    run = lab.run(*RESUME)
    assert run.wait() in (0, 6), run.err + run.out
    assert_settled(lab, count=COUNT, doubts_at_most=doubts_at_most, concurrency=CONCURRENCY)
    assert_sent_once(lab)
    assert_outputs_whole(lab, ids(COUNT))
    assert not list((lab.folder / "outputs").glob(".*.tmp-*"))


def test_an_output_that_does_not_fit_on_its_disk_is_written_when_there_is_room(lab: Lab) -> None:
    with small_disk(lab.folder / "outputs", "200k") as disk:
        if disk is None:
            pytest.skip("mounting is not permitted here; the next test does it with ulimit -f")
        run = lab.run(*SUBMIT)
        _stopped(lab, run, "No space left on device", "outputs/out.jsonl")
        assert lab.standing().job.state is JobState.FINALIZING
        assert lab.run("status", TASK, "--exit-status").wait() == 8
        assert not (lab.folder / "outputs" / "out.jsonl").exists()
        _stopped(lab, lab.run(*RESUME), "No space left on device")
        disk.resize("4m")
        _finished(lab)
        lab.stop()


def test_files_that_may_not_grow_stop_the_job_and_lose_nothing(lab: Lab) -> None:
    run = lab.run(*SUBMIT, before=partial(small_files, 300_000))
    _stopped(lab, run, "cannot be written")
    assert lab.standing().counts[ItemState.COMPLETED] < COUNT
    _finished(lab)


def test_a_ledger_that_is_full_stops_the_job_and_loses_nothing(lab: Lab) -> None:
    with small_disk(lab.folder / ".batchrun", "1200k") as disk:
        if disk is None:
            pytest.skip("mounting is not permitted here; the test before does it with ulimit -f")
        run = lab.run(*SUBMIT)
        _stopped(lab, run, "cannot be written", "full")
        assert 0 < lab.arrivals() < COUNT
        disk.resize("16m")
        _finished(lab)
        lab.stop()


def test_a_folder_that_is_removed_while_the_job_runs_is_missed_at_the_end_and_not_before(lab: Lab) -> None:
    run = lab.start(*SUBMIT)
    lab.await_arrivals(12, run=run)
    shutil.rmtree(lab.folder / "outputs")
    _stopped(lab, run, "No such file or directory", "outputs/out.jsonl")
    assert lab.arrivals() == COUNT
    (lab.folder / "outputs").mkdir()
    _finished(lab)


def test_a_ledger_in_a_folder_that_cannot_be_written_to_is_named_before_anything_is_sent(lab: Lab) -> None:
    folder = lab.folder / ".batchrun"
    folder.mkdir(mode=0o500)
    try:
        run = lab.run(*SUBMIT, before=obey_permissions)
        assert run.wait() in (1, 5), run.err
        assert ".batchrun" in run.err
        assert "unexpected" not in run.err
        assert lab.arrivals() == 0
    finally:
        folder.chmod(0o700)
    _finished_from_scratch(lab)


def _finished_from_scratch(lab: Lab) -> None:
    assert lab.run(*SUBMIT).wait() == 0
    assert_settled(lab, count=COUNT, concurrency=CONCURRENCY)
    assert_outputs_whole(lab, ids(COUNT))


def test_a_ledger_that_cannot_be_written_to_any_more_is_named_and_loses_nothing(lab: Lab) -> None:
    assert lab.run(*SUBMIT).wait() == 0
    before = (lab.folder / "outputs" / "out.jsonl").read_bytes()
    folder = lab.folder / ".batchrun"
    shutil.rmtree(folder / "workers")
    paths = [folder / "ledger.db", folder]
    modes = [path.stat().st_mode & 0o777 for path in paths]
    for path in paths:
        path.chmod(path.stat().st_mode & 0o555)
    try:
        for command in (RESUME, ("retry-failed", TASK, "--all"), SUBMIT):
            run = lab.run(*command, before=obey_permissions)
            assert run.process.exitcode in (1, 5), run.err
            assert "ledger.db" in run.err
            assert "unexpected" not in run.err, run.err
        assert lab.arrivals() == COUNT
    finally:
        for path, mode in zip(paths, modes, strict=True):
            path.chmod(mode)
    assert lab.run(*RESUME).wait() == 0
    assert (lab.folder / "outputs" / "out.jsonl").read_bytes() == before


@pytest.mark.parametrize("good_frames", [0, 5])
def test_a_spool_whose_disk_fails_costs_no_answer_that_the_ledger_can_take(lab: Lab, good_frames: int) -> None:
    run = lab.run(*SUBMIT, before=partial(failing_spool, good_frames))
    assert run.wait() == 0, run.err
    assert "Traceback" not in run.err
    assert_settled(lab, count=COUNT, concurrency=CONCURRENCY)
    assert_sent_once(lab)
    assert_outputs_whole(lab, ids(COUNT))


def test_few_file_descriptors_make_a_job_slower_and_no_worse(make_lab: Callable[..., Lab]) -> None:
    lab = make_lab(latency_ms=100)
    lab.write_input(200)
    lab.write_spec(concurrency=100)
    run = lab.run(*SUBMIT, before=partial(few_files, 64))
    if run.wait() == 5:
        assert "open files" in run.err + run.out, run.err + run.out
        assert lab.run(*RESUME, "-c", "16").wait() == 0
    assert_settled(lab, count=200, concurrency=100)
    assert_sent_once(lab)
    assert_outputs_whole(lab, ids(200))
