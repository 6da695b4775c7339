"""Who hears of what concerns more than one item."""

from typing import Protocol

from batchrun.core.breaker import Trip
from batchrun.core.outcome import Evidence
from batchrun.runner.lane import Lane


class Alarm(Protocol):
    """Hears of it. Called from the event loop; must not block."""

    def throttled(self, lane: Lane, evidence: Evidence, wait_s: float) -> None:
        """An endpoint asked for a pause, and is held back for so long."""
        ...

    def cooling(self, lane: Lane, evidence: Evidence, wait_s: float) -> None:
        """One of several endpoints is not well, and is left alone for so long."""
        ...

    def unreachable(self, lane: Lane, evidence: Evidence) -> None:
        """No request reaches this endpoint any more."""
        ...

    def refused(self, lane: Lane, trip: Trip) -> None:
        """This endpoint refuses everything, or does nothing right."""
        ...

    def doubted(self, lane: Lane, evidence: Evidence) -> None:
        """An item is in doubt."""
        ...

    def trip(self, trip: Trip) -> None:
        """The job must stop."""
        ...
