"""The clock by which a claim grows old."""

import time


def boot_clock() -> float:
    """Return seconds since boot, sleep included: a machine that slept must not send on an old claim."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()
