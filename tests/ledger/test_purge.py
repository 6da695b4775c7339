"""A purge takes the contents of a job that has ended, and leaves what says what happened and what it cost."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import func, select

from batchrun.core.states import ItemState, JobState
from batchrun.errors import IllegalMove
from batchrun.ledger import jobs as job_moves
from batchrun.ledger import purge as purging
from batchrun.ledger.changes import accept, stage
from batchrun.ledger.compaction import Compaction, compact
from batchrun.ledger.ledger import Ledger
from batchrun.ledger.purge import (
    Contents,
    begin_purge,
    ended_before,
    measure_contents,
    performers,
)
from batchrun.ledger.reports import causes, count_items, item_history, report_attempts, warnings
from batchrun.ledger.results import stream_results
from batchrun.ledger.schema import answers, attempts, incoming, items, jobs, requests
from batchrun.ledger.settle import Settled
from batchrun.ledger.sweeps import bury
from tests.ledger.desk import (
    ANSWERED,
    NOW,
    REFUSED,
    THROTTLED,
    UNKNOWN,
    UNKNOWN_BARE,
    UNUSABLE,
    Came,
    Desk,
    line,
    on_sqlite,
    snapshot,
)

MARK = "thesecretofthecustomer"
SPEC = {"task_id": "x", "system": MARK, "prompt_template": f"{MARK} {{{{ x }}}}", "params": {"top_k": 1}}


def saying(what: Came, *, raw: bool = True) -> Came:
    """Return evidence whose body and whose words quote the prompt."""
    words = None if what.evidence.message is None else f"no: {MARK}"
    body = f'{{"said": "{MARK} {MARK * 40}"}}'.encode() if raw else None
    return Came(replace(what.evidence, message=words, raw=body), what.cost_pusd)


def ended(ledger: Ledger, **settings: Any) -> Desk:
    """Return a job that has ended, with an item of each kind; every text of it holds the mark."""
    lines = [line(number, text=MARK) for number in range(6)]
    lines.append(line(6, is_rejected=True)._replace(note=f"not an object: {MARK}"))
    desk = Desk.open(ledger, lines, **settings)
    desk.set(spec=f'{{"task_id": "x", "system": "{MARK}"}}')
    desk.move("pause", reason="failures_in_a_row", message=f"the last: {MARK}")
    desk.move("resume")
    for number, what in enumerate((ANSWERED, REFUSED, UNKNOWN, UNUSABLE)):
        desk.settle(desk.claim_one(number), saying(what))
    desk.cancel()
    desk.end()
    assert desk.counts() == {"completed": 1, "failed": 2, "in_doubt": 1, "cancelled": 2, "rejected": 1}
    return desk


def account(desk: Desk) -> Any:
    """Return everything that must outlive a purge."""
    kept_of_items = [c for c in items.c if c.name not in ("message", "note", "request_digest")]
    kept_of_attempts = [c for c in attempts.c if c.name != "message"]
    kept_of_jobs = [c for c in jobs.c if c.name not in ("message", "spec", "purge_began_at", "purged_at")]
    with desk.ledger.read() as connection:
        rows = [
            connection.execute(select(*columns).order_by(columns[0])).all()
            for columns in (kept_of_items, kept_of_attempts, kept_of_jobs)
        ]
        return rows, count_items(connection, desk.job_id), report_attempts(connection, desk.job_id)


def contents(desk: Desk) -> list[Any]:
    """Return what a purge of the job would take, table by table."""
    mine, made = items.c.job_id == desk.job_id, attempts.c.job_id == desk.job_id
    of_items = select(items.c.id).where(mine)
    has_text = items.c.message.is_not(None) | items.c.note.is_not(None) | items.c.request_digest.is_not(None)
    with desk.ledger.read() as connection:
        return [
            list(map(tuple, connection.execute(query)))
            for query in (
                select(requests).where(requests.c.item_id.in_(of_items)),
                select(answers).where(answers.c.key.in_(select(attempts.c.key).where(made))),
                select(attempts.c.key, attempts.c.message).where(made, attempts.c.message.is_not(None)),
                select(items.c.id, items.c.message, items.c.note, items.c.request_digest).where(mine, has_text),
                select(incoming).where(incoming.c.job_id == desk.job_id),
            )
        ]


def texts_of(ledger: Ledger) -> str:
    """Return everything the ledger holds, as text."""
    return repr(snapshot(ledger, without=()))


def test_what_was_asked_and_answered_goes_and_what_it_came_to_stays(ledger: Ledger) -> None:
    desk = ended(ledger)
    before = account(desk)
    assert MARK in texts_of(ledger)
    there = measure_contents(ledger, desk.job_id)
    forgotten = desk.purge()
    assert forgotten == there
    assert (forgotten.requests, forgotten.answers) == (6, 4)
    assert forgotten.size_bytes > 4 * 40 * len(MARK)
    assert MARK not in texts_of(ledger)
    assert account(desk) == before
    assert desk.job.spec == {"task_id": "x", "system": None}
    assert (desk.job.purge_began_at, desk.job.purged_at) == (NOW, NOW)
    assert measure_contents(ledger, desk.job_id) == Contents()


def test_a_purged_job_can_still_be_looked_at(ledger: Ledger) -> None:
    desk = ended(ledger)
    desk.purge()
    with ledger.read() as connection:
        assert {(one.state, one.cause, one.sample_message) for one in causes(connection, desk.job_id)} == {
            (ItemState.FAILED, "bad_request", None),
            (ItemState.FAILED, "html", None),
            (ItemState.IN_DOUBT, "timeout", None),
            (ItemState.REJECTED, "rejected", None),
        }
        shown = item_history(connection, desk.job_id, "q-0")
        assert warnings(connection, desk.job_id) == {}
    assert shown is not None
    assert (shown["body"], [attempt["raw"] for attempt in shown["attempts"]]) == (None, [None])
    assert [row.raw for row in stream_results(ledger, desk.job_id)] == [None] * 7


def test_the_contents_of_other_jobs_stay(ledger: Ledger) -> None:
    desk = Desk.open(ledger, [line(0, text=MARK)])
    other = ended(ledger)
    stage(ledger, desk.job_id, [line(number, text=MARK) for number in range(3)])
    accept(ledger, desk.job_id, input_digest="n", params_digest="p", spec="{}", trial=(), now=NOW)
    with ledger.read() as connection:
        desk.item_ids = list(
            connection.execute(select(items.c.id).where(items.c.job_id == desk.job_id).order_by(items.c.id)).scalars()
        )
    assert desk.item_ids[0] < other.item_ids[0] < desk.item_ids[-1], "its items lie between the job's"
    for number in range(3):
        desk.settle(desk.claim_one(number), saying(ANSWERED))
    desk.end()
    stage(ledger, other.job_id, [line(9, text=MARK)])
    before = contents(other)
    assert desk.purge().requests == 3
    assert contents(other) == before
    assert contents(desk) == [[], [], [], [], []]
    other.purge()
    assert MARK not in texts_of(ledger)


@pytest.mark.parametrize(("batch_items", "batch_bytes"), [(1, 1), (2, 1), (3, 10**9), (2_000, 300)])
def test_batches_of_any_size_take_everything(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch, batch_items: int, batch_bytes: int
) -> None:
    monkeypatch.setattr(purging, "BATCH_ITEMS", batch_items)
    monkeypatch.setattr(purging, "BATCH_BYTES", batch_bytes)
    monkeypatch.setattr(purging, "BATCH_ROWS", batch_items)
    desk = ended(ledger)
    stage(ledger, desk.job_id, [line(number, text=MARK) for number in range(5)])
    there = measure_contents(ledger, desk.job_id)
    assert desk.purge() == there
    assert MARK not in texts_of(ledger)


def test_no_batch_holds_more_than_so_many_items_and_bytes(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(purging, "BATCH_ITEMS", 50)
    monkeypatch.setattr(purging, "BATCH_BYTES", 2_000)
    desk = Desk.open(ledger, [line(number, text="x" * (number % 7) * 150) for number in range(120)])
    spans = list(purging._spans(ledger, desk.job_id))
    assert [span.low for span, _ in spans[1:]] == [span.high for span, _ in spans[:-1]]
    assert (spans[0][0].low, spans[-1][0].high) == (desk.item_ids[0], desk.item_ids[-1] + 1)
    assert all(found.requests <= 50 and found.size_bytes <= 2_000 for _, found in spans)
    assert sum(found.requests for _, found in spans) == 120


def test_a_purge_that_was_cut_short_is_taken_up_again(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(purging, "BATCH_ITEMS", 2)
    desk = ended(ledger)
    before = account(desk)
    real, calls = purging._forget, []

    def dies(connection: Any, span: Any) -> int:
        calls.append(span)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return real(connection, span)

    monkeypatch.setattr(purging, "_forget", dies)
    with pytest.raises(KeyboardInterrupt):
        desk.purge()
    assert (desk.job.is_purged, desk.job.purged_at) == (True, None)
    assert not desk.move("reopen"), "half of its requests are gone"
    assert desk.consent(desk.shown("in_doubt")) == 0
    assert MARK in texts_of(ledger)
    monkeypatch.setattr(purging, "_forget", real)
    desk.now = NOW + 60
    desk.purge()
    assert (desk.job.purge_began_at, desk.job.purged_at) == (NOW, NOW + 60)
    assert MARK not in texts_of(ledger)
    assert account(desk) == before


# -- what a purge waits for --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("state", [JobState.VALIDATING, JobState.IN_PROGRESS, JobState.PAUSED, JobState.FINALIZING])
def test_a_job_that_has_not_ended_is_left_alone(desk: Desk, state: JobState) -> None:
    desk.settle(desk.claim_one(), ANSWERED)
    desk.force_job(state=state)
    before = snapshot(desk.ledger)
    with pytest.raises(IllegalMove, match="only what has ended can be purged"):
        desk.begin_purge()
    assert snapshot(desk.ledger) == before


def test_a_job_with_an_open_request_is_left_alone(desk: Desk) -> None:
    claimed = desk.claim_one()
    desk.force_job(state=JobState.COMPLETED)
    with pytest.raises(IllegalMove):
        desk.begin_purge()
    desk.force_job(state=JobState.IN_PROGRESS)
    desk.settle(claimed, ANSWERED)


def test_only_the_holder_purges(desk: Desk) -> None:
    desk.settle(desk.claim_one(), ANSWERED)
    desk.end()
    other = desk.hire()
    with desk.ledger.write() as connection, pytest.raises(IllegalMove):
        begin_purge(connection, desk.job_id, holder=other, now=NOW)


def test_whoever_made_requests_of_the_job_and_has_not_left_is_named(desk: Desk) -> None:
    bystander = desk.hire()
    desk.settle(desk.claim_one(), ANSWERED)
    with desk.ledger.read() as connection:
        assert [one.id for one in performers(connection, desk.job_id, except_worker=0)] == [desk.worker]
        assert performers(connection, desk.job_id, except_worker=desk.worker) == []
    assert bystander != desk.worker
    with desk.ledger.write() as connection:
        bury(connection, desk.worker, now=NOW)
        assert performers(connection, desk.job_id, except_worker=0) == []


def test_jobs_that_ended_long_ago_are_found_the_oldest_first(ledger: Ledger) -> None:
    old, older, young, running = (Desk.open(ledger) for _ in range(4))
    for one, at in ((old, NOW - 100), (older, NOW - 200), (young, NOW - 10)):
        one.settle(one.claim_one(), ANSWERED)
        one.now = at
        one.end()
    with ledger.read() as connection:
        assert [job_id for job_id, _ in ended_before(connection, NOW - 50)] == [older.job_id, old.job_id]
    older.purge()
    with ledger.read() as connection:
        assert [job_id for job_id, _ in ended_before(connection, NOW)] == [old.job_id, young.job_id]
    assert running.job.state is JobState.IN_PROGRESS


# -- what a purged job can no longer do --------------------------------------------------------------------------------


def test_nothing_of_a_purged_job_is_sent_again(ledger: Ledger) -> None:
    desk = ended(ledger)
    shown = desk.shown("in_doubt") + desk.shown("failed")
    desk.purge()
    desk.set(on_unknown="retry")
    assert desk.consent(shown) == 0
    assert desk.retry_by_policy() == (0, 0)
    assert desk.reopen_cancelled() == 0
    assert not desk.move("reopen")
    assert not desk.move("rewrite")
    with ledger.write() as connection:
        job_moves.write_anew(connection, desk.job_id, now=NOW)
    assert desk.job.state is JobState.CANCELLED
    assert desk.claim() == []


def test_a_doubt_of_a_purged_job_can_be_given_up(ledger: Ledger) -> None:
    desk = ended(ledger)
    money = desk.money
    desk.purge()
    assert desk.give_up(desk.shown("in_doubt")) == 1
    assert desk.counts() == {"completed": 1, "failed": 3, "cancelled": 2, "rejected": 1}
    assert desk.money == money, "what it may have cost stays possible"


def test_a_purged_job_takes_no_other_input(ledger: Ledger) -> None:
    desk = ended(ledger)
    desk.purge()
    stage(ledger, desk.job_id, [line(number) for number in range(3)])
    with pytest.raises(IllegalMove, match="purged"):
        accept(ledger, desk.job_id, input_digest="n", params_digest="p", spec="{}", trial=(), now=NOW)
    assert desk.counts()["cancelled"] == 2


@pytest.mark.parametrize(
    ("what", "settled", "state"),
    [
        (ANSWERED, Settled.ADOPTED, "completed"),
        (REFUSED, Settled.CORRECTED, "failed"),
        (UNUSABLE, Settled.CORRECTED, "failed"),
        (THROTTLED, Settled.CORRECTED, "failed"),
    ],
)
def test_late_evidence_is_counted_and_its_words_are_not_kept(
    ledger: Ledger, what: Came, settled: Settled, state: str
) -> None:
    desk = Desk.open(ledger, 1)
    claimed = desk.claim_one()
    desk.settle(claimed, UNKNOWN_BARE)
    desk.end()
    desk.purge()
    assert desk.adopt(claimed.key, saying(what)) is settled
    assert desk.state() == state
    assert desk.outcomes() == [what.outcome]
    assert desk.attempts()[0]["charge"] == what.evidence.charge
    assert MARK not in texts_of(ledger)
    with ledger.read() as connection:
        assert connection.execute(select(func.count()).select_from(answers)).scalar() == 0
    assert desk.job.state is JobState.COMPLETED, "its outputs are not written anew"


def test_a_registration_that_failed_and_was_purged_can_be_made_anew(ledger: Ledger) -> None:
    desk = Desk.open(ledger, 1)
    desk.force_job(state=JobState.FAILED)
    desk.purge()
    with ledger.write() as connection:
        job_moves.restart_registration(connection, desk.job_id, total=1, input_digest="i", params_digest="p")
    assert (desk.job.state, desk.job.is_purged, desk.job.purged_at) == (JobState.VALIDATING, False, None)


# -- what is left in the file ------------------------------------------------------------------------------------------


def _fill(ledger: Ledger, name: str, *, count: int, text: str) -> Desk:
    """Run a job whose answers come in any order, so that pages of the file are split and filled again."""
    desk = Desk.open(ledger, [line(number, text=f"{text}-{number}-" * (1 + number % 40)) for number in range(count)])
    desk.force_job(task_id=name)
    numbers = sorted(range(count), key=lambda number: (number * 7919) % count)
    for start in range(0, count, 40):
        for claimed in desk.claim(*numbers[start : start + 40]):
            number = desk.item_ids.index(claimed.item_id)
            what = ANSWERED if number % 5 else REFUSED
            words = f"{text}-{number}-" * (1 + number % 60)
            evidence = replace(what.evidence, raw=words.encode(), message=words[:300] if what is REFUSED else None)
            desk.settle(claimed, Came(evidence, what.cost_pusd))
    desk.end()
    return desk


def _in_files(folder: Path, text: str) -> dict[str, int]:
    found = {path.name: path.read_bytes().count(text.encode()) for path in folder.rglob("*") if path.is_file()}
    return {name: count for name, count in found.items() if count}


@on_sqlite
@pytest.mark.slow
def test_no_byte_of_a_purged_job_is_left_in_the_ledgers_folder(address: str, tmp_path: Path) -> None:
    ledger = Ledger(address, folder=tmp_path)
    folder = ledger.folder
    secret, other = _fill(ledger, "secret", count=600, text=MARK), _fill(ledger, "other", count=600, text="othertext")
    assert _in_files(folder, MARK)
    size = sum(path.stat().st_size for path in folder.iterdir())
    secret.purge()
    assert compact(ledger) is Compaction.DONE
    assert _in_files(folder, MARK) == {}
    assert _in_files(folder, "othertext")
    assert sum(path.stat().st_size for path in folder.iterdir()) < 0.7 * size
    assert other.counts() == {"completed": 480, "failed": 120}
    with ledger.read() as connection:
        assert connection.exec_driver_sql("PRAGMA integrity_check").scalar() == "ok"
        assert connection.exec_driver_sql("PRAGMA foreign_key_check").all() == []
        assert connection.exec_driver_sql("PRAGMA journal_mode").scalar() in ("wal", "truncate")
    ledger.close()
    assert _in_files(folder, MARK) == {}


HOLD = """
import sys
from batchrun.ledger.ledger import Ledger
ledger = Ledger(sys.argv[1], folder=None)
with ledger.read() as connection:
    connection.exec_driver_sql("SELECT count(*) FROM items").all()
