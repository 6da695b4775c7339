"""A session on a real ledger with an endpoint made of Python: for what must be seen from inside one process."""

import asyncio
import json
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Any

from batchrun.core.answer_check import AnswerCheck, check_of, judged
from batchrun.core.concurrency import Concurrency
from batchrun.core.order import Order, rank_of
from batchrun.core.outcome import Break, BreakKind, Evidence, Reply, Timing
from batchrun.core.prices import Price
from batchrun.core.rate_book import LocalWindows
from batchrun.core.retry import OnUnknown
from batchrun.core.states import ItemState
from batchrun.endpoint.classify import Profile, classify
from batchrun.endpoint.mask import Mask
from batchrun.ledger import jobs as job_moves
from batchrun.ledger.jobs import Job
from batchrun.ledger.ledger import Ledger
from batchrun.ledger.liveness import Worker, enter
from batchrun.ledger.register import Line, write_items
from batchrun.ledger.reports import count_items
from batchrun.runner.clocks import boot_clock
from batchrun.runner.ends import End, Waits
from batchrun.runner.gear import Gear, Voice
from batchrun.runner.means import Rules, Take, Way
from batchrun.runner.partial import PartialOutput
from batchrun.runner.policy import make_policy
from batchrun.runner.session import Session

QUICK = Waits(idle_claim_s=0.05, never_reached_s=0.3, probe_s=0.02, drain_s=5.0)
Answer = Callable[[str, int], Awaitable[Reply | Break]]  # (custom id, nth request of that item)


def reply(status: int = 200, body: Any = None, **headers: str) -> Reply:
    """Return a reply; without a body a good chat answer."""
    if body is None:
        message = {"role": "assistant", "content": "yes"}
        usage = {"prompt_tokens": 10, "completion_tokens": 5}
        body = {"id": "c", "choices": [{"index": 0, "message": message, "finish_reason": "stop"}], "usage": usage}
    names = {name.replace("_", "-"): value for name, value in headers.items()} | {"content-type": "application/json"}
    return Reply(status, names, json.dumps(body).encode(), _timing())


def saying(text: str, *, finish_reason: str = "stop") -> Reply:
    """Return a good chat answer with this text."""
    usage = {"prompt_tokens": 10, "completion_tokens": 5}
    choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": finish_reason}
    return reply(body={"id": "c", "choices": [choice], "usage": usage})


def broken(kind: BreakKind = BreakKind.LOST) -> Break:
    return Break(kind, f"{kind.value} on purpose", _timing())


def _timing() -> Timing:
    now = time.time()
    return Timing(now, now, now, 0.001)


class Endpoint:
    """Counts what arrives and answers by a function."""

    address = "http://127.0.0.1:1/v1"

    def __init__(self, answer: Answer | None = None, *, address: str = address) -> None:
        self.address = address
        self.answer = answer
        self.sent: list[str] = []
        self.keys: list[str | None] = []
        self.in_flight = self.max_in_flight = 0
        self.is_up = True
        self.probes = 0

    async def exchange(
        self, *, path: str, body: bytes, attempt_id: str, idempotency_key: str | None = None
    ) -> Reply | Break:
        custom_id = json.loads(body)["messages"][-1]["content"]
        self.sent.append(custom_id)
        self.keys.append(idempotency_key)
        self.in_flight += 1
        self.max_in_flight = max(self.max_in_flight, self.in_flight)
        try:
            if self.answer is None:
                await asyncio.sleep(0)
                return reply()
            return await self.answer(custom_id, self.sent.count(custom_id))
        finally:
            self.in_flight -= 1

    async def is_reachable(self) -> bool:
        self.probes += 1
        return self.is_up

    async def models(self) -> list[str] | None:
        return None

    async def close(self) -> None:
        return None


class Queue:
    """Hands hints over at once, or loses or repeats them: a broker may do all of it."""

    def __init__(self, copies: int = 1) -> None:
        self._copies = copies

    def start(self, take: Take) -> None:
        self._take = take

    def send(self, job_id: int, item_ids: list[int]) -> None:
        for _ in range(self._copies):
            self._take(job_id, item_ids)

    def stop(self) -> None:
        return None


@dataclass(frozen=True)
class Judge:
    check: AnswerCheck | None = None

    def __call__(self, exchange: Reply | Break, path: str, /) -> Evidence:
        evidence = classify(exchange, path=path, profile=Profile(), mask=Mask("EMPTY"))
        return evidence if self.check is None else judged(evidence, self.check)

    def clean(self, reply: Reply, path: str, /) -> Reply:
        return reply


def silent_voice(said: list[str]) -> Voice:
    """Return a voice that writes down what it says, and agrees to everything."""
    return Voice(
        watch=lambda progress: None,
        say=said.append,
        log=lambda event, **fields: None,
        show_trial=lambda report: None,
        go_on=lambda report: True,
        asks=lambda job: False,
    )


