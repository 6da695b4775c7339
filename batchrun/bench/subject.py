"""What is read: the result file of a measurement, or a job of the ledger."""

import json
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from batchrun.bench.job import JobFacts, read_job
from batchrun.core.measuring.document import KIND, Measurement, NoMeasurement
from batchrun.errors import UsageFault
from batchrun.ledger.ledger import Ledger

OpenLedger = Callable[[], AbstractContextManager[Ledger]]


@dataclass(frozen=True, slots=True)
class Subject:
    """A measurement; of a job with what else the ledger knows of it."""

    name: str  # as it was named
    measurement: Measurement
    facts: JobFacts | None = None


def read_subject(name: str, open_ledger: OpenLedger) -> Subject:
    """Read what is named: a file that holds a result, or else a job (by its name, or by its spec).

    Raises:
        UsageFault: the file is no result.
        JobNotFound: there is no such file and no such job.
    """
    path = Path(name)
    if path.is_file() and (path.suffix != ".json" or not _is_spec(path)):
        return Subject(name, read_result(path))
    with open_ledger() as ledger:
        measurement, facts = read_job(ledger, _task_id(path) or name)
    return Subject(measurement.id, measurement, facts)


def read_result(path: Path) -> Measurement:
    """Read a result file.

    Raises:
        UsageFault: it is none.
    """
    try:
        return Measurement.from_json(path.read_bytes())
    except OSError as error:
        raise UsageFault(
            f"{str(path)!r} cannot be read: {error.strerror}", hint="name a result file, or a job of this ledger"
        ) from error
    except NoMeasurement as error:
        raise UsageFault(
            f"{str(path)!r} is no result that can be read: {error}",
            hint="name a file that a measurement wrote, or a job of this ledger",
        ) from error


def _is_spec(path: Path) -> bool:
    return _task_id(path) is not None


def _task_id(path: Path) -> str | None:
    """Return the job's name where the path is a spec's."""
    try:
        value = json.loads(path.read_bytes()) if path.is_file() else None
    except (OSError, ValueError, RecursionError):
        return None
    found = value.get("task_id") if isinstance(value, dict) and value.get("kind") != KIND else None
    return found if isinstance(found, str) else None