print("open", flush=True)
sys.stdin.read()
"""


@on_sqlite
def test_a_ledger_that_others_have_open_is_overwritten_and_its_log_emptied(address: str, tmp_path: Path) -> None:
    """It is not written anew under their feet: they could lose what they write meanwhile."""
    ledger = Ledger(address, folder=tmp_path)
    desk = _fill(ledger, "secret", count=80, text=MARK)
    other = subprocess.Popen(
        [sys.executable, "-c", HOLD, address], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert other.stdin is not None
    assert other.stdout is not None
    try:
        assert other.stdout.readline() == "open\n"
        before = sum(_in_files(ledger.folder, MARK).values())
        desk.purge()
        assert compact(ledger, patience_s=0.1) is Compaction.BUSY
        left = _in_files(ledger.folder, MARK)
        assert "ledger.db-wal" not in left
        assert sum(left.values()) < before / 20
    finally:
        other.communicate("")
    assert compact(ledger) is Compaction.DONE
    assert _in_files(ledger.folder, MARK) == {}
    ledger.close()


@on_sqlite
def test_a_ledger_that_this_process_has_open_twice_is_not_written_anew(address: str, tmp_path: Path) -> None:
    """Two SQLites in one process do not see each other's locks."""
    ledger, second = Ledger(address, folder=tmp_path), Ledger(address, folder=tmp_path)
    with second.write() as connection:
        connection.exec_driver_sql("UPDATE ledgers SET created_at = 1")
        assert compact(ledger, patience_s=0.1) is Compaction.BUSY
    second.close()
    assert compact(ledger) is Compaction.DONE
    ledger.close()


def test_postgres_has_no_file_of_ours(ledger: Ledger) -> None:
    if not ledger.is_sqlite:
        assert compact(ledger) is Compaction.NOT_NEEDED
        assert ledger.attempt_id(1)
