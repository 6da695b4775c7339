"""A purge forgets every prompt and answer, survives its own death, and leaves nothing that could be sent again."""

import itertools
import json
import os
import signal
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection

from batchrun.core.states import ItemState
from batchrun.ledger import purge as purging
from batchrun.runner import purge as runner
from tests.acceptance.endpoint import ScriptedEndpoint
from tests.cli.terminal import take_keys, terminal
from tests.lab import Lab, Run, assert_accounts_agree
from tests.process.limits import small_disk
from tests.process.steps import TASK, assert_never_locked, gated, until

ASKED, SAID = "thesecretprompt", "thesecretanswer"
COUNT = 60
SUBMIT = ("submit", "jobs/job.json", "--no-trial")
PURGE = ("purge", TASK, "-y")
DOUBTS, REFUSED = ("a00003", "a00007", "a00011"), ("a00005",)


def in_ledger(lab: Lab) -> dict[str, int]:
    """Count the texts that are left in each file of the ledger's folder."""
    files = [path for path in (lab.folder / ".batchrun").rglob("*") if path.is_file()]
    found = {path.name: sum(path.read_bytes().count(text.encode()) for text in (ASKED, SAID)) for path in files}
    return {name: count for name, count in found.items() if count}


def outputs(lab: Lab) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (lab.folder / "outputs").glob("[!.]*")}


@pytest.fixture
def lab(make_scripted: Callable[..., tuple[Lab, ScriptedEndpoint]]) -> Lab:
    """A job that has ended with answers, a refusal that quotes the prompt, and three doubts."""
    rules = [
        {
            "when": {"item": list(DOUBTS)},
            "replies": [{"answer": {"content": SAID}, "break_at": "head"}],
            "then": "again",
        },
        {
            "when": {"item": list(REFUSED)},
            "replies": [{"status": 400, "json": {"error": {"message": f"no: {ASKED}"}}}],
            "then": "again",
        },
    ]
    lab, _ = make_scripted(rules=rules, default={"answer": {"content": f"{SAID} " * 20}})
    lab.write_input(COUNT, text=f"{ASKED} " * 20)
    lab.write_spec(price={"input_per_1m_usd": 1, "output_per_1m_usd": 2})
    assert lab.run(*SUBMIT).wait() == 6
    assert in_ledger(lab)
    return lab


def test_a_purged_job_is_forgotten_accounted_for_and_never_sent_again(lab: Lab) -> None:
    before, written, arrivals = lab.standing(), outputs(lab), lab.arrivals()
    planned = lab.run(*PURGE, "--dry-run", "--json").json
    assert (planned["dry_run"], planned["jobs"][0]["requests"], planned["compaction"]) == (True, COUNT, None)
    assert in_ledger(lab)

    run = lab.run(*PURGE)
    assert run.wait() == 0, run.err
    assert f"purged: {COUNT} requests" in run.out
    assert "3 items can no longer be sent again" in run.out
    assert "outputs/out.jsonl, outputs/out.errors.jsonl: not touched" in run.out
    assert in_ledger(lab) == {}
    assert outputs(lab) == written

    for command, code, words in (
        (("status", TASK, "--exit-status"), 6, "purged    on 20"),
        (("ls",), 0, "contents purged"),
        (("failures", TASK), 0, "contents purged"),
        (("failures", TASK, "--items"), 0, "a00003"),
        (("show", TASK, "a00003", "--full"), 0, "were purged on 20"),
        (("resume", TASK), 6, "purged    on 20"),
        (SUBMIT, 6, "purged    on 20"),
        (("reconcile", TASK), 0, "--fail"),
    ):
        run = lab.run(*command)
        assert run.wait() == code, (command, run.err, run.out)
        assert words in run.out, (command, run.out)
    for command in (
        ("resume", TASK, "--on-unknown", "retry"),
        (*SUBMIT, "--on-unknown", "retry"),
        ("retry-failed", TASK, "--all", "-y"),
        ("retry-failed", TASK, "--all", "--dry-run"),
        ("reconcile", TASK, "--retry", "-y"),
        ("export", TASK),
        ("export", TASK, "-o", "outputs/other.csv"),
    ):
        run = lab.run(*command)
        assert run.wait() == 2, (command, run.err, run.out)
        assert "was purged on 20" in run.err
        assert "  try: " in run.err
    lab.write_input(COUNT + 1, text="another")
    for command in ((*SUBMIT, "--accept-changes"), ("resume", TASK, "--accept-changes")):
        run = lab.run(*command)
        assert run.wait() == 2, (command, run.err, run.out)
        assert "was purged on 20" in run.err

    assert lab.arrivals() == arrivals
    assert outputs(lab) == written
    after = assert_accounts_agree(lab)
    assert (after.counts, after.attempts) == (before.counts, before.attempts)
    assert in_ledger(lab) == {}
    assert_never_locked(lab)


