"""The Celery app, made by a factory: one task, which carries ids only and hands them to the performer."""

from collections.abc import Callable, Mapping
from typing import Any

from celery import Celery

TASK_NAME = "batchrun.items"
# memory:// looks for messages by polling; its default of one second would be 250 items/s.
EMBEDDED_TRANSPORT: Mapping[str, Any] = {"polling_interval": 0.005}


def make_app(
    *,
    broker: str,
    queue_name: str,
    take: Callable[[int, list[int]], None],
    transport: Mapping[str, Any] = EMBEDDED_TRANSPORT,
) -> Celery:
    """Make an app whose one task calls `take(job_id, item_ids)`.

    The settings in one breath: the ledger is the truth, so there is no result backend, no retry, no event, and a
    message that is lost or comes twice does no harm.
    """
    app = Celery("batchrun", broker=broker, set_as_current=False, fixups=[])
    app.conf.update(
        task_queues={queue_name: {}},
        task_default_queue=queue_name,
        task_ignore_result=True,
        task_acks_late=True,
        task_reject_on_worker_lost=False,
        task_serializer="json",
        accept_content=["json"],
        task_publish_retry=False,
        worker_prefetch_multiplier=1,
        worker_cancel_long_running_tasks_on_connection_loss=False,
        worker_hijack_root_logger=False,
        worker_enable_remote_control=False,
        worker_send_task_events=False,
        task_send_sent_event=False,
        broker_connection_retry_on_startup=True,
        broker_transport_options=dict(transport),
    )

    @app.task(name=TASK_NAME, ignore_result=True, max_retries=0, shared=False)  # type: ignore[untyped-decorator]
    def items(job_id: int, item_ids: list[int]) -> None:
        # crash point: hint-taken
        take(job_id, item_ids)

    return app


class Hints:
    """Writes hints as Celery's own task messages: one is made by Celery, the others are copies with other ids.

    They carry no expiry: Celery keeps the id of a task that came too late and ignores every later task with that id.
    """

    def __init__(self, app: Celery, producer: Any, *, queue_name: str) -> None:
        self._producer = producer
        self._queue_name = queue_name
        message = app.amqp.as_task_v2("", TASK_NAME, args=(), kwargs={})
        self._headers = message.headers
        self._properties = {**message.properties, "delivery_mode": 1}
        self._embed = message.body[2]

    def send(self, job_id: int, item_ids: list[int]) -> None:
        """Put one message about these items on the queue: what Celery, kombu and Redis do for it they do for all."""
        identity = f"{job_id}:{','.join(map(str, item_ids))}"
        headers = {**self._headers, "id": identity, "root_id": identity}
        self._producer.publish(
            ((job_id, item_ids), {}, self._embed),
            routing_key=self._queue_name,
            serializer="json",
            headers=headers,
            **{**self._properties, "correlation_id": identity},
        )
