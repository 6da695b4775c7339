"""The queue of many processes: hints in Redis, and a Celery worker in a thread of each of them.

What lies in Redis may be lost, come late, twice, or not at all: the ledger knows every item. So nothing here is
acknowledged to Redis, nothing is waited for, and a broker that is away is simply asked again.
"""

import contextlib
import logging
import threading
import warnings
from collections.abc import Iterator, Mapping
from typing import Any

import redis
from celery.exceptions import CPendingDeprecationWarning
from celery.worker import WorkController
from celery.worker import state as worker_state
from kombu.exceptions import OperationalError

from batchrun.queue.app import Hints, make_app
from batchrun.runner.means import Take

SCHEMES = ("redis", "rediss")  # what a broker's address may begin with
QUEUE_NAME = "hints"
SOCKET_TIMEOUT_S = 5.0
RESTART_S = 1.0
STOP_S = 5.0
FORGOTTEN_S = 3600  # a window that nobody tops up any more
# Why each: docs/operations.md.
TRANSPORT: Mapping[str, Any] = {
    "ack_emulation": False,  # no unacked set in Redis: three times the speed, and a lost hint is no loss
    "priority_steps": [0],
    "socket_keepalive": True,
    "socket_connect_timeout": SOCKET_TIMEOUT_S,
    "health_check_interval": 10,
    "retry_on_timeout": False,
}
_TROUBLE = (redis.RedisError, OperationalError, OSError)


class BrokerQueue:
    """Carries hints between the processes that share a ledger. A process opens one, and closes it at its end."""

    def __init__(self, url: str, *, ledger_id: str) -> None:
        """Make a queue of one ledger.

        Args:
            url: redis://... or rediss://...
            ledger_id: its keys in Redis begin with `batchrun:<ledger id>:`, so that ledgers may share a server.
        """
        self._transport = {**TRANSPORT, "global_keyprefix": f"batchrun:{ledger_id}:"}
        self._key = f"batchrun:{ledger_id}:{QUEUE_NAME}"
        self._client = redis.Redis.from_url(
            url, socket_timeout=SOCKET_TIMEOUT_S, socket_connect_timeout=SOCKET_TIMEOUT_S, retry=None
        )
        self._take: Take = _nobody
        self._app = make_app(broker=url, queue_name=QUEUE_NAME, take=self._hand_over, transport=self._transport)
        self._hints: Hints | None = None
        self._worker: WorkController | None = None
        self._thread: threading.Thread | None = None
        self._is_stopping = threading.Event()
        self._sending = threading.Lock()  # every job's window sends, each from a thread of its own
        self.trouble: str | None = None  # why Redis could not be used the last time

    # -- sending ------------------------------------------------------------------------------------------------------

    def send(self, job_id: int, item_ids: list[int]) -> None:
        """Put hints on the queue; those that Redis does not take are lost, and the ledger is asked for them later."""
        with self._sending, self._noting():
            try:
                if self._hints is None:
                    producer = self._app.connection_for_write().Producer(auto_declare=False)
                    self._hints = Hints(self._app, producer, queue_name=QUEUE_NAME)
                self._hints.send(job_id, item_ids)
                self._client.expire(self._key, FORGOTTEN_S)
            except _TROUBLE:
                self._hints = None  # its connection may be broken for good
                raise

    @contextlib.contextmanager
    def _noting(self) -> Iterator[None]:
        """Remember what is wrong with Redis; nothing here depends on it."""
        try:
            yield
            self.trouble = None
        except _TROUBLE as error:
            self.trouble = next(iter(str(error).splitlines()), type(error).__name__)

    def backlog(self) -> int | None:
        """Return how many messages wait in Redis; None where it cannot be asked."""
        with self._noting():
            return int(self._client.llen(self._key))
        return None

    # -- taking -------------------------------------------------------------------------------------------------------

    def start(self, take: Take) -> None:
        """Start the worker's thread; every hint goes to `take(job_id, item_ids)`, which may block for a moment."""
        # Celery warns of a default that is set here explicitly.
        warnings.simplefilter("ignore", category=CPendingDeprecationWarning)
        for name in ("celery", "kombu"):
            logging.getLogger(name).setLevel(logging.CRITICAL)
        self._take = take
        self._is_stopping.clear()
        worker_state.should_stop = None
        self._thread = threading.Thread(target=self._work, name="celery-worker", daemon=True)
        self._thread.start()

    def _hand_over(self, job_id: int, item_ids: list[int]) -> None:
        """Hand a hint to the performer; what it has no room for goes back to the queue, where others may have it."""
        if left := self._take(job_id, item_ids):
            self.send(job_id, left)

    def _work(self) -> None:
        """Consume until the stop. A worker that ends before that, as a crash of Redis can make it, is made anew."""
        self._app.set_current()  # of this thread: where Celery's tracer looks for the task
        while not self._is_stopping.is_set():
            with contextlib.suppress(SystemExit, Exception):
                self._worker = self._app.WorkController(
                    hostname=f"batchrun-{threading.get_native_id()}",
                    pool="solo",
                    concurrency=1,
                    loglevel=logging.CRITICAL,
                    without_heartbeat=True,
                    without_mingle=True,
                    without_gossip=True,
                    task_events=False,
                    queues=[QUEUE_NAME],
                )
                self._worker.start()
            self._is_stopping.wait(RESTART_S)

    def stop(self) -> None:
        """End the worker's thread. What is queued stays for the others."""
        self._is_stopping.set()
        worker_state.should_stop = 0
        if self._thread is not None:
            self._thread.join(timeout=STOP_S)
        if self._thread is None or not self._thread.is_alive():
            worker_state.should_stop = None  # not before: a thread that is held up would go on once it is let go
        self._thread = None
        with contextlib.suppress(*_TROUBLE):
            self._client.close()


def _nobody(_job_id: int, _item_ids: list[int]) -> list[int]:
    """Take a hint before anybody listens."""
    return []
