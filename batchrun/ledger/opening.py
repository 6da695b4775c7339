"""Opening a ledger by settings: the one that is there, or a new one where that is wanted."""

from collections.abc import Iterator
from contextlib import contextmanager

from batchrun.errors import JobNotFound
from batchrun.ledger.inspection import missing_ledger
from batchrun.ledger.ledger import Ledger
from batchrun.settings import Settings


@contextmanager
def open_ledger(settings: Settings, *, makes_one: bool = False) -> Iterator[Ledger]:
    """Open the ledger that the settings name, and close it at the end.

    Raises:
        JobNotFound: there is no ledger, and none is to be made.
        LedgerFault: it cannot be used.
    """
    if not makes_one and (missing := missing_ledger(settings.db)):
        raise JobNotFound(
            f"there is no ledger at {str(missing)!r}: nothing was submitted from here",
            hint="batchrun submit jobs/job.json makes one; --db names another",
        )
    ledger = Ledger(settings.db, folder=settings.home.absolute())
    try:
        yield ledger
    finally:
        ledger.close()
