"""The queue inside one process: real Celery messages, a real Celery worker, no server."""

import threading
from collections.abc import Iterator
from queue import Queue

import pytest
from kombu.transport.memory import Channel

from batchrun.queue import embedded
from batchrun.queue.app import TASK_NAME, make_app
from batchrun.queue.embedded import EmbeddedQueue


class Taker:
    """Takes hints and tells when enough have come."""

    def __init__(self, wanted: int) -> None:
        self.taken: list[tuple[int, int]] = []
        self.threads: set[str] = set()
        self.enough = threading.Event()
        self._wanted = wanted

    def __call__(self, job_id: int, item_ids: list[int]) -> list[int]:
        self.taken += [(job_id, item_id) for item_id in item_ids[:2]]
        self.threads.add(threading.current_thread().name)
        if len(self.taken) >= self._wanted:
            self.enough.set()
        return item_ids[2:]


@pytest.fixture
def queue() -> Iterator[EmbeddedQueue]:
    queue = EmbeddedQueue("test")
    yield queue
    queue.stop()


def test_every_hint_reaches_the_performer_once_and_in_order(queue: EmbeddedQueue) -> None:
    taker = Taker(500)
    queue.start(taker)
    for first in range(0, 500, 5):
        queue.send(7, list(range(first, first + 5)))
    assert taker.enough.wait(60)
    assert taker.taken == [(7, item) for item in range(500)]
    assert taker.threads == {"celery-worker"}


def test_a_performer_that_has_enough_holds_the_queue_back(queue: EmbeddedQueue) -> None:
    gate, reached, taken = threading.Event(), threading.Event(), []

    def take(job_id: int, item_ids: list[int]) -> list[int]:
        taken.extend(item_ids)
        reached.set()
        gate.wait(60)
        return []

    queue.start(take)
    queue.send(1, [1])
    queue.send(1, [2, 3])
    assert reached.wait(60)
    assert taken == [1]
    gate.set()


def test_a_hint_that_is_sent_while_the_worker_starts_is_not_forgotten(
    queue: EmbeddedQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent, main = threading.Event(), threading.current_thread()

    def make_slowly(channel: Channel, name: str, **_: object) -> None:
        if name not in channel.queues:
            if threading.current_thread() is not main:
                sent.wait(60)
            channel.queues[name] = Queue()

    monkeypatch.setattr(Channel, "_new_queue", make_slowly)
    monkeypatch.setattr(Channel, "queues", {})
    taker = Taker(1)
    queue.start(taker)
    queue.send(1, [1])
    sent.set()
    assert taker.enough.wait(60)


def test_two_queues_of_one_process_do_not_mix() -> None:
    one, other = EmbeddedQueue("one"), EmbeddedQueue("other")
    first, second = Taker(10), Taker(10)
    one.start(first)
    other.start(second)
    try:
        one.send(1, list(range(10)))
        other.send(2, list(range(10)))
        assert first.enough.wait(60)
        assert second.enough.wait(60)
        assert {job for job, _ in first.taken} == {1}
        assert {job for job, _ in second.taken} == {2}
    finally:
        one.stop()
        other.stop()


def workers() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name == "celery-worker"}


def test_a_stopped_queue_leaves_no_thread_and_can_be_followed_by_another() -> None:
    others = workers()  # of tests before this one, which a slow machine may have let go of before they had ended
    for _ in range(2):
        queue, taker = EmbeddedQueue("again"), Taker(1)
        queue.start(taker)
        queue.send(1, [1])
        assert taker.enough.wait(60)
        queue.stop()
    assert workers() <= others


def test_a_worker_that_is_held_up_while_its_queue_stops_ends_when_it_is_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    reached, gate, others = threading.Event(), threading.Event(), workers()

    def take(job_id: int, item_ids: list[int]) -> list[int]:
        reached.set()
        gate.wait(60)
        return []

    monkeypatch.setattr(embedded, "STOP_S", 0.01)
    queue = EmbeddedQueue("held")
    queue.start(take)
    queue.send(1, [1])
    assert reached.wait(60)
    (mine,) = workers() - others
    queue.stop()
    assert mine.is_alive()
    gate.set()
    mine.join(60)
    assert not mine.is_alive()


def test_the_app_has_one_task_no_result_backend_and_retries_nothing() -> None:
    app = make_app(broker="memory://", queue_name="q", take=lambda job_id, item_ids: [])
    own = [name for name in app.tasks if not name.startswith("celery.")]
    assert own == [TASK_NAME]
    assert app.conf.result_backend is None
    assert app.conf.task_always_eager is False
    assert app.conf.worker_cancel_long_running_tasks_on_connection_loss is False
    assert app.tasks[TASK_NAME].ignore_result
