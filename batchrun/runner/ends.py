"""How a session's work can end, and the waits that tests shorten."""

from dataclasses import dataclass
from enum import StrEnum

from batchrun.core.breaker import Trip
from batchrun.ledger.liveness import DEAD_AFTER_S, HEARTBEAT_S

TRIAL_ONLY = "trial_only"  # the reason of a job that rests after its trial, since no more was asked for


class EndKind(StrEnum):
    """How a session's work ended."""

    DONE = "done"  # nothing is left in the scope
    TRIPPED = "tripped"  # a guard stopped the job
    PAUSED = "paused"  # somebody paused it from elsewhere
    CANCELLED = "cancelled"
    DRAINED = "drained"  # a signal; what was in flight has finished
    ABORTED = "aborted"  # a second signal; what was in flight is in doubt
    LEFT = "left"  # the workers go on without the command that followed them
    LOST = "lost"  # another process holds the job now


@dataclass(frozen=True, slots=True)
class End:
    """One end: a trip where a guard stopped the job, a signal where one ended the process."""

    kind: EndKind
    trip: Trip | None = None
    signal: int | None = None


@dataclass(frozen=True, slots=True)
class Waits:
    """Durations in seconds. Nothing else about a session is adjustable."""

    idle_claim_s: float = 1.0
    never_reached_s: float = 10.0
    probe_s: float = 1.0
    drain_s: float = 600.0
    heartbeat_s: float = HEARTBEAT_S
    dead_after_s: float = DEAD_AFTER_S
    refused_s: float = 5.0  # how long a ledger that takes nothing is waited for at the end
