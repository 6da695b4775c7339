"""What a performer works with, and whom it tells: the shapes that wiring and tests fill in."""

from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from batchrun.core.outcome import Break, Evidence, Reply
from batchrun.core.prices import Price
from batchrun.core.rate import Limits
from batchrun.core.retry import RetryPolicy
from batchrun.ledger.commit import GroupCommit
from batchrun.ledger.send_marks import SendMarks
from batchrun.ledger.spool import Spool
from batchrun.runner.kin import Kin
from batchrun.runner.twins import Twins


class Endpoint(Protocol):
    """What a session needs of an endpoint. Never raises for what the network or the server does."""

    @property
    def address(self) -> str: ...

    async def exchange(
        self, *, path: str, body: bytes, attempt_id: str, idempotency_key: str | None = None
    ) -> Reply | Break:
        """Send one request, once."""
        ...

    async def is_reachable(self) -> bool: ...

    async def models(self) -> list[str] | None: ...

    async def get(self, path: str, *, limit_s: float) -> Reply | Break: ...

    async def close(self) -> None: ...


# Takes a hint: the job, and items that may be claimed. Returns those that there is no room for.
Take = Callable[[int, list[int]], list[int]]


class Carrier(Protocol):
    """Carries hints to the performer; may lose, delay and repeat them."""

    def send(self, job_id: int, item_ids: list[int]) -> None:
        """Put one hint on the queue: some items of a job."""
        ...


class Queue(Carrier, Protocol):
    """The queue of this process: carries hints, and hands each to `take`."""

    def start(self, take: Take) -> None: ...

    def stop(self) -> None: ...


class Judge(Protocol):
    """Says what a reply or a break comes to; never raises."""

    def __call__(self, exchange: Reply | Break, path: str, /) -> Evidence: ...

    def clean(self, reply: Reply, path: str, /) -> Reply:
        """Return a reply as it may be written to disk: without the key, should the server echo it."""
        ...


@dataclass(frozen=True, slots=True)
class Way:
    """One of a job's endpoints, and what may be asked of it."""

    endpoint: Endpoint
    weight: float = 1.0
    concurrency: int | None = None  # its own limit; None: only the job's
    limits: Limits | None = None  # its own rates; None: those of the job, whose only endpoint it is
    name: str | None = None  # where its address is another endpoint's too, which has another key
    model: str | None = None  # its own name for the job's model

    @property
    def address(self) -> str:
        """By what the ledger knows it."""
        return self.name or self.endpoint.address


@dataclass(frozen=True, slots=True)
class Rules:
    """How a job's evidence is judged, priced and followed."""

    judge: Judge
    price: Price | None
    policy: RetryPolicy
    account: str | None = None  # whose idempotency keys the endpoint honours; None: it honours none
    prices: Mapping[str, Price | None] = field(default_factory=dict)  # by address, where there are several endpoints
    accounts: Mapping[str, str] = field(default_factory=dict)

    def price_at(self, address: str | None) -> Price | None:
        return self.price if address is None else self.prices.get(address, self.price)

    def account_at(self, address: str) -> str | None:
        return self.accounts.get(address, self.account)


@dataclass(frozen=True, slots=True)
class Means:
    """What a performer works with."""

    commit: GroupCommit
    spool: Spool
    marks: SendMarks
    attempt_id: Callable[[int], str]
    chance: Callable[[], float]
    answered_routes: Callable[[str], Awaitable[Collection[str]]]  # on which an address has answered items of the job
    longest_claim_age_s: float  # half of the time after which somebody else may call this process dead
    twins: Twins | None = None  # where the job has a cache
    kin: Kin | None = None  # where the job groups what begins alike, and has several endpoints
    is_shared: bool = False  # other processes send to the same endpoints: a limit of one is kept in the ledger
    is_measured: bool = False  # the next round of requests is in hand before a slot is free


class Log(Protocol):
    """Takes one structured line about an event: ids and counts, never a prompt, an answer or a key."""

    def __call__(self, event: str, /, **fields: object) -> None: ...
