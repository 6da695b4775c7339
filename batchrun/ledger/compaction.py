"""Writing a SQLite ledger's file anew, so that nothing is left in it of what was deleted.

Overwriting what is deleted is not enough: when SQLite moves rows from page to page it leaves copies behind, in places
of a page that no row owns. Only a file that is written anew has none.
"""

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from enum import StrEnum
from pathlib import Path

from batchrun.errors import LedgerFault
from batchrun.ledger.ledger import Ledger

PATIENCE_S = 3.0
OPEN_FILES = Path("/proc/self/fd")


class Compaction(StrEnum):
    """What became of it."""

    DONE = "done"  # the file and its log hold what the ledger holds, and nothing else
    NOT_NEEDED = "not_needed"  # no file of ours: deleted rows are the database server's business
    BUSY = "busy"  # another process has the ledger open
    NO_SPACE = "no_space"  # the copy does not fit on the disk


def compact(ledger: Ledger, *, patience_s: float = PATIENCE_S) -> Compaction:
    """Write the ledger's file anew, where nobody else has it open. A process that dies in it has changed nothing.

    It takes disk space for two more copies of what is left in the ledger, one of them where temporary files lie.

    Args:
        patience_s: how long others are given to close it.

    Raises:
        LedgerFault: the file cannot be read.
    """
    path = ledger.file
    if path is None:
        return Compaction.NOT_NEEDED
    ledger.close()  # its connections would be in the way; the next transaction opens new ones
    if _is_open_here(path):
        return Compaction.BUSY
    try:
        with _alone(path, patience_s) as connection:
            # crash point: purge-compacting
            connection.execute("VACUUM")
        # crash point: purge-compacted
    except sqlite3.OperationalError as error:
        if "locked" in str(error):
            _empty_log(ledger)
            return Compaction.BUSY
        if "full" in str(error) or "disk I/O" in str(error):
            return Compaction.NO_SPACE
        raise LedgerFault(f"{ledger.where} cannot be written anew: {error}", hint="batchrun db check") from error
    except sqlite3.DatabaseError as error:
        raise LedgerFault(f"{ledger.where} cannot be written anew: {error}", hint="batchrun db check") from error
    return Compaction.DONE


@contextmanager
def _alone(path: Path, patience_s: float) -> Iterator[sqlite3.Connection]:
    """Open the file for nobody but us, without its write-ahead log; who comes meanwhile waits.

    By the standard library's SQLite: it keeps the copy in a temporary file, where pysqlite3's would keep it in memory.
    Its fault concerns the write-ahead log, which is not used here; the next connection sets it again.
    """
    with closing(sqlite3.connect(path, timeout=patience_s, isolation_level=None)) as connection:
        connection.execute("PRAGMA temp_store=FILE")
        connection.execute("PRAGMA synchronous=FULL")
        connection.execute("PRAGMA locking_mode=EXCLUSIVE")
        # Truncated and not deleted: a journal that comes back after a power failure would undo what followed it.
        mode = connection.execute("PRAGMA journal_mode=TRUNCATE").fetchone()[0]
        if mode != "truncate":
            raise sqlite3.OperationalError("database is locked")
        yield connection


def _is_open_here(path: Path) -> bool:
    """Say whether this very process still has the file open: the locks of two SQLites in one process do not meet."""
    for link in OPEN_FILES.glob("*"):
        with suppress(OSError):
            if os.path.samefile(link, path):
                return True
    return False


def _empty_log(ledger: Ledger) -> None:
    """Take what is settled out of the write-ahead log, where others let us."""
    with (
        closing(ledger.engine.raw_connection()) as connection,
        closing(connection.cursor()) as cursor,
        suppress(Exception),  # of whichever driver this is; what stays in the log is told of anyway
    ):
        cursor.execute("PRAGMA wal_checkpoint(TRUNCATE)")
