"""The queue of a process that works alone: Celery's memory transport and a Celery worker, both in this process."""

import contextlib
import logging
import threading

from celery.worker import WorkController
from celery.worker import state as worker_state

from batchrun.queue.app import Hints, make_app
from batchrun.runner.means import Take

STOP_S = 5.0
NOBODY = 0  # no job and no item has this id


class EmbeddedQueue:
    """Carries hints from this process to this process. The same task and the same performer as with a broker."""

    def __init__(self, name: str) -> None:
        self._queue_name = f"batchrun-{name}"
        self._worker: WorkController | None = None
        self._thread: threading.Thread | None = None

    def start(self, take: Take) -> None:
        """Start the worker's thread; every hint goes to `take(job_id, item_ids)` until it is taken whole."""
        self._take = take
        logging.getLogger("celery").setLevel(logging.ERROR)
        logging.getLogger("kombu").setLevel(logging.ERROR)
        self._app = make_app(broker="memory://", queue_name=self._queue_name, take=self._hand_over)
        producer = self._app.connection_for_write().Producer(auto_declare=False)
        # Before there are two threads: of two that make the same queue at once, the later drops what lies in it.
        producer.channel.queue_declare(self._queue_name)
        self._hints = Hints(self._app, producer, queue_name=self._queue_name)
        self._worker = self._app.WorkController(
            hostname=self._queue_name,
            pool="solo",
            concurrency=1,
            loglevel=logging.ERROR,
            without_heartbeat=True,
            without_mingle=True,
            without_gossip=True,
            task_events=False,
            queues=[self._queue_name],
        )
        worker_state.should_stop = None
        self._thread = threading.Thread(target=self._work, name="celery-worker", daemon=True)
        self._thread.start()

    def _work(self) -> None:
        assert self._worker is not None
        self._app.set_current()  # of this thread: where Celery's tracer looks for the task
        with contextlib.suppress(SystemExit):
            self._worker.start()

    def _hand_over(self, job_id: int, item_ids: list[int]) -> None:
        """Hold the queue back until the performer has taken all: nobody else would."""
        while item_ids:
            item_ids = self._take(job_id, item_ids)

    def send(self, job_id: int, item_ids: list[int]) -> None:
        """Put hints on the queue."""
        self._hints.send(job_id, item_ids)

    def stop(self) -> None:
        """End the worker's thread. What is still queued is forgotten: the ledger knows it."""
        if self._worker is None or self._thread is None:
            return
        worker_state.should_stop = 0
        # Celery's loop waits up to two seconds for a message, and once more after it has seen that it should stop.
        for _ in range(2):
            self.send(NOBODY, [])
        self._thread.join(timeout=STOP_S)
        if not self._thread.is_alive():
            worker_state.should_stop = None  # not before: a thread that is held up would go on once it is let go
        self._worker = self._thread = None
