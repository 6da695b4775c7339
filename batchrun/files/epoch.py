"""The epoch file beside a job's output: how far the ledger is that performed the job last.

A ledger that was copied, or restored from a backup, and the one it was copied from know nothing of each other. But both
would write to one output, and there the later one finds that the job has gone on without it.
"""

import errno
import fcntl
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from batchrun.errors import LedgerFault
from batchrun.files.derived import DerivedFile

MOST_BYTES = 4_096
PATIENCE_S = 10.0


@dataclass(frozen=True, slots=True)
class Epoch:
    """One instant of a job in the life of its ledger."""

    ledger: str  # its id: copies have the same
    job: str
    epoch: int  # grows whenever a process begins to perform the job, and while it does
    token: str  # of that process: no two have the same

    def is_beyond(self, known: "Epoch") -> bool:
        """Say whether this was written by another copy of the ledger that knows `known`: what it wrote itself is not.

        A ledger writes down an epoch before the file has it. So the file may be behind, but never ahead.
        """
        if (self.ledger, self.job) != (known.ledger, known.job):
            return False  # of another ledger that wrote here before; of that one nothing can be known
        return self.epoch > known.epoch or (self.epoch == known.epoch and self.token != known.token)


def epoch_file(output: Path) -> Path:
    """Return where it lies: `batch_output.jsonl` -> `.batch_output.jsonl.epoch`."""
    return output.with_name(f".{output.name}.epoch")


def read_epoch(output: Path) -> Epoch | None:
    """Read the file; None where there is none, which is fine: a first run, another host, outputs that were moved.

    Raises:
        LedgerFault: it is there and says nothing that can be understood.
    """
    path = epoch_file(output)
    try:
        with path.open("rb") as file:
            value = json.loads(file.read(MOST_BYTES))
        return Epoch(**{field.name: _of_kind(value[field.name], field.type) for field in fields(Epoch)})
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it holds something else"
        raise LedgerFault(
            f"{str(path)!r} says whether another copy of the ledger has run this job, and cannot be read: {why}",
            hint=f"make it readable; or, if there is no other copy, rm {path}",
        ) from None


def _of_kind(value: Any, kind: Any) -> Any:
    if not isinstance(value, kind):
        raise TypeError
    return value


def write_epoch(output: Path, epoch: Epoch) -> None:
    """Replace the file, durably.

    Raises:
        OSError: with `filename` set to its path.
    """
    with DerivedFile(epoch_file(output)) as file:
        file.write(json.dumps(asdict(epoch)).encode() + b"\n")


@contextmanager
def alone_at(output: Path, *, patience_s: float = PATIENCE_S) -> Iterator[bool]:
    """Keep other processes from beginning a job of this folder; False where one kept us from it for `patience_s`.

    Where the file system of the folder cannot lock it, nobody is kept away.
    """
    try:
        fd = os.open(output.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        yield True  # whoever writes the file will say what is wrong with the folder
        return
    try:
        yield _lock(fd, patience_s)
    finally:
        os.close(fd)


def _lock(fd: int, patience_s: float) -> bool:
    deadline = time.monotonic() + patience_s
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno not in (errno.EAGAIN, errno.EACCES):
                return True
            if time.monotonic() >= deadline:
                return False
            time.sleep(0.02)
        else:
            return True
