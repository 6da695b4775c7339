"""What dead workers leave: answers in spools are adopted wherever they are seen, and everything else is doubt."""

import json
import os
import time
from pathlib import Path

from batchrun.ledger.claims import claim
from batchrun.ledger.liveness import Observer, Worker, enter
from batchrun.ledger.settle import rescue
from batchrun.ledger.sweeps import bury
from batchrun.runner.evidence import describe
from batchrun.runner.means import Rules
from batchrun.runner.policy import make_policy
from batchrun.runner.sweep import Swept, sweep
from tests.runner.bench import Bench, Judge, reply


def _rules() -> Rules:
    return Rules(Judge(), None, make_policy(on_unknown="hold", retry_times=2, chance=lambda: 0.5))


def _dies_with_an_answer(bench: Bench) -> Worker:
    """Let the bench's worker claim two items, receive the answer to one, and die."""
    worker = bench.worker
    with bench.ledger.write() as connection:
        claims = claim(
            connection,
            job_id=bench.job_id,
            item_ids=[1, 2],
            worker_id=worker.id,
            endpoint="http://e/v1",
            now=time.time(),
        )
    answer = reply()
    assert worker.spool.append(claims[0].key, describe(answer, claims[0].path), answer.body)
    os.close(worker.lock_fd)  # the kernel would do it
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
        assert len(rescue(connection, job_id=bench.job_id, worker_id=dead.id, now=time.time())) == 2
        bury(connection, dead.id, now=time.time())
    assert bench.counts == {"in_doubt": 2, "pending": 1}
    assert _sweep(bench).adopted[bench.job_id] == 1
    assert bench.counts == {"completed": 1, "in_doubt": 1, "pending": 1}


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
