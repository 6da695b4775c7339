"""Whether a ledger's file is whole: SQLite takes an empty one for a new database, and does not miss half a page."""

import time
from pathlib import Path
from typing import Any

from batchrun.errors import LedgerFault

WORKERS = "workers"  # the folder of locks and spools beside a SQLite ledger; the first worker makes it
LOOKS, BETWEEN_LOOKS_S = 5, 0.1


def refuse_emptied(path: Path) -> None:
    """Refuse a file without a byte in it where a ledger has been: beside what its workers, or SQLite, have left.

    A file that is not there is another matter: that is a new ledger, or somebody's decision. This is to be asked before
    SQLite sees the file: beside an empty one it deletes the write-ahead log, with all that is in it.

    Raises:
        LedgerFault: the file was emptied. Nothing was changed.
    """
    for _ in range(LOOKS):  # another process may be about to write the first page of a new ledger
        try:
            # In this order: whoever makes a ledger writes its first page before any of these is there. A rollback
            # journal is no sign, since it is there before the first page is.
            was_used = (path.parent / WORKERS).is_dir() or _has_content(path.with_name(f"{path.name}-wal"))
            if not (was_used and path.exists() and path.stat().st_size == 0):
                return
        except OSError:
            return  # whoever opens it says what is wrong
        time.sleep(BETWEEN_LOOKS_S)
    raise LedgerFault(
        f"the ledger {str(path)!r} is empty, and has been in use: what was sent and billed is not known any more",
        hint=f"put the ledger back from a copy; only to begin anew, and perhaps to pay again: rm {path}",
    )


def refuse_cut(cursor: Any, path: Path) -> None:
    """Refuse a file that ends in the middle of a page, with no journal that would make it whole. SQLite counts such a
    page and reads what is missing as zeros; a file that misses whole pages it refuses by itself.

    Args:
        cursor: of a connection to the file, which alone may open it: to close it again would end SQLite's locks.

    Raises:
        LedgerFault: the file was cut off. Nothing was changed.
    """
    for _ in range(LOOKS):  # another process may be writing its last page, or putting its journal away
        page_bytes = int(cursor.execute("PRAGMA page_size").fetchone()[0])
        if path.stat().st_size % page_bytes == 0 or _has_journal(path):
            return
        time.sleep(BETWEEN_LOOKS_S)
    raise LedgerFault(
        f"the ledger {str(path)!r} is cut off: its last page is not whole",
        hint="put the ledger back from a copy; nothing was changed",
    )


def _has_journal(path: Path) -> bool:
    return any(_has_content(path.with_name(f"{path.name}-{kind}")) for kind in ("wal", "journal"))


def _has_content(path: Path) -> bool:
    return path.exists() and path.stat().st_size > 0
