"""What wiring hands to a drive, what it speaks with, and what it comes to."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from batchrun.core.rate import RateWindows
from batchrun.ledger.jobs import Job
from batchrun.runner.ends import End, EndKind, Waits
from batchrun.runner.export import Outputs
from batchrun.runner.means import Log, Queue, Rules, Way
from batchrun.runner.progress import Watcher
from batchrun.runner.standing import Standing
from batchrun.runner.trial import TrialReport


class Scope(StrEnum):
    """How far a drive goes."""

    TRIAL = "trial"  # the trial and no further
    WHOLE = "whole"


@dataclass(frozen=True, slots=True)
class Gear:
    """How to reach the endpoints, judge, queue and wait, for any job of one ledger."""

    ways_of: Callable[[Job], Sequence[Way]]  # to its endpoints, at least one
    rules_of: Callable[[Job], Rules]
    account_of: Callable[[Job, str], str]  # a fingerprint of an address's key, for those who share answers
    windows_of: Callable[[Job, Way], RateWindows]
    is_free: Callable[[Job], bool]  # requests probably cost nothing there
    queue_of: Callable[[str], Queue]  # by the worker's incarnation
    waits_of: Callable[[Job], Waits]
    dead_after_s: float
    worker_name: str


@dataclass(frozen=True, slots=True)
class Voice:
    """What a drive tells, and asks, the person in front of it."""

    watch: Watcher
    say: Callable[[str], None]
    log: Log
    show_trial: Callable[[TrialReport], None]
    go_on: Callable[[TrialReport], bool]  # asked once after a trial that passed
    asks: Callable[[Job], bool]  # whether that asks a person


@dataclass(frozen=True, slots=True)
class Arrival:
    """How a drive ended: where the job stands, what was written, and which signal or guard stopped it."""

    standing: Standing
    outputs: Outputs | None
    trial: TrialReport | None = None
    end: End | None = None
    worked_s: float | None = None  # how long this very drive worked on it; None where others did

    @property
    def exit_code(self) -> int:
        if self.end is not None and self.end.signal is not None:
            return 128 + self.end.signal
        if self.end is not None and self.end.trip is not None:
            return self.end.trip.exit_code
        if self.end is not None and self.end.kind is EndKind.LEFT:
            return 0
        return self.standing.exit_code