def test_a_purge_asks_first_and_where_nobody_can_answer_it_deletes_nothing(lab: Lab) -> None:
    run = lab.run("purge", TASK)
    assert run.wait() == 2
    assert "would be purged" in run.err
    assert "3 items can then no longer be sent again" in run.err
    assert f"try: batchrun purge {TASK} -y" in run.err
    assert not lab.standing().job.is_purged
    for key, said, is_purged in ((b"\n", "nothing was deleted", False), (b"y\n", "written anew", True)):
        with terminal(lab, "purge", TASK, before=take_keys) as shown:
            text = shown.until(lambda text: "[y/N]" in text, "it asks")
            assert "can then no longer be sent again" in " ".join(text.split())
            shown.press(key)
            assert shown.wait() == 0, shown.screen.text
            assert said in shown.screen.text
        assert lab.standing().job.is_purged is is_purged
    assert lab.run("purge", TASK).wait() == 0  # nothing is left to delete, and to ask about


def test_a_doubt_of_a_purged_job_is_given_up_and_its_files_stay_as_they_are(lab: Lab) -> None:
    written = outputs(lab)
    assert lab.run(*PURGE).wait() == 0
    assert lab.run("reconcile", TASK, "--fail").wait() == 3
    standing = assert_accounts_agree(lab)
    assert (standing.counts[ItemState.IN_DOUBT], standing.counts[ItemState.FAILED]) == (0, 4)
    assert standing.attempts.possible_requests == 3, "what they may have cost stays"
    assert outputs(lab) == written


# -- a purge that dies ------------------------------------------------------------------------------------------------


def die_when_left(left: int, *, of: int) -> None:
    """Let a process delete one item at a time, and die when so many requests are left."""
    purging.BATCH_ITEMS = 1
    forget, batches = purging._forget, itertools.count()

    def dying(connection: Connection, span: Any) -> int:
        if next(batches) == of - left:
            die()
        return forget(connection, span)

    def die(*_: object, **__: object) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    purging._forget = dying
    if left == 0:
        runner.end_purge = die  # type: ignore[assignment]


def requests_left(lab: Lab) -> int:
    ledger = lab.ledger()
    try:
        with ledger.read() as connection:
            return int(connection.exec_driver_sql("SELECT count(*) FROM requests").scalar() or 0)
    finally:
        ledger.close()


@pytest.mark.parametrize("left", [290, 150, 20, 0])
def test_a_purge_that_is_killed_can_be_made_again(make_lab: Callable[..., Lab], left: int) -> None:
    lab = make_lab()
    lab.write_input(300, text=f"{ASKED} " * 20)
    lab.write_spec(concurrency=16)
    assert lab.run(*SUBMIT).wait() == 0
    written = outputs(lab)

    assert lab.run(*PURGE, before=partial(die_when_left, left, of=300)).wait() == -9
    assert requests_left(lab) == left

    status = lab.run("status", TASK, "--json").json
    assert status["purge_began_at"] is not None
    assert status["purged_at"] is None
    assert "begun on 20" in lab.run("status", TASK).out
    for command in (("export", TASK), ("retry-failed", TASK, "--all")):
        assert lab.run(*command).wait() == 2
    run = lab.run(*PURGE)
    assert run.wait() == 0, run.err
    assert in_ledger(lab) == {}
    assert outputs(lab) == written
    standing = assert_accounts_agree(lab)
    assert standing.counts[ItemState.COMPLETED] == 300
    assert standing.job.purged_at is not None
    assert_never_locked(lab)


def test_two_purges_at_once_forget_it_once(lab: Lab) -> None:
    runs = [lab.start(*PURGE) for _ in range(2)]
    codes = sorted(run.wait() for run in runs)
    assert set(codes) <= {0, 9}, [run.err for run in runs]  # 9: the other one holds the job, or the file
    assert lab.run(*PURGE).wait() == 0
    assert in_ledger(lab) == {}
    assert_accounts_agree(lab)


# -- others at work ---------------------------------------------------------------------------------------------------


def two_jobs(lab: Lab, **second: Any) -> Run:
    """Start a series of two jobs, and wait until the second one is under way."""
    for name in ("one", "two"):
        lab.write_input(20, name=f"{name}.jsonl", prefix=name, text=f"{ASKED} {name}")
        files = {"input_file": f"./inputs/{name}.jsonl", "output_file": f"./outputs/{name}.jsonl"}
        lab.write_spec(f"{name}.json", task_id=name, concurrency=2, **files)
    run = lab.start("submit", "jobs/one.json", "jobs/two.json", "--no-trial")
    lab.await_arrivals(22, run=run)
    return run


