"""NVIDIA GPUs of this machine, through NVIDIA's own library (extra `gpu`), read beside a run.

Where the library, its driver or a device is missing nothing is read, and nothing fails. A figure that a device does not
tell is left out.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

# Reasons for a lowered clock that mean heat or power, and not that there was nothing to do.
THROTTLE_REASONS: Mapping[int, str] = {
    0x0000000000000004: "power limit",
    0x0000000000000008: "hardware slowdown",
    0x0000000000000020: "heat (software)",
    0x0000000000000040: "heat (hardware)",
    0x0000000000000080: "power brake",
}


class Gpus:
    """The GPUs that a library with NVML's interface shows.

    Args:
        nvml: the module `pynvml`, or what stands for it.
    """

    def __init__(self, nvml: Any) -> None:
        self._nvml = nvml
        nvml.nvmlInit()
        count = nvml.nvmlDeviceGetCount()
        self._devices = [nvml.nvmlDeviceGetHandleByIndex(index) for index in range(count)]
        self.names = tuple(_text(nvml.nvmlDeviceGetName(device)) for device in self._devices)
        self.reasons: set[str] = set()  # why a clock was lowered, seen so far

    def read(self) -> dict[str, float]:
        """Return every figure of every device now, by the name of its series."""
        found: dict[str, float] = {}
        for number, device in enumerate(self._devices):
            for name, value in self._figures(device).items():
                found[f"gpu{number}.{name}"] = value
        return found

    def close(self) -> None:
        """Let go of the library."""
        with suppress(Exception):
            self._nvml.nvmlShutdown()

    def _figures(self, device: Any) -> dict[str, float]:
        nvml = self._nvml
        asked: dict[str, Callable[[], float]] = {
            "memory_bytes": lambda: nvml.nvmlDeviceGetMemoryInfo(device).used,
            "utilisation_share": lambda: nvml.nvmlDeviceGetUtilizationRates(device).gpu / 100,
            "power_w": lambda: nvml.nvmlDeviceGetPowerUsage(device) / 1000,
            "temperature_c": lambda: nvml.nvmlDeviceGetTemperature(device, nvml.NVML_TEMPERATURE_GPU),
            "throttled": lambda: self._throttled(device),
        }
        found = {}
        for name, ask in asked.items():
            with suppress(nvml.NVMLError):  # this device does not tell it
                found[name] = float(ask())
        return found

    def _throttled(self, device: Any) -> int:
        """Return 1 where heat or power hold the clock down. The call has a new name since driver 535."""
        ask = getattr(self._nvml, "nvmlDeviceGetCurrentClocksEventReasons", None)
        bits = (ask or self._nvml.nvmlDeviceGetCurrentClocksThrottleReasons)(device)
        seen = {words for bit, words in THROTTLE_REASONS.items() if bits & bit}
        self.reasons |= seen
        return int(bool(seen))


def find_gpus() -> Gpus | None:
    """Open the GPUs of this machine; None where there is no library, no driver or no device."""
    try:
        import pynvml
    except ImportError:
        return None
    try:
        gpus = Gpus(pynvml)
    except pynvml.NVMLError:
        return None
    return gpus if gpus.names else None


def _text(name: str | bytes) -> str:
    return name.decode("utf-8", "replace") if isinstance(name, bytes) else name
