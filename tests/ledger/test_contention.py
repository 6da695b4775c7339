"""Several processes at one ledger: no update is lost, nothing is claimed twice, and nobody waits for ever."""

import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select, update

from batchrun.core.states import ItemState
from batchrun.ledger import jobs
from batchrun.ledger.claims import claim, release
from batchrun.ledger.consents import consent, give_up, stopped_items
from batchrun.ledger.ledger import Ledger
from batchrun.ledger.schema import ledgers
from batchrun.ledger.settle import settle, settle_answers
from tests.ledger.desk import (
    ANSWERED,
    ENDPOINT,
    NOW,
    REFUSED,
    SERVER_ERROR,
    UNKNOWN,
    WORST_PUSD,
    Desk,
    forks,
    on_postgres,
    policy,
)

pytestmark = pytest.mark.process
INCREMENTS = 150


def run_together(count: int, target: Callable[..., Any], *arguments: Any) -> list[Any]:
    """Run `target(number, start, *arguments)` in processes of their own; return what each came to, in order."""
    start, said = forks.Barrier(count), forks.Queue()
    children = [
        forks.Process(target=_answer, args=(said, target, number, start, *arguments)) for number in range(count)
    ]
    for child in children:
        child.start()
    try:
        words = dict(said.get(timeout=50) for _ in children)
    finally:
        for child in children:
            child.join(1)
            child.kill()
    return [words[number] for number in range(count)]


def _answer(said: Any, target: Callable[..., Any], number: int, start: Any, *arguments: Any) -> None:
    try:
        said.put((number, target(number, start, *arguments)))
    except BaseException as error:
        said.put((number, f"{type(error).__name__}: {error}"))


def _increment(_number: int, start: Any, address: str) -> str:
    ledger = Ledger(address, folder=Path("unused"))
    start.wait(20)
    for _ in range(INCREMENTS):
        with ledger.write() as connection:
            query = select(ledgers.c.next_item_id).with_for_update()
            seen = connection.execute(query).scalar_one()
            connection.execute(update(ledgers).values(next_item_id=seen + 1))
    ledger.close()
    return "done"


def test_no_increment_of_three_processes_is_lost(own_ledger: Ledger) -> None:
    address = own_ledger.url.render_as_string(hide_password=False)
    with own_ledger.read() as connection:
        before = connection.execute(select(ledgers.c.next_item_id)).scalar_one()
    assert run_together(3, _increment, address) == ["done"] * 3
    with own_ledger.read() as connection:
        assert connection.execute(select(ledgers.c.next_item_id)).scalar_one() == before + 3 * INCREMENTS


def _claim_all(
    number: int, start: Any, address: str, job_id: int, item_ids: list[int], workers: list[int]
) -> list[int]:
    ledger = Ledger(address, folder=Path("unused"))
    order = list(item_ids)
    random.Random(number).shuffle(order)
    mine = []
    start.wait(20)
    for begin in range(0, len(order), 10):
        with ledger.write() as connection:
            ids = order[begin : begin + 10]
            found = claim(
                connection, job_id=job_id, item_ids=ids, worker_id=workers[number], endpoint=ENDPOINT, now=NOW
            )
        mine += [one.item_id for one in found]
    ledger.close()
    return mine


@pytest.mark.parametrize("limit", [None, 100], ids=["without a limit", "with money for half of them"])
def test_eight_processes_that_claim_the_same_items_claim_each_once(own_ledger: Ledger, limit: int | None) -> None:
    desk = Desk.open(own_ledger, 200, max_cost_pusd=None if limit is None else limit * WORST_PUSD)
    workers = [desk.hire() for _ in range(8)]
    address = own_ledger.url.render_as_string(hide_password=False)
    found = run_together(8, _claim_all, address, desk.job_id, desk.item_ids, workers)
    assert all(isinstance(one, list) for one in found), found
    times = Counter(item_id for one in found for item_id in one)
    assert set(times.values()) == {1}
    assert len(times) == (limit or 200)
    assert desk.money == (0, (limit or 200) * WORST_PUSD)


