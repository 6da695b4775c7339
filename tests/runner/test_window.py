"""The window of a shared job's hints: never more on their way, none twice, and what was lost is hinted at again."""

from pathlib import Path

import pytest
from sqlalchemy import update

from batchrun.core.states import ItemState
from batchrun.ledger.leases import Load, lease
from batchrun.ledger.schema import items
from batchrun.runner.window import CALM_S, LOST_S, STALE_S, Window
from tests.runner.bench import Bench

COUNT = 300


class Broker:
    """A queue that keeps its hints until they are taken, may be away, and may forget them all."""

    def __init__(self) -> None:
        self.hints: list[list[int]] = []
        self.is_away = False

    def send(self, job_id: int, item_ids: list[int]) -> None:
        self.hints.append(item_ids)

    def backlog(self) -> int | None:
        return None if self.is_away else len(self.hints)

    def take_all(self) -> list[int]:
        """Take everything, as workers with room do; return the items in the order of their hints."""
        taken, self.hints = [one for hint in self.hints for one in hint], []
        return taken


class Desk:
    """A window over the bench's job, and a clock that goes when it is told to."""

    def __init__(self, folder: Path, *, slots: int) -> None:
        self.bench, self.broker, self.now = Bench(folder, count=COUNT, concurrency=40), Broker(), 100.0
        self.window = Window(
            self.bench.ledger,
            self.bench.job_id,
            self.broker,
            is_mine=lambda: True,
            trial_only=False,
            clock=lambda: self.now,
        )

        self.lend(slots)

    def lend(self, slots: int) -> None:
        """Let a worker have so many slots."""
        with self.bench.ledger.write() as connection:
            lease(connection, self.bench.job_id, worker_id=self.bench.worker.id, load=Load(slots, 0))

    def move(self, item_ids: list[int], to: ItemState) -> None:
        """Move items as others do."""
        with self.bench.ledger.write() as connection:
            connection.execute(update(items).where(items.c.id.in_(item_ids)).values(state=to))

    def after(self, seconds: float) -> list[int]:
        """Let time go by, top up, and return what the broker has then."""
        self.now += seconds
        self.window.top_up()
        return self.broker.take_all()


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path, slots=40)


def test_no_more_than_the_window_is_on_its_way_wherever_it_is(desk: Desk) -> None:
    first = desk.after(0.0)
    assert first == list(range(1, 81))
    for _ in range(5):
        assert desk.after(0.1) == [], "the workers have them, and nothing was claimed"
    desk.move(first[:30], ItemState.RUNNING)
    assert desk.after(0.1) == list(range(81, 111))


def test_each_item_is_hinted_at_once_in_order_and_the_round_ends_with_the_job(desk: Desk) -> None:
    seen: list[int] = []
    while hinted := desk.after(0.1):
        desk.move(hinted, ItemState.RUNNING)
        seen += hinted
    assert seen == list(range(1, COUNT + 1))
    assert desk.window.top_up() == CALM_S


def test_a_hint_is_small_so_that_every_worker_gets_a_part_and_large_enough_to_be_cheap(desk: Desk) -> None:
    desk.window.top_up()
    assert {len(hint) for hint in desk.broker.hints} == {5}
    few = Desk(desk.bench.folder / "few", slots=1)
    few.window.top_up()
    assert few.broker.hints == [[1], [2]]


def test_what_the_broker_lost_is_hinted_at_again_and_what_still_waits_there_is_not(desk: Desk) -> None:
    lost = desk.after(0.0)
    assert desk.after(LOST_S - 0.1) == []
    desk.now += 0.2
    desk.broker.send(desk.bench.job_id, [999])  # something waits there still: it may be these
    desk.window.top_up()
    assert desk.broker.take_all() == [999]
    assert desk.after(0.0) == lost
    desk.broker.send(desk.bench.job_id, [999])
    assert desk.after(STALE_S + 0.1) == [999, *lost]


def test_an_item_that_can_be_claimed_again_is_hinted_at_within_a_second_or_so(desk: Desk) -> None:
    first = desk.after(0.0)
    desk.move(first, ItemState.RUNNING)
    later = desk.after(0.1)
    desk.move(first[:1], ItemState.PENDING)  # given back by another worker
    assert desk.after(1.1) == first[:1]
    assert desk.after(0.1) == []
    assert set(later).isdisjoint(first)


def test_no_more_is_hinted_at_than_the_workers_have_slots_for_however_many_the_job_may_have(desk: Desk) -> None:
    desk.lend(3)
    assert desk.after(0.0) == [1, 2, 3, 4, 5, 6]
    desk.lend(5)
    assert desk.after(0.1) == [7, 8, 9, 10]


def test_a_broker_that_is_away_is_asked_again_and_gets_what_it_missed(desk: Desk) -> None:
    desk.broker.is_away = True
    assert desk.window.top_up() == CALM_S
    assert desk.broker.hints == []
    desk.broker.is_away = False
    assert desk.after(0.1) == list(range(1, 81))


def test_the_window_is_looked_at_again_when_about_half_of_it_is_taken(desk: Desk) -> None:
    desk.after(0.0)
    desk.move(list(range(1, 21)), ItemState.RUNNING)
    desk.now += 0.02  # a thousand items a second
    assert desk.window.top_up() == pytest.approx(0.04)
    desk.now += 1.0
    assert desk.window.top_up() == CALM_S
