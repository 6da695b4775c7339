"""An endpoint that is away for minutes, in simulated time: nothing is sent, nothing fails, and it goes on by itself."""

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from batchrun.core.breaker import Trip
from batchrun.core.outcome import Charge, Evidence, Scope
from batchrun.core.states import AttemptState
from batchrun.runner.ends import Waits
from batchrun.runner.outage import Outage
from tests.runner.simulated_loop import SimulatedLoop

REFUSED = Evidence(AttemptState.NOT_SENT, "connect", "refused by it", Charge.NONE, None, scope=Scope.UNREACHABLE)
PROBE_TAKES_S = 5.0  # a look at a host that says nothing


class Hashed(SimpleNamespace):
    __hash__ = object.__hash__


class Fleet(list[Any]):
    """Lanes of which all are away."""

    are_all_away = True

    def __init__(self, lanes: list[Any], has_reached: bool) -> None:
        super().__init__(lanes)
        self.has_reached = has_reached


class Scene:
    """An endpoint that is back at a moment (None: never), and what the watch over it does, with the time of each."""

    def __init__(self, *, was_reached: bool, back_at_s: float | None, limit_s: float = 1_800.0) -> None:
        self.did: list[tuple[float, str]] = []
        self._back_at_s = back_at_s
        self._was_reached = was_reached
        self._limit_s = limit_s

    def play(self) -> list[tuple[float, str]]:
        with asyncio.Runner(loop_factory=SimulatedLoop) as runner:
            runner.run(self._play())
        return self.did

    async def _play(self) -> None:
        lane: Any = Hashed(out=None, way=SimpleNamespace(endpoint=SimpleNamespace(is_reachable=self._is_reachable)))
        performer: Any = SimpleNamespace(
            job_id=1,
            lanes=Fleet([lane], self._was_reached),
            block=lambda lane: self._note("block"),
            unblock=lambda lane: self._note("unblock"),
        )
        outage = Outage(performer, write=self._write, tell=self._tell, limit_s=self._limit_s, waits=Waits())
        outage.begin(lane, REFUSED, lambda trip: self._stop(trip))
        outage.begin(lane, REFUSED, lambda trip: self._stop(trip))  # every request that fails tells it again
        await asyncio.sleep(0)
        while outage.is_probing:
            await asyncio.sleep(1.0)

    def _tell(self, event: str, lane: Any, why: str) -> None:
        raise AssertionError("the only endpoint is the job's business")

    async def _is_reachable(self) -> bool:
        now = asyncio.get_running_loop().time()
        is_back = self._back_at_s is not None and now >= self._back_at_s
        await asyncio.sleep(0.01 if is_back else PROBE_TAKES_S)
        return is_back

    async def _write(self, write: Callable[[Any], object]) -> None:
        self._note("write")

    def _stop(self, trip: Trip) -> None:
        self._note(f"{trip.reason} {trip.exit_code}")

    def _note(self, what: str) -> None:
        self.did.append((asyncio.get_running_loop().time(), what))


@pytest.mark.parametrize("away_s", [1.0, 60.0, 420.0, 1_790.0])
def test_an_endpoint_that_was_away_for_minutes_is_used_within_15_s_of_its_return(away_s: float) -> None:
    did = Scene(was_reached=True, back_at_s=away_s).play()
    assert [what for _, what in did] == ["block", "write", "write", "unblock"]
    assert away_s <= did[-1][0] <= away_s + 15.0


def test_an_endpoint_that_stays_away_stops_the_job_past_its_limit() -> None:
    did = Scene(was_reached=True, back_at_s=None).play()
    assert [what for _, what in did] == ["block", "write", "endpoint_down 5"]
    assert 1_800.0 <= did[-1][0] <= 1_810.0


@pytest.mark.parametrize("back_at_s", [None, 60.0])
def test_an_endpoint_that_was_never_reached_stops_the_job_after_ten_seconds(back_at_s: float | None) -> None:
    did = Scene(was_reached=False, back_at_s=back_at_s).play()
    assert [what for _, what in did] == ["block", "unreachable 5"]
    assert 10.0 <= did[-1][0] <= 10.0 + PROBE_TAKES_S + 1.0
