"""The queue of many processes: real Redis, real Celery messages and workers; whatever happens to Redis, it goes on."""

import threading
import time
from collections.abc import Callable, Iterator

import pytest
from celery.exceptions import WorkerShutdown

from batchrun.queue import broker
from batchrun.queue.broker import BrokerQueue
from tests import services
from tests.restartable import RestartableRedis

pytestmark = pytest.mark.process


class Taker:
    """Takes hints and tells when each was seen."""

    def __init__(self) -> None:
        self.taken: list[int] = []
        self._arrived = threading.Condition()

    def __call__(self, job_id: int, item_ids: list[int]) -> list[int]:
        with self._arrived:
            self.taken += item_ids
            self._arrived.notify_all()
        return []

    def wait_for(self, wanted: Callable[[list[int]], bool], timeout: float = 60.0) -> bool:
        with self._arrived:
            return self._arrived.wait_for(lambda: wanted(self.taken), timeout)


@pytest.fixture
def open_queue(redis_url: str) -> Iterator[Callable[..., BrokerQueue]]:
    opened = []

    def open_one(url: str = redis_url, ledger_id: str = "0123456789ab") -> BrokerQueue:
        opened.append(BrokerQueue(url, ledger_id=ledger_id))
        return opened[-1]

    yield open_one
    for queue in opened:
        queue.stop()


def test_hints_of_one_process_reach_another_and_only_those_of_its_ledger(
    open_queue: Callable[..., BrokerQueue], redis_server: services.RedisServer
) -> None:
    sender, other_ledger, taker = open_queue(), open_queue(ledger_id="ba9876543210"), Taker()
    other_ledger.send(1, [99])
    for first in range(0, 200, 10):
        sender.send(1, list(range(first, first + 10)))
    assert sender.backlog() == 20
    open_queue().start(taker)
    assert taker.wait_for(lambda taken: len(taken) == 200)
    assert sorted(taker.taken) == list(range(200))
    assert other_ledger.backlog() == 1
    keys = redis_server.ask("KEYS *")
    assert "batchrun:ba9876543210:hints" in keys
    assert "unacked" not in keys


def test_what_a_worker_has_no_room_for_goes_to_another(open_queue: Callable[..., BrokerQueue]) -> None:
    full, empty, was_asked = open_queue(), open_queue(), threading.Event()

    def take_one(job_id: int, item_ids: list[int]) -> list[int]:
        took = not was_asked.is_set()
        was_asked.set()
        return item_ids[1:] if took else item_ids

    full.start(take_one)
    full.send(1, [1, 2, 3])
    assert was_asked.wait(60)
    taker = Taker()
    empty.start(taker)
    assert taker.wait_for(lambda taken: taken == [2, 3])


def test_a_worker_that_is_held_up_while_its_queue_stops_ends_when_it_is_let_go(
    open_queue: Callable[..., BrokerQueue], monkeypatch: pytest.MonkeyPatch
) -> None:
    reached, gate = threading.Event(), threading.Event()

    def take(job_id: int, item_ids: list[int]) -> list[int]:
        reached.set()
        gate.wait(60)
        return []

    monkeypatch.setattr(broker, "STOP_S", 0.01)
    queue = open_queue()
    queue.start(take)
    queue.send(1, [1])
    assert reached.wait(60)
    mine = queue._thread
    queue.stop()
    assert mine is not None
    assert mine.is_alive()
    gate.set()
    mine.join(60)
    assert not mine.is_alive()


@pytest.mark.timeout(120)
def test_a_redis_that_is_away_or_forgets_everything_is_used_again_when_it_is_back() -> None:
    server = RestartableRedis()
    queue, taker = BrokerQueue(server.url, ledger_id="0123456789ab"), Taker()
    try:
        queue.start(taker)
        number = 0
        for stop in (server.kill, server.terminate, server.kill):
            number += 1
            queue.send(1, [number])
            assert taker.wait_for(lambda taken, wanted=number: wanted in taken)
            stop()
            assert queue.backlog() is None
            queue.send(1, [1000])  # lost, without a word
            server.start()
            deadline = time.monotonic() + 60
            while time.monotonic() < deadline:
                number += 1
                queue.send(1, [number])
                if taker.wait_for(lambda taken, wanted=number: wanted in taken, timeout=1.0):
                    break
            else:
                pytest.fail("nothing is taken after Redis came back")
        assert 1000 not in taker.taken
    finally:
        queue.stop()
        server.close()


def test_a_worker_that_ends_by_itself_is_made_anew(open_queue: Callable[..., BrokerQueue]) -> None:
    queue, taker = open_queue(), Taker()
    queue.start(taker)
    queue.send(1, [1])
    assert taker.wait_for(lambda taken: 1 in taken)
    ended = queue._worker
    assert ended is not None
    ended.consumer.hub.call_soon(_end_worker)  # as Celery does it when its connection breaks in the wrong moment
    queue.send(1, [2])  # wakes it, and is lost with it or not: the next one finds another worker
    while queue._worker is ended or not taker.wait_for(lambda taken: 3 in taken, timeout=0.2):
        queue.send(1, [3])


def _end_worker() -> None:
    raise WorkerShutdown(0)


def test_stopping_is_quick_and_what_waits_stays_for_the_others(open_queue: Callable[..., BrokerQueue]) -> None:
    took_s: list[float] = []
    while not took_s or (min(took_s) >= 4 and len(took_s) < 4):  # a machine that stands still makes one late, not all
        queue, taker = open_queue(), Taker()
        queue.start(taker)
        queue.send(1, [1])
        assert taker.wait_for(lambda taken: 1 in taken)
        began = time.monotonic()
        queue.stop()
        took_s.append(time.monotonic() - began)
    assert min(took_s) < 4
    open_queue().send(1, [2])
    assert open_queue().backlog() == 1