@dataclass
class Bench:
    """One job of `count` items on a ledger of its own."""

    folder: Path
    count: int = 20
    concurrency: int | str = 4
    retry_times: int = 2
    on_unknown: OnUnknown = "hold"
    price: Price | None = None
    worst_pusd: int | None = None
    max_cost_pusd: int | None = None
    fail_on_error: float | None = None
    down_limit_s: float = 0.5
    cache: bool = False
    different: int = 10**9  # requests; what comes after so many asks the same as before
    order: Order = "input"
    beginnings: int = 0  # of so many kinds, in turn, each about 600 bytes long; 0: none
    sharer: str = "mine"  # whose answers its cache shares
    name: str = "job"
    shared: Ledger | None = None  # another bench's ledger, for a second job
    response_schema: Any = None
    reask: int = 0
    measure: bool = False
    throttle_budget_s: float = 3_600.0
    throttled_s: float = 0.0  # what every item has waited already
    endpoint: Endpoint = field(default_factory=Endpoint)
    ways: list[Way] = field(default_factory=list)  # instead of `endpoint`: several
    account: str | None = None  # whose idempotency keys the endpoint honours
    queue: Queue = field(default_factory=Queue)
    waits: Waits = QUICK
    said: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.ledger = self.shared or Ledger(f"sqlite:///{self.folder}/ledger.db", folder=self.folder)
        self.worker: Worker = enter(self.ledger, name="bench", now=time.time())
        now = time.time()
        spec: dict[str, Any] = {"trial": {"size": 0}, "output_file": str(self.folder / "out.jsonl"), "price": None}
        spec |= {"model": "m", "fail_on_error": self.fail_on_error, "endpoint_down_limit_s": self.down_limit_s}
        spec |= {"cache": self.cache, "order": self.order, "measure": self.measure}
        spec["response_schema"] = self.response_schema
        spec["error_file"] = str(self.folder / "out.errors.jsonl")
        with self.ledger.write() as connection:
            registered = job_moves.register_job(
                connection,
                task_id=self.name,
                spec=spec,
                input_digest="i",
                params_digest="p",
                total=self.count,
                phase="full",
                on_unknown=self.on_unknown,
                concurrency=Concurrency.of(self.concurrency),
                retry_times=self.retry_times,
                max_cost_pusd=self.max_cost_pusd,
                holder=self.worker.id,
                now=now,
            )
        assert registered is not None
        self.job_id = registered.id
        write_items(self.ledger, self.job_id, [self._line(number) for number in range(self.count)], trial=(), now=now)
        with self.ledger.write() as connection:
            job_moves.move_job(connection, self.job_id, "open", now=now)
            connection.exec_driver_sql(
                f"UPDATE items SET throttled_s = {self.throttled_s} WHERE job_id = {self.job_id}"
            )

    def _line(self, number: int) -> Line:
        asked = f"a{number % self.different}"
        messages = [{"role": "user", "content": asked}]
        if self.beginnings:
            messages.insert(0, {"role": "system", "content": f"{number % self.beginnings:03} " * 150})
        body = json.dumps({"messages": messages}).encode()
        digest = blake2b(body, digest_size=16).digest()
        rank = rank_of(self.order, body=body, max_output_tokens=1)
        place = (number, number + 1, f"a{number}")
        return Line(*place, digest, "m", None, "/v1/chat/completions", body, self.worst_pusd, rank)

    @property
    def job(self) -> Job:
        with self.ledger.read() as connection:
            return job_moves.read_job(connection, self.job_id)

    @property
    def counts(self) -> Counter[str]:
        with self.ledger.read() as connection:
            counted = count_items(connection, self.job_id)
        return Counter({state.value: count for state, count in counted.items() if count})

    def gear(self) -> Gear:
        policy = make_policy(
            on_unknown=self.on_unknown,
            retry_times=self.retry_times,
            chance=lambda: 0.5,
            first_wait_s=0.02,
            throttle_budget_s=self.throttle_budget_s,
            reask=self.reask,
        )
        return Gear(
            ways_of=lambda job: self.ways or [Way(self.endpoint)],
            rules_of=lambda job: Rules(Judge(check_of(job.spec)), self.price, policy, self.account),
            account_of=lambda job, address: self.sharer,
            windows_of=lambda job, way: LocalWindows(clock=boot_clock),
            is_free=lambda job: True,
            queue_of=lambda name: self.queue,
            waits_of=lambda job: self.waits,
            dead_after_s=10.0,
            worker_name="bench",
        )

    def session(self) -> Session:
        voice = silent_voice(self.said)
        partial = PartialOutput(self.ledger, self.job_id, self.folder / "out.jsonl")
        return Session(
            ledger=self.ledger, job=self.job, worker=self.worker, gear=self.gear(), voice=voice, partial=partial
        )

    def run(self, meanwhile: Callable[[Session], Awaitable[None]] | None = None, *, timeout_s: float = 60.0) -> End:
        """Work on the job to an end; `meanwhile` runs beside it."""

        async def work() -> End:
            session = self.session()
            session.start()
            beside = asyncio.create_task(meanwhile(session)) if meanwhile is not None else None  # type: ignore[arg-type]
            try:
                return session.end_after(await asyncio.wait_for(session.work(trial_only=False), timeout_s))
            finally:
                if beside is not None:
                    await beside
                await session.finish()

        return asyncio.run(work())


async def until(holds: Callable[[], bool], timeout_s: float = 60.0) -> None:
    """Wait on the event loop until something holds."""
    deadline = time.monotonic() + timeout_s
    while not holds():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.005)


def pending(bench: Bench) -> int:
    return bench.counts[ItemState.PENDING.value]