def _do_everything(number: int, start: Any, address: str, job_id: int, item_ids: list[int], workers: list[int]) -> Any:
    """Claim, settle, release, rescue, learn late, consent and give up, at random, against seven others."""
    ledger, dice, worker = Ledger(address, folder=Path("unused")), random.Random(number), workers[number]
    desk = Desk(ledger, job_id, item_ids, worker, policy("hold"))
    start.wait(20)
    for _ in range(12):
        ids = dice.sample(item_ids, 8)
        with ledger.write() as connection:
            mine = claim(connection, job_id=job_id, item_ids=ids, worker_id=worker, endpoint=ENDPOINT, now=desk.now)
        dice.shuffle(mine)
        group = [desk.settlement(one, ANSWERED) for one in mine[:2]]
        with ledger.write() as connection:
            if not settle_answers(connection, group):
                connection.rollback()
        with ledger.write() as connection:  # many items in one transaction, in any order
            for one, what in zip(mine[2:6], (UNKNOWN, REFUSED, SERVER_ERROR, UNKNOWN), strict=False):
                settle(connection, desk.settlement(one, what))
            release(connection, claims=mine[6:], worker_id=worker, now=desk.now)
        with ledger.write() as connection:
            shown = stopped_items(connection, job_id, state=dice.choice([ItemState.IN_DOUBT, ItemState.FAILED]))
            dice.shuffle(shown)
            (consent if dice.random() < 0.8 else give_up)(connection, job_id, shown[:4], now=desk.now)
        desk.rescue(dice.choice(workers))
        with ledger.write() as connection:
            for one in dice.sample(mine, min(3, len(mine))):
                settle(connection, desk.settlement(one, dice.choice([ANSWERED, REFUSED])))
        desk.now += 60
    ledger.close()
    return "done"


def test_eight_processes_that_do_everything_at_once_neither_block_nor_spoil_the_books(own_ledger: Ledger) -> None:
    """Wrong rescues included: whoever was taken for dead goes on settling. The fixture looks at the books."""
    desk = Desk.open(own_ledger, 60)
    workers = [desk.hire() for _ in range(8)]
    address = own_ledger.url.render_as_string(hide_password=False)
    done = run_together(8, _do_everything, address, desk.job_id, desk.item_ids, workers)
    assert done == ["done"] * 8
    assert sum(desk.counts().values()) == 60


def _cancel_amid_the_work(
    number: int, start: Any, address: str, job_id: int, item_ids: list[int], workers: list[int]
) -> str:
    ledger = Ledger(address, folder=Path("unused"))
    desk = Desk(ledger, job_id, item_ids, workers[number], policy("retry"))
    start.wait(20)
    if number == 0:
        with ledger.write() as connection:
            jobs.cancel_job(connection, job_id, now=NOW)
    else:
        for one in desk.claim(*range(number * 10, number * 10 + 10)):
            desk.settle(one, SERVER_ERROR)
    ledger.close()
    return "done"


def test_nothing_goes_back_to_pending_behind_the_back_of_a_cancel(own_ledger: Ledger) -> None:
    """Every move is before the cancel, and then cancelled by it, or after it, and then knows of it."""
    for _ in range(3):
        desk = Desk.open(own_ledger, 40)
        address = own_ledger.url.render_as_string(hide_password=False)
        workers = [desk.hire() for _ in range(4)]
        done = run_together(4, _cancel_amid_the_work, address, desk.job_id, desk.item_ids, workers)
        assert done == ["done"] * 4
        assert desk.counts() == {"cancelled": 40}


@on_postgres
def test_a_job_is_not_finished_behind_the_back_of_a_consent(own_ledger: Ledger) -> None:
    """The guard looks at the items: it must see what was committed while it waited for the job's row."""
    desk = Desk.open(own_ledger)
    desk.settle(desk.claim_one(), UNKNOWN)
    shown = desk.shown("in_doubt")
    others = forks.Pipe()
    with own_ledger.write() as connection:
        assert consent(connection, desk.job_id, shown, now=NOW) == 1
        address = own_ledger.url.render_as_string(hide_password=False)
        child = forks.Process(target=_finalize, args=(address, desk.job_id, others[1]))
        child.start()
        assert others[0].recv() == "about to"
        assert not others[0].poll(0.3), "it waits for the consent's end"
    assert others[0].recv() is False
    child.join(60)
    assert desk.counts() == {"pending": 1}


def _finalize(address: str, job_id: int, said: Any) -> None:
    ledger = Ledger(address, folder=Path("unused"))
    with ledger.write() as connection:
        said.send("about to")
        said.send(jobs.move_job(connection, job_id, "finalize", now=NOW))
    ledger.close()
