"""The limit on the cost over many workers: never exceeded, whatever the requests use, and little of it left unused."""

import random

import pytest

from batchrun.core.concurrency import Concurrency
from batchrun.core.outcome import Charge
from batchrun.core.states import AttemptState
from batchrun.ledger import jobs
from batchrun.ledger.claims import Claim
from batchrun.ledger.leases import Load, lease
from batchrun.ledger.ledger import Ledger
from tests.ledger.desk import NOT_SENT, SERVER_ERROR, WORST_PUSD, Came, Desk, came

CAP_PUSD = 60 * WORST_PUSD
WORKERS = 16


def used(pusd: int) -> Came:
    return came(AttemptState.ANSWERED, None, Charge.CERTAIN, cost_pusd=pusd, raw=b"{}")


@pytest.mark.parametrize("seed", range(5))
def test_sixteen_workers_never_pass_the_limit_and_leave_less_than_a_twentieth_of_it(ledger: Ledger, seed: int) -> None:
    dice = random.Random(seed)
    desk = Desk.open(ledger, 400, max_cost_pusd=CAP_PUSD)
    workers = [desk.worker, *(desk.hire() for _ in range(WORKERS - 1))]
    with ledger.write() as connection:
        jobs.share(connection, desk.job_id, is_shared=True)
        jobs.change_settings(connection, desk.job_id, now=desk.now, concurrency=Concurrency.of(64))
        for worker in [*workers, *workers]:
            lease(connection, desk.job_id, worker_id=worker, load=Load(4, 0))
    out: list[tuple[int, Claim]] = []
    waiting = list(range(400))
    while True:
        worker = dice.choice(workers)
        claimed = desk.claim(*waiting[: dice.randint(1, 6)], worker=worker) if len(out) < 64 else []
        taken = {one.item_id for one in claimed}
        waiting = [number for number in waiting if desk.item_ids[number] not in taken]
        out += [(worker, one) for one in claimed]
        assert money(desk) <= CAP_PUSD, seed
        if not out and not claimed and not desk.claim(*waiting[:1]):
            break
        for _ in range(dice.randint(0, len(out))):
            owner, one = out.pop(dice.randrange(len(out)))
            what = dice.choices([used(dice.randint(1, WORST_PUSD)), NOT_SENT, SERVER_ERROR], [8, 1, 1])[0]
            desk.settle(one, what, worker=owner)
            assert money(desk) <= CAP_PUSD, seed
    assert money(desk) > 0.95 * CAP_PUSD, seed


def money(desk: Desk) -> int:
    """Return what is spent and what is reserved."""
    with desk.ledger.read() as connection:
        job = jobs.read_job(connection, desk.job_id)
    return job.spent_pusd + job.reserved_pusd