def test_a_purge_beside_a_running_job_forgets_and_says_that_traces_may_be_left(make_lab: Callable[..., Lab]) -> None:
    lab = make_lab(latency_ms=200)
    lab.write_input(20, name="other.jsonl", prefix="o", text="other")
    lab.write_spec("other.json", task_id="other", input_file="./inputs/other.jsonl", output_file="./outputs/o.jsonl")
    lab.write_input(30, text=f"{ASKED} " * 20)
    lab.write_spec(concurrency=16)
    assert lab.run(*SUBMIT).wait() == 0
    before = sum(in_ledger(lab).values())
    arrived = lab.arrivals()
    with gated(lab, admits=arrived + 1):
        other = lab.start("submit", "jobs/other.json", "--no-trial", "-c", "2")
        lab.await_arrivals(arrived + 1, run=other)
        run = lab.run(*PURGE)
    assert run.wait() == 9, run.err + run.out
    assert "another process has it open" in run.out
    assert sum(in_ledger(lab).values()) < before / 10
    assert lab.standing().job.purged_at is not None
    assert other.wait() == 0, other.err
    again = lab.run(*PURGE)
    assert again.wait() == 0, again.err
    assert in_ledger(lab) == {}
    assert lab.standing("other").counts[ItemState.COMPLETED] == 20
    assert_never_locked(lab)


# -- which jobs -------------------------------------------------------------------------------------------------------


def test_jobs_are_purged_by_their_age_and_listed(make_lab: Callable[..., Lab]) -> None:
    lab = make_lab()
    two_jobs(lab).wait()
    assert (
        lab.run("purge", "--older-than", "1h", "-y").out
        == "nothing to purge: no job ended before that, or those that did are purged\n"
    )
    assert lab.run("purge", "one", "--older-than", "1h").wait() == 2
    ended_at = lab.standing("two").job.ended_at or 0.0
    until(lambda: time.time() > ended_at + 0.2, "both jobs are two tenths of a second old")
    planned = lab.run("purge", "--older-than", "0.1s", "--dry-run", "--json").json
    assert [job["job_id"] for job in planned["jobs"]] == ["one", "two"]
    run = lab.run("purge", "--older-than", "0.1s", "--json", "-y")
    assert run.wait() == 0, run.err
    assert [(job["job_id"], job["requests"]) for job in run.json["jobs"]] == [("one", 20), ("two", 20)]
    assert (run.json["left"], run.json["compaction"]) == ([], "done")
    assert in_ledger(lab) == {}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "name a job, or an age"),
        (("--older-than", "soon"), "is no age"),
        (("--older-than", "-1d"), "is no age"),
        (("no-such-job",), "no job 'no-such-job'"),
    ],
)
def test_what_is_not_named_is_not_purged(lab: Lab, arguments: tuple[str, ...], words: str) -> None:
    run = lab.run("purge", *arguments, "-y")
    assert run.wait() == 2
    assert words in run.err
    assert not lab.standing().job.is_purged


# -- no space ---------------------------------------------------------------------------------------------------------


def test_a_purge_on_a_full_disk_is_made_again_when_there_is_room(make_lab: Callable[..., Lab]) -> None:
    lab = make_lab()
    lab.write_input(400, text=f"{ASKED} " * 60)
    lab.write_spec(concurrency=32)
    with small_disk(lab.folder / ".batchrun", "64m") as disk:
        if disk is None:
            pytest.skip("mounting is not permitted here")
        assert lab.run(*SUBMIT).wait() == 0
        filler = lab.folder / ".batchrun" / "filler"
        fill(filler, leave_bytes=600_000)
        run = lab.run(*PURGE)
        assert run.wait() in (1, 5), run.err + run.out
        assert any(words in run.err + run.out for words in ("no room", "cannot be written", "cannot hold")), (
            run.err + run.out
        )
        assert "Traceback" not in run.err
        filler.unlink()
        run = lab.run(*PURGE)
        assert run.wait() == 0, run.err
        assert in_ledger(lab) == {}
        assert lab.standing().counts[ItemState.COMPLETED] == 400
        lab.stop()


def fill(path: Path, *, leave_bytes: int) -> None:
    """Take nearly all the room of a disk."""
    import os

    room = os.statvfs(path.parent)
    with path.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, room.f_bavail * room.f_frsize - leave_bytes)


def test_the_json_of_a_purge_is_one_object(lab: Lab) -> None:
    run = lab.run(*PURGE, "--json")
    value = json.loads(run.out)
    (job,) = value["jobs"]
    assert (value["kind"], value["compaction"], job["requests"], job["in_doubt"]) == ("purge", "done", COUNT, 3)
    assert job["files_left"] == [str(lab.folder / "outputs" / name) for name in ("out.jsonl", "out.errors.jsonl")]
    assert value["after_bytes"] < value["before_bytes"]
    assert run.err.startswith("purging ")
