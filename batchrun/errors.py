"""The deliberate errors: each says what is true of the world now, what to type next, and how the process ends."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that is wrong with a spec or an input."""

    where: str  # "jobs/job.json line 4" or "input line 17"
    what: str  # what is wrong, the value seen, the bound
    hint: str  # one edit or one command

    def __str__(self) -> str:
        return f"{self.where}: {self.what}"


class BatchrunError(Exception):
    """Something the user can act on. Carries a `kind` for scripts, a hint, and the exit code of UX.md."""

    kind = "error"
    exit_code = 1

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class UsageFault(BatchrunError):
    """The command cannot be carried out as typed. Nothing was written and nothing was sent."""

    kind = "usage"
    exit_code = 2


class SpecNotFound(UsageFault):
    """There is no spec file of this name. Nothing was written and nothing was sent."""

    def __init__(self, message: str, path: Path, *, hint: str | None = None) -> None:
        self.path = path
        super().__init__(message, hint=hint)


class BadInput(BatchrunError):
    """The spec or the input is faulty. Nothing was sent, and the job was not registered."""

    kind = "bad_input"
    exit_code = 2

    def __init__(self, faults: Sequence[Fault], *, total: int | None = None, hint: str | None = None) -> None:
        self.faults = tuple(faults)
        self.total = len(self.faults) if total is None else total
        noun = "fault" if self.total == 1 else "faults"
        super().__init__(f"{self.total:,} {noun} found before anything was sent", hint=hint)


class JobNotFound(BatchrunError):
    """No job of this name stands in the ledger."""

    kind = "job_not_found"
    exit_code = 2


class IllegalMove(BatchrunError):
    """The job or item is not in a state from which this is allowed. Nothing was changed."""

    kind = "illegal_move"
    exit_code = 2


class SpecChanged(BatchrunError):
    """The job stands in the ledger with another input or other parameters. Nothing was changed or sent."""

    kind = "job_changed"
    exit_code = 2


class JobBusy(BatchrunError):
    """Another living process performs the job. Nothing was changed."""

    kind = "job_busy"
    exit_code = 9


class LedgerFault(BatchrunError):
    """The ledger cannot be used as it is: unreachable, of another schema, or on a disk that cannot keep it."""

    kind = "ledger"
    exit_code = 1


class LedgerMoved(LedgerFault):
    """The ledger is closed: its jobs are in another database, or on their way there. Nothing was changed."""

    kind = "ledger_moved"


class LedgerCopied(LedgerFault):
    """Another copy of this ledger has performed the job since: this one is behind. Nothing was sent."""

    kind = "ledger_copied"


class LedgerFull(LedgerFault):
    """The ledger's disk takes no more. Nothing paid is lost: answers wait in the worker's spool."""

    kind = "disk_full"
    exit_code = 5


class EndpointFault(BatchrunError):
    """The endpoint cannot be used as configured. Nothing was sent."""

    kind = "endpoint"
    exit_code = 2
