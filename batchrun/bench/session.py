"""A session that measures: requests leave when they are due, and somebody looks on from the first to the last."""

import asyncio
import time
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from batchrun.bench.direct import DirectQueue
from batchrun.bench.gpus import Gpus
from batchrun.bench.observing import Observations, Observer
from batchrun.core.outcome import Evidence, Reply
from batchrun.endpoint.server import VERSION_PATHS, server_of, version_of
from batchrun.ledger.backlog import START, claimable
from batchrun.ledger.ledger import Ledger
from batchrun.runner.ends import End
from batchrun.runner.feed import Feeding
from batchrun.runner.gear import Gear
from batchrun.runner.lane import Lane
from batchrun.runner.partial import Unwritten
from batchrun.runner.perform import Performer
from batchrun.runner.session import Session

LEAD_S = 0.1  # from the start of a schedule to its first arrival: the first commit is warm by then
METRICS = "/metrics"
LOOK_S = 2.0  # the most that one look at the server's figures may take
ALL_ITEMS = 10_000_000


@dataclass
class Watch:
    """What a run is to do beside its job, and what was seen of it."""

    due_s: tuple[float, ...] | None = None  # when each item arrives, in their order; None: as slots come free
    is_observed: bool = True
    gpus: Gpus | None = None
    began_s: float | None = None  # monotonic second 0 of `due_s`
    seen: Observations | None = None
    server: str | None = None
    pauses: list[tuple[float, str]] = field(default_factory=list)  # unix seconds, and what the endpoint said


class MeasuredSession(Session):
    """Like any session, but for the arrivals and the observer, and without what nobody reads of a measurement."""

    def __init__(self, *, watch: Watch, gear: Gear, **parts: Any) -> None:
        super().__init__(**parts | {"gear": replace(gear, queue_of=DirectQueue), "partial": Unwritten()})
        self._watch = watch

    async def work(self, *, trial_only: bool) -> End:
        """Perform the job's items, observed."""
        watch = self._watch
        if not watch.is_observed:
            return await super().work(trial_only=trial_only)
        if watch.server is None:
            watch.server = await self._name_server()
        look = partial(self._ways[0].endpoint.get, METRICS, limit_s=LOOK_S)
        async with Observer(look=look, gpus=watch.gpus) as observer:
            end = await super().work(trial_only=trial_only)
        watch.seen = observer.seen
        return end

    def throttled(self, lane: Lane, evidence: Evidence, wait_s: float) -> None:
        """Note that the endpoint asked for a pause, which the whole run then keeps."""
        self._watch.pauses.append((time.time(), f"{evidence.message}: a pause of {wait_s:.1f} s"))
        super().throttled(lane, evidence, wait_s)

    def _make_feed(self, trial_only: bool) -> Feeding:
        if self._watch.due_s is None:
            return super()._make_feed(trial_only)
        return Schedule(self._ledger, self._performer, self._watch)

    async def _name_server(self) -> str | None:
        reply = await self._ways[0].endpoint.get("/v1/models", limit_s=LOOK_S)
        name = server_of(reply).name if isinstance(reply, Reply) else None
        if name not in VERSION_PATHS:
            return name
        said = await self._ways[0].endpoint.get(VERSION_PATHS[name], limit_s=LOOK_S)
        version = version_of(said) if isinstance(said, Reply) else None
        return f"{name} {version}" if version else name


class Schedule:
    """Hands each item over when it is due, whatever has come of the others."""

    def __init__(self, ledger: Ledger, performer: Performer, watch: Watch) -> None:
        self._ledger, self._performer, self._watch = ledger, performer, watch
        self._arrived: set[int] = set()
        self.is_exhausted = False

    async def run(self) -> None:
        """Wait for each item's time, in their order."""
        ids = await asyncio.to_thread(self._claimable)
        self._watch.began_s = began_s = time.monotonic() + LEAD_S
        for item_id, due_s in zip(ids, self._watch.due_s or (), strict=False):
            await asyncio.sleep(max(0.0, began_s + due_s - time.monotonic()))
            self._arrived.add(item_id)
            self._performer.intake.put(item_id)
        self.is_exhausted = True

    def first(self, limit: int) -> list[int]:
        """Return the first claimable items that have arrived."""
        arrived = set(self._arrived)
        return [item_id for item_id in self._claimable() if item_id in arrived][:limit]

    def forget_outstanding(self) -> None:
        """Do nothing: what arrives is handed over in this very process."""

    def _claimable(self) -> list[int]:
        with self._ledger.read() as connection:
            places = claimable(
                connection, self._performer.job_id, after=START, limit=ALL_ITEMS, trial_only=False, now=time.time()
            )
        return [place.item_id for place in places]
