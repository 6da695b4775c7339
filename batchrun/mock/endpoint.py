"""What all connections of one mock share: the router, the slots, the counters and the log."""

import re
from asyncio import AbstractEventLoop
from hashlib import sha256

from batchrun.mock.capacity import Capacity
from batchrun.mock.config import MockConfig
from batchrun.mock.log import Entry, RequestLog
from batchrun.mock.memory import Memory
from batchrun.mock.plan import Arrival, Plan
from batchrun.mock.request import Request
from batchrun.mock.routes import CONTROL_PREFIX, Router
from batchrun.mock.slots import Slots
from batchrun.mock.stats import Stats

MARK = re.compile(rb"\[\[([^\]]{1,80})\]\]")


class Endpoint:
    """Take requests in, and see them out."""

    def __init__(self, config: MockConfig, loop: AbstractEventLoop) -> None:
        self.config = config
        self.loop = loop
        self.stats = Stats()
        self.slots = Slots(Capacity.of(config), loop)
        self.memory = Memory(config)
        self._router = Router(config, self.stats, self.slots, self.memory)
        self._log = None if config.log_path is None else RequestLog(config.log_path)
        self._arrival_no = 0
        self._connection_no = 0

    def greet(self) -> int:
        """Count a new connection; return its number, from 1, which a reset of the counters does not touch."""
        self.stats.connections += 1
        self.stats.open_connections += 1
        self._connection_no += 1
        return self._connection_no

    def take_in(self, request: Request, *, conn: int, conn_seq: int) -> tuple[Arrival, Plan]:
        """Decide about a request; count it and write it down before anything of its answer is sent."""
        if request.path.startswith(CONTROL_PREFIX):
            arrival = Arrival(0, request, b"", None)
            return arrival, self._router.plan(arrival)
        self._arrival_no += 1
        mark = MARK.search(request.body)
        item = None if mark is None else mark[1].decode("utf-8", "replace")
        arrival = Arrival(self._arrival_no, request, sha256(request.body).digest(), item)
        self.stats.requests += 1
        if request.method == "POST":
            self.stats.count_begin()
        plan = self._router.plan(arrival)
        self._count(arrival, plan)
        if self._log is not None:
            self._log.write_arrive(self._describe(arrival, plan, conn=conn, conn_seq=conn_seq))
        return arrival, plan

    def see_out(self, arrival: Arrival, outcome: str) -> None:
        """Note that a request has ended."""
        if arrival.no == 0:  # a control request
            return
        if arrival.request.method == "POST":
            self.stats.in_flight -= 1
        if self._log is not None:
            self._log.write_end(arrival.no, outcome)

    def close(self) -> None:
        """Close the log."""
        if self._log is not None:
            self._log.close()
            self._log = None

    def _count(self, arrival: Arrival, plan: Plan) -> None:
        self.stats.by_status[plan.status] += 1
        if plan.fault is not None:
            self.stats.by_fault[plan.fault] += 1
        if plan.billed:
            self.stats.count_bill(arrival.digest)

    def _describe(self, arrival: Arrival, plan: Plan, *, conn: int, conn_seq: int) -> Entry:
        request, work = arrival.request, plan.work
        client_request_id = request.headers.get(b"x-client-request-id")
        return Entry(
            req=arrival.no,
            conn=conn,
            conn_seq=conn_seq,
            method=request.method,
            path=request.path,
            item=arrival.item,
            client_request_id=None if client_request_id is None else client_request_id.decode("latin-1"),
            body_sha=arrival.digest[:8].hex(),
            body_len=len(request.body),
            in_flight=self.stats.in_flight,
            status=plan.status,
            billed=plan.billed,
            prompt_tokens=0 if work is None else work.prompt_tokens,
            completion_tokens=0 if work is None else work.completion_tokens,
            fault=plan.fault,
        )
