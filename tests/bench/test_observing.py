"""What is seen beside a run: the server's own figures, the GPUs, and the client itself."""

import asyncio
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from batchrun.bench.gpus import Gpus
from batchrun.bench.observing import Observer
from batchrun.core.measuring.observed import client_load, kind_of
from batchrun.core.outcome import Reply, Timing
from batchrun.endpoint.client import Endpoint
from batchrun.mock.config import MockConfig
from batchrun.mock.server import MockServer


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not holds():
            await asyncio.sleep(0.005)


def highest(observer: Observer, name: str) -> float:
    return max(value for _, value in observer.seen.series[name])


def test_a_server_under_load_is_seen_from_beside_the_run() -> None:
    async def test() -> tuple[Observer, int]:
        async with (
            MockServer(MockConfig(slots=2, latency_ms=150)) as server,
            Endpoint(server.base_url, "k", timeout_s=60) as endpoint,
            Endpoint(server.base_url, "k", timeout_s=60) as beside,
        ):
            async with Observer(look=lambda: beside.get("/metrics"), interval_s=0.05) as observer:
                body, sent = b'{"model":"mock","messages":[{"role":"user","content":"hi"}]}', 0
                while not sent or highest(observer, "server.running") < 2 or highest(observer, "server.waiting") < 1:
                    sends = (
                        endpoint.exchange(path="/v1/chat/completions", body=body, attempt_id=f"a-{sent + number}")
                        for number in range(8)
                    )
                    await asyncio.gather(*sends)
                    sent += 8  # once; again only where the machine stood still while they were there to be seen
            return observer, sent

    observer, sent = asyncio.run(asyncio.wait_for(test(), 60))
    seen = observer.seen
    assert seen.server == "vLLM"
    peak = {name: max(value for _, value in points) for name, points in seen.series.items()}
    assert peak["server.running"] == 2
    assert 1 <= peak["server.waiting"] <= 6
    queue = seen.series["server.queue_s"]
    assert queue[-1][1] - queue[0][1] >= 0.15  # at least one waited for a whole other
    assert seen.series["server.queue_count"][-1][1] == sent
    assert all(kind_of(name) for name in seen.series)
    assert seen.series.keys() >= {"client.cpu_share", "client.loop_lag_s"}


def test_a_server_without_such_a_page_is_left_alone_after_a_few_looks() -> None:
    looks = 0

    async def look() -> Reply:
        nonlocal looks
        looks += 1
        return Reply(404, {}, b"not here", Timing(0, None, 0, 0))

    async def test() -> Observer:
        async with Observer(look=look, interval_s=0.005) as observer:
            await until(lambda: looks >= 3)
            await asyncio.sleep(0.1)  # in which it would look twenty times more
        return observer

    seen = asyncio.run(test()).seen
    assert looks == 3
    assert seen.server is None
    assert not [name for name in seen.series if name.startswith("server.")]


def test_a_client_that_is_blocked_is_seen_to_lag_and_its_run_is_no_measurement() -> None:
    async def test() -> Observer:
        async with Observer(interval_s=0.05) as observer:
            for _ in range(4):
                time.sleep(0.15)  # what a client does that computes instead of listening
                await asyncio.sleep(0.06)
        return observer

    seen = asyncio.run(test()).seen
    assert max(lag for _, lag in seen.series["client.loop_lag_s"]) > 0.1
    assert seen.client.is_saturated
    assert "no measurement of the server" in seen.warnings[0]


@pytest.mark.parametrize(
    ("cpu", "lags", "is_saturated"),
    [
        ([0.2] * 20, [0.001] * 20, False),
        ([0.2] * 19 + [0.99], [0.001] * 20, False),  # one second of twenty
        ([0.2] * 18 + [0.99] * 2, [0.001] * 20, True),
        ([0.2] * 20, [0.001] * 18 + [0.2, 0.3], True),
        ([], [], False),
    ],
)
def test_a_busy_client_invalidates_a_run_by_the_share_of_its_busy_seconds(
    cpu: list[float], lags: list[float], is_saturated: bool
) -> None:
    assert client_load(cpu, lags).is_saturated is is_saturated


# -- GPUs -------------------------------------------------------------------------------------------------------------


class NVMLError(Exception):
    pass


class FakeNvml:
    """NVML's interface as `pynvml` has it, with two devices: the second tells neither power nor heat."""

    NVMLError = NVMLError
    NVML_TEMPERATURE_GPU = 0

    def __init__(self, reasons: int = 0) -> None:
        self._reasons = reasons
        self.is_open = False

    def nvmlInit(self) -> None:
        self.is_open = True

    def nvmlShutdown(self) -> None:
        self.is_open = False

    def nvmlDeviceGetCount(self) -> int:
        return 2

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        return index

    def nvmlDeviceGetName(self, device: int) -> Any:
        return b"H100" if device == 0 else "L4"  # old versions of the library give bytes

    def nvmlDeviceGetMemoryInfo(self, device: int) -> Any:
        return SimpleNamespace(used=40 * 2**30, total=80 * 2**30)

    def nvmlDeviceGetUtilizationRates(self, device: int) -> Any:
        return SimpleNamespace(gpu=93, memory=50)

    def nvmlDeviceGetPowerUsage(self, device: int) -> int:
        return self._told(device, 412_500)

    def nvmlDeviceGetTemperature(self, device: int, sensor: int) -> int:
        return self._told(device, 71)

    def nvmlDeviceGetCurrentClocksEventReasons(self, device: int) -> int:
        return self._reasons

    def _told(self, device: int, value: int) -> int:
        if device == 1:
            raise NVMLError("Not Supported")
        return value


class OldNvml(FakeNvml):
    """A library from before the call was renamed."""

    nvmlDeviceGetCurrentClocksEventReasons = None  # type: ignore[assignment]

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, device: int) -> int:
        return self._reasons


def test_the_gpus_tell_what_they_know_and_no_more() -> None:
    gpus = Gpus(FakeNvml())
    assert gpus.names == ("H100", "L4")
    assert gpus.read() == {
        "gpu0.memory_bytes": 40 * 2**30,
        "gpu0.utilisation_share": 0.93,
        "gpu0.power_w": 412.5,
        "gpu0.temperature_c": 71,
        "gpu0.throttled": 0,
        "gpu1.memory_bytes": 40 * 2**30,
        "gpu1.utilisation_share": 0.93,
        "gpu1.throttled": 0,
    }
    assert all(kind_of(name) for name in gpus.read())


@pytest.mark.parametrize("library", [FakeNvml, OldNvml])
def test_heat_and_power_count_as_throttling_and_idleness_does_not(library: type[FakeNvml]) -> None:
    hot, idle = Gpus(library(0x40 | 0x4)), Gpus(library(0x1))
    assert (hot.read()["gpu0.throttled"], idle.read()["gpu0.throttled"]) == (1, 0)
    assert hot.reasons == {"heat (hardware)", "power limit"}


def test_gpus_are_part_of_what_is_seen() -> None:
    async def test() -> Observer:
        async with Observer(gpus=Gpus(FakeNvml(0x40)), interval_s=0.01) as observer:
            await until(lambda: len(observer.seen.series.get("gpu0.power_w", [])) >= 2)
        return observer

    seen = asyncio.run(test()).seen
    assert seen.gpu_names == ("H100", "L4")
    kept = seen.observation()
    assert kept.warnings == seen.warnings
    assert kept.series["gpu0.power_w"].unit == "W"
    assert len(kept.series["gpu0.power_w"].values) == len(kept.series["gpu0.power_w"].at_s) >= 2
    assert seen.warnings == ("a GPU was held back: heat (hardware)",)
