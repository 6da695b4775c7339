"""What a look finds, and how many looks are taken side by side, none of which can hold up or hide another."""

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from batchrun.errors import BatchrunError

LIMIT_S = 3.0  # what one check may take


class Level(StrEnum):
    """How bad it is."""

    OK = "ok"
    WARN = "warn"  # a job runs, and something is not as it should be
    FAIL = "fail"  # a job does not run, or its promise does not hold


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at."""

    name: str  # a word or two
    level: Level
    said: str  # what was seen
    mend: str | None  # one command or one edit; None where nothing is to be mended


@dataclass(slots=True)
class Notes:
    """The findings of one check so far. What stands here when its time is up is kept."""

    findings: list[Finding] = field(default_factory=list)

    def ok(self, name: str, said: str) -> None:
        self.findings.append(Finding(name, Level.OK, said, None))

    def warn(self, name: str, said: str, mend: str) -> None:
        self.findings.append(Finding(name, Level.WARN, said, mend))

    def fail(self, name: str, said: str, mend: str) -> None:
        self.findings.append(Finding(name, Level.FAIL, said, mend))


@dataclass(frozen=True, slots=True)
class Check:
    """One part of the whole, and who looks at it."""

    area: str  # "ledger", "broker", ...
    subject: str | None  # which one: an address without secrets
    look: Callable[[Notes], None]
    silence: str = "look at its own log, and at the network between"  # the mend where no answer comes in time
    limit_s: float = LIMIT_S


@dataclass(frozen=True, slots=True)
class Section:
    """What one check found."""

    area: str
    subject: str | None
    findings: tuple[Finding, ...]


def examine(checks: Sequence[Check]) -> list[Section]:
    """Take all looks at once, and return what they found in the order of the checks.

    One that takes longer than its limit is left behind, and what it had found by then is kept with a failure.
    """
    began = time.monotonic()
    looks = [_Look(check) for check in checks]
    for look in looks:
        look.start()
    return [look.section(until=began + look.check.limit_s) for look in looks]


class _Look(threading.Thread):
    """A thread of its own, which the process does not wait for at its end: some answers never come."""

    def __init__(self, check: Check) -> None:
        super().__init__(name=f"doctor-{check.area}", daemon=True)
        self.check = check
        self._notes = Notes()

    def run(self) -> None:
        try:
            self.check.look(self._notes)
        except BatchrunError as error:
            self._notes.fail("usable", error.message, error.hint or self.check.silence)
        except Exception as error:
            words = next(iter(str(error).splitlines()), "no message")
            self._notes.fail("usable", f"{type(error).__name__}: {words}", self.check.silence)

    def section(self, *, until: float) -> Section:
        """Wait until then on the monotonic clock, at the longest."""
        self.join(max(0.0, until - time.monotonic()))
        is_late = self.is_alive()
        found = tuple(self._notes.findings)
        if is_late:
            said = f"no answer within {self.check.limit_s:g} s"
            found = (*found, Finding("answer", Level.FAIL, said, self.check.silence))
        return Section(self.check.area, self.check.subject, found)
