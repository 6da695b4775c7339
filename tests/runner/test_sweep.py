"""What dead workers leave: spooled answers are adopted, what was not begun is pending again, and the rest is doubt."""

import json
import os
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from batchrun.ledger.claims import Claim, claim
from batchrun.ledger.engines import sqlite_module
from batchrun.ledger.ledger import Ledger
from batchrun.ledger.liveness import Observer, Worker, enter, lock_path
from batchrun.ledger.rescue import rescue
from batchrun.ledger.sweeps import bury
from batchrun.runner.evidence import describe
from batchrun.runner.means import Rules
from batchrun.runner.policy import make_policy
from batchrun.runner.sweep import Swept, sweep
from tests.ledger.desk import let_lock_go
from tests.runner.bench import Bench, Judge, reply


def _rules() -> Rules:
    return Rules(Judge(), None, make_policy(on_unknown="hold", retry_times=2, chance=lambda: 0.5))


def _claims(bench: Bench) -> list[Claim]:
    """Let the bench's worker claim two items."""
    order = {"job_id": bench.job_id, "item_ids": [1, 2], "worker_id": bench.worker.id}
    with bench.ledger.write() as connection:
        return claim(connection, **order, endpoint="http://e/v1", now=time.time())


def _dies_with_an_answer(bench: Bench) -> Worker:
    """Let the bench's worker claim two items, send both, receive the answer to one, and die."""
    worker = bench.worker
    claims = _claims(bench)
    for one in claims:
        worker.marks.begin(one.key)
    answer = reply()
    assert worker.spool.append(claims[0].key, describe(answer, claims[0].path), answer.body)
    let_lock_go(worker)
    return worker


def _sweep(bench: Bench) -> Swept:
    me = enter(bench.ledger, name="sweeper", now=time.time())
    return sweep(bench.ledger, Observer(bench.ledger), except_worker=me.id, rules_of=lambda job: _rules())


def test_an_answer_in_the_spool_is_adopted_and_the_rest_becomes_doubt(tmp_path: Path) -> None:
    bench = Bench(tmp_path, count=3)
    dead = _dies_with_an_answer(bench)
    swept = _sweep(bench)
    assert (swept.adopted[bench.job_id], swept.in_doubt[bench.job_id]) == (1, 1)
    assert bench.counts == {"completed": 1, "in_doubt": 1, "pending": 1}
    assert not list((bench.ledger.folder / "workers").glob(f"{dead.incarnation}*"))
    assert not _sweep(bench).adopted


def test_an_answer_is_adopted_although_its_worker_was_buried_from_another_host(tmp_path: Path) -> None:
    bench = Bench(tmp_path, count=3)
    dead = _dies_with_an_answer(bench)
    with bench.ledger.write() as connection:  # by somebody who cannot see this folder
        assert len(rescue(connection, job_id=bench.job_id, worker_id=dead.id, now=time.time()).in_doubt) == 2
        bury(connection, dead.id, now=time.time())
    assert bench.counts == {"in_doubt": 2, "pending": 1}
    assert _sweep(bench).adopted[bench.job_id] == 1
    assert bench.counts == {"completed": 1, "in_doubt": 1, "pending": 1}


def _dies_with_one_request_begun(bench: Bench) -> Worker:
    """Let the bench's worker claim two items, begin the request of one, and die."""
    worker = bench.worker
    claims = _claims(bench)
    worker.marks.begin(claims[0].key)
    let_lock_go(worker)
    return worker


def test_what_a_dead_worker_of_this_host_had_not_begun_is_pending_again(tmp_path: Path) -> None:
    bench = Bench(tmp_path, count=3)
    dead = _dies_with_one_request_begun(bench)
    assert _sweep(bench).in_doubt[bench.job_id] == 1
    assert bench.counts == {"in_doubt": 1, "pending": 2}
    assert not list((bench.ledger.folder / "workers").glob(f"{dead.incarnation}*"))


def _after_a_power_failure(bench: Bench, dead: Worker) -> None:
    with bench.ledger.write() as connection:
        connection.exec_driver_sql("UPDATE workers SET boot_id = 'another run of this machine'")


def _on_a_machine_that_names_no_run(bench: Bench, dead: Worker) -> None:
    with bench.ledger.write() as connection:
        connection.exec_driver_sql("UPDATE workers SET boot_id = NULL")


def _without_marks(bench: Bench, dead: Worker) -> None:
    dead.marks.path.unlink()


def _with_short_marks(bench: Bench, dead: Worker) -> None:
    os.truncate(dead.marks.path, 100)


def _where_no_lock_can_be_seen(bench: Bench, dead: Worker) -> None:
    """Its files are not those of this host: it was judged by its heartbeat."""
    lock_path(dead.folder, dead.incarnation).unlink()


@pytest.mark.parametrize(
    "found",
    [
        _after_a_power_failure,
        _on_a_machine_that_names_no_run,
        _without_marks,
        _with_short_marks,
        _where_no_lock_can_be_seen,
    ],
    ids=lambda found: found.__name__.strip("_"),
)
def test_marks_that_prove_nothing_leave_everything_in_doubt(
    tmp_path: Path, found: Callable[[Bench, Worker], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = Bench(tmp_path, count=3)
    found(bench, _dies_with_one_request_begun(bench))
    monkeypatch.setattr(Observer, "is_dead", lambda *_: True)  # however that was found out
    assert _sweep(bench).in_doubt[bench.job_id] == 2
    assert bench.counts == {"in_doubt": 2, "pending": 1}


def test_whoever_holds_its_lock_may_still_begin_what_it_has_not_marked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = Bench(tmp_path, count=3)
    _claims(bench)
    monkeypatch.setattr(Observer, "is_dead", lambda *_: True)  # it is wrong
    assert _sweep(bench).in_doubt[bench.job_id] == 2


def test_a_copy_of_the_ledger_does_not_ask_the_marks_of_the_original(tmp_path: Path) -> None:
    """The original has gone on: a place there may have been used again for another attempt."""
    bench = Bench(tmp_path, count=3)
    _dies_with_one_request_begun(bench)
    folder = tmp_path / "copied"
    (folder / "workers").mkdir(parents=True)
    with closing(sqlite_module().connect(tmp_path / "ledger.db")) as original:
        original.execute("VACUUM INTO ?", [str(folder / "ledger.db")])
    copy = Ledger(str(folder / "ledger.db"), folder=folder)
    me = enter(copy, name="sweeper", now=time.time())
    swept = sweep(copy, Observer(copy), except_worker=me.id, rules_of=lambda job: _rules())
    assert swept.in_doubt[bench.job_id] == 2
    assert bench.counts == {"running": 2, "pending": 1}


def test_a_buried_worker_that_lives_keeps_its_files(tmp_path: Path) -> None:
    bench = Bench(tmp_path, count=3)
    with bench.ledger.write() as connection:
        bury(connection, bench.worker.id, now=time.time())
    _sweep(bench)
    assert list((bench.ledger.folder / "workers").glob(f"{bench.worker.incarnation}.spool.*"))


def test_what_the_spool_describes_can_be_judged_like_the_reply_itself(tmp_path: Path) -> None:
    from batchrun.runner.evidence import restore

    original = reply(429, {"error": {"message": "slow"}}, retry_after="3")
    about = json.loads(json.dumps(describe(original, "/v1/chat/completions")))
    restored, path = restore(about, original.body)
    judge = Judge()
    assert judge(restored, path) == judge(original, path)
