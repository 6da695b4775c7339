"""A lane sends what is still its owner's when the turn has come, and marks it first: what went back is not sent."""

import asyncio
import os
import signal
from collections import Counter
from errno import ENOSPC
from pathlib import Path

import pytest

from batchrun.core.outcome import Break, Reply
from batchrun.core.rate import Limits
from batchrun.ledger.commit import GroupCommit
from batchrun.ledger.schema import split_key
from batchrun.ledger.send_marks import read_marks
from batchrun.ledger.settle import Settled, Settlement
from batchrun.runner.ends import EndKind
from batchrun.runner.means import Way
from batchrun.runner.session import Session
from tests.runner.bench import Bench, Endpoint, reply, until


def test_what_is_given_back_while_it_waits_for_its_permit_is_not_sent(tmp_path: Path) -> None:
    endpoint = Endpoint()
    bench = Bench(tmp_path, ways=[Way(endpoint, limits=Limits(rpm=1))])

    def claimed() -> int:
        with bench.ledger.read() as connection:
            found: int = connection.exec_driver_sql("SELECT count(*) FROM attempts").scalar_one()
        return found

    async def drain(session: Session) -> None:
        await until(lambda: len(endpoint.sent) == 1)
        while await asyncio.to_thread(claimed) < 2:  # another one waits for the next minute
            await asyncio.sleep(0.005)
        session.signal(signal.SIGTERM)

    bench.run(drain)
    assert len(endpoint.sent) == 1
    assert bench.counts == Counter(completed=1, pending=bench.count - 1)


def test_each_request_is_marked_before_it_leaves_and_until_its_outcome_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    missed: list[set[int]] = []

    async def answer(custom_id: str, nth: int) -> Reply | Break:
        begun = read_marks(bench.worker.folder, bench.worker.incarnation)
        assert begun is not None
        with bench.ledger.read() as connection:
            opened = connection.exec_driver_sql("SELECT key FROM attempts WHERE state = 'intent'").scalars().all()
        missed.append(set(opened) - begun)
        return reply()

    async def settle_late(commit: GroupCommit, one: Settlement) -> Settled:
        if split_key(one.key)[0] == 1:
            await until(lambda: len(missed) == 3)  # the others are sent while this outcome is still to be written
        return await settle(commit, one)

    settle = GroupCommit.settle
    monkeypatch.setattr(GroupCommit, "settle", settle_late)
    bench = Bench(tmp_path, count=3, concurrency=1, endpoint=Endpoint(answer))
    bench.run()
    assert bench.counts == Counter(completed=3)
    assert missed == [set()] * 3


def test_what_cannot_be_marked_is_not_sent_and_stops_the_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(tmp_path, count=3, endpoint=Endpoint())
    write = os.pwrite

    def full(fd: int, data: bytes, position: int) -> int:
        if fd == bench.worker.marks.fd:
            raise OSError(ENOSPC, "No space left on device")
        return write(fd, data, position)

    monkeypatch.setattr(os, "pwrite", full)
    end = bench.run()
    assert bench.endpoint.sent == []
    assert bench.counts == Counter(pending=3)
    assert end.kind is EndKind.TRIPPED
    assert end.trip is not None
    assert (end.trip.reason, end.trip.exit_code) == ("disk_full", 5)
    assert "takes no mark" in end.trip.message
