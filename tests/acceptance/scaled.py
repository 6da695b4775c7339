"""The steps of a case with workers and a broker between them (`"broker": true`)."""

import os
import signal

from sqlalchemy import select

from batchrun.core.states import AttemptState
from batchrun.ledger.schema import attempts, items, workers
from batchrun.queue.broker import BrokerQueue
from tests.acceptance.case import Steps
from tests.restartable import RestartableRedis


class ScaledSteps(Steps):
    """The steps of any case, and those that only several workers can take."""

    @property
    def broker(self) -> RestartableRedis:
        """The case's own Redis."""
        assert self.played.broker is not None
        return self.played.broker

    def workers(self, count: int, *, options: str = "--alone -c 4") -> None:
        """Start so many workers, and wait until they work."""
        for _ in range(count):
            self.start(f"worker {options}")
        for run in self.played.runs[-count:]:
            self._wait_for(lambda run=run: "is ready" in run.err, "a worker that is ready")

    def redis(self, is_up: bool) -> None:
        """Kill the broker, or start it again with what it had."""
        if is_up:
            self.broker.start()
        else:
            self.broker.kill()

    def hints(self, times: int) -> None:
        """Send a hint of every item so many times more, as a broker does that delivers again what takes long."""
        ledger = self.lab.ledger()
        queue = BrokerQueue(self.broker.url, ledger_id=ledger.ledger_id)
        try:
            with ledger.read() as connection:
                every = list(connection.execute(select(items.c.id)).scalars())
            for _ in range(times):
                for item_id in every:
                    queue.send(1, [item_id])
        finally:
            queue.stop()
            ledger.close()

    def kill_who_has(self, item: str, *, times: int = 1) -> None:
        """Kill whichever worker has a request of an item out, each time that one has arrived."""
        for number in range(1, times + 1):
            self._wait_for(lambda number=number: self._arrived(item) >= number, f"request {number} of {item}")
            assert self._arrived(item) == number
            os.kill(self._holder_of(item), signal.SIGKILL)

    def _arrived(self, item: str) -> int:
        return sum(request.item == item for request in self.played.endpoint.requests)

    def _holder_of(self, item: str) -> int:
        ledger = self.lab.ledger()
        is_out = (attempts.c.state == AttemptState.INTENT) & (items.c.custom_id == item)
        is_its = attempts.c.key // (1 << 20) == items.c.id
        held = attempts.join(items, is_its).join(workers, attempts.c.worker_id == workers.c.id)
        try:
            with ledger.read() as connection:
                pid: int = connection.execute(select(workers.c.pid).select_from(held).where(is_out)).scalar_one()
                return pid
        finally:
            ledger.close()
