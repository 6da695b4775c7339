"""The names of a ledger's jobs, for a shell that completes a word: read without opening the ledger, or not at all."""

import re
import sqlite3
from contextlib import closing
from pathlib import Path

PATIENCE_S = 1  # a shell waits for this; whatever keeps the ledger busy does not
MOST_NAMES = 200
_SQLITE = re.compile(r"sqlite(\+\w+)?:///")
_POSTGRES = re.compile(r"postgres(ql)?(\+\w+)?://")
_NAMES = "SELECT task_id FROM jobs WHERE substr(task_id, 1, {count}) = {text} ORDER BY id DESC LIMIT {most}"


def job_names(address: str, beginning: str) -> list[str]:
    """Return the names that begin so, the latest job first. Nothing is made, changed or upgraded.

    Neither SQLAlchemy nor the ledger's own pragmas take part: a word must be completed while one waits for it.

    Raises:
        Exception: of the driver, or FileNotFoundError; whoever completes words has no use for the difference.
    """
    if _POSTGRES.match(address):
        return _from_postgres(_POSTGRES.sub("postgresql://", address), beginning)
    path = Path(_SQLITE.sub("", address))
    if path.stat().st_size == 0:  # beside an empty file SQLite deletes the log
        return []
    # A connection that only reads does not checkpoint, so that the fault of old SQLites with a WAL cannot strike. Where
    # nobody has the ledger open it would make the files of a log, and leave them, unless told that there is no writer.
    way = "mode=ro" if path.with_name(f"{path.name}-wal").exists() else "immutable=1"
    uri = f"{path.absolute().as_uri()}?{way}"
    with closing(sqlite3.connect(uri, timeout=PATIENCE_S, uri=True)) as connection:
        query = _NAMES.format(count="?", text="?", most="?")
        return [name for (name,) in connection.execute(query, (len(beginning), beginning, MOST_NAMES))]


def _from_postgres(address: str, beginning: str) -> list[str]:
    import psycopg

    options = f"-c statement_timeout={PATIENCE_S}s -c default_transaction_read_only=on"
    with psycopg.connect(address, connect_timeout=2, options=options) as connection:
        query = _NAMES.format(count="%s", text="%s", most="%s")
        return [name for (name,) in connection.execute(query, (len(beginning), beginning, MOST_NAMES)).fetchall()]
