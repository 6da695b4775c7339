"""A shared job's concurrency is lent to its workers: never more than there is, and a dead one's part comes back."""

import random

import pytest
from sqlalchemy import select

from batchrun.core.concurrency import Concurrency
from batchrun.ledger import jobs
from batchrun.ledger.leases import Load, give_back, lease, total_load
from batchrun.ledger.ledger import Ledger
from batchrun.ledger.schema import leases
from batchrun.ledger.sweeps import bury
from tests.ledger.desk import NOW, Desk


@pytest.fixture
def desk(ledger: Ledger) -> Desk:
    """A shared job of concurrency 6."""
    desk = Desk.open(ledger, 12)
    with ledger.write() as connection:
        jobs.share(connection, desk.job_id, is_shared=True)
        jobs.change_settings(connection, desk.job_id, now=NOW, concurrency=Concurrency.of(6))
    return desk


def renew(desk: Desk, worker: int, wants: int = 64, in_flight: int = 0, keeps: int = 0) -> int:
    with desk.ledger.write() as connection:
        return lease(connection, desk.job_id, worker_id=worker, load=Load(wants, in_flight, 1.0, 2.0, keeps))


def lent(desk: Desk) -> int:
    with desk.ledger.read() as connection:
        return total_load(connection, desk.job_id).wants


def test_a_worker_alone_has_everything_and_shares_when_another_comes(desk: Desk) -> None:
    other = desk.hire()
    assert renew(desk, desk.worker) == 6
    assert renew(desk, other) == 0, "nothing is free yet"
    assert renew(desk, desk.worker, in_flight=5) == 3, "it starts nothing until it is below its share"
    assert renew(desk, other) == 1, "what is in flight with the first is still its own"
    assert renew(desk, desk.worker, in_flight=3) == 3
    assert renew(desk, other) == 3


def test_a_smaller_share_is_given_up_only_after_it_was_heard_of(desk: Desk) -> None:
    other = desk.hire()
    assert renew(desk, desk.worker) == 6
    renew(desk, other)
    assert renew(desk, desk.worker, keeps=6) == 3, "it hears of its share, and may still be starting up to six"
    assert renew(desk, other) == 0
    assert renew(desk, desk.worker, keeps=3) == 3
    assert renew(desk, other) == 3


def test_a_worker_that_was_declared_dead_gets_no_lease_and_leaves_none(desk: Desk) -> None:
    other = desk.hire()
    with desk.ledger.write() as connection:
        bury(connection, desk.worker, now=NOW)
    assert renew(desk, desk.worker) == 0
    assert lent(desk) == 0
    assert renew(desk, other) == 6


def test_what_one_cannot_use_is_the_others(desk: Desk) -> None:
    other = desk.hire()
    assert renew(desk, desk.worker, wants=1) == 1
    assert renew(desk, other) == 5


def test_a_lease_given_back_or_a_dead_workers_is_free(desk: Desk) -> None:
    second, third = desk.hire(), desk.hire()
    assert renew(desk, desk.worker) == 6
    with desk.ledger.write() as connection:
        give_back(connection, desk.job_id, worker_id=desk.worker)
    assert renew(desk, second) == 6
    assert renew(desk, third) == 0
    with desk.ledger.write() as connection:
        bury(connection, second, now=NOW)
    assert renew(desk, third) == 6


def test_a_lowered_concurrency_is_kept_from_the_next_renewal_on(desk: Desk) -> None:
    assert renew(desk, desk.worker, in_flight=6) == 6
    with desk.ledger.write() as connection:
        jobs.change_settings(connection, desk.job_id, now=NOW, concurrency=Concurrency.of(2))
    assert renew(desk, desk.worker, in_flight=6) == 2
    assert lent(desk) == 6, "in flight still"
    assert renew(desk, desk.worker, in_flight=1) == 2
    assert lent(desk) == 2


def test_only_a_worker_with_a_lease_claims_of_a_shared_job(desk: Desk) -> None:
    other = desk.hire()
    assert desk.claim(0, worker=other) == []
    renew(desk, desk.worker)
    renew(desk, other)
    assert desk.claim(0, worker=other) == [], "a lease of no slots"
    assert len(desk.claim(0)) == 1
    renew(desk, desk.worker)
    renew(desk, other)
    with desk.ledger.write() as connection:
        assert jobs.take(connection, desk.job_id, worker_id=desk.worker, instead_of=None, now=NOW)
    assert len(desk.claim(1, worker=other)) == 1, "its holder does the chores, and anybody works"
    with desk.ledger.write() as connection:
        jobs.share(connection, desk.job_id, is_shared=False)
    assert desk.claim(2, worker=other) == []
    assert len(desk.claim(2)) == 1


@pytest.mark.parametrize("seed", range(5))
def test_however_workers_come_and_go_never_more_is_lent_than_there_is(desk: Desk, seed: int) -> None:
    dice = random.Random(seed)
    workers = [desk.worker, *(desk.hire() for _ in range(4))]
    held = dict.fromkeys(workers, 0)
    for _ in range(60):
        worker = dice.choice(workers)
        if dice.random() < 0.2:
            with desk.ledger.write() as connection:
                give_back(connection, desk.job_id, worker_id=worker)
            held[worker] = 0
        else:
            in_flight = dice.randint(0, held[worker])
            renewed = renew(desk, worker, wants=dice.randint(0, 9), in_flight=in_flight, keeps=held[worker])
            held[worker] = max(renewed, in_flight)
        with desk.ledger.read() as connection:
            rows = connection.execute(select(leases).where(leases.c.job_id == desk.job_id))
            slots = {row.worker_id: row.slots for row in rows}
        assert sum(slots.values()) <= 6, seed
        assert all(held[worker] <= slots.get(worker, 0) for worker in workers), seed
