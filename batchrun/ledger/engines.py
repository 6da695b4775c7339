"""How the ledger's database is opened: which SQLite, which pragmas, which transactions; and Postgres."""

import importlib
import os
import sqlite3
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError

from batchrun.errors import LedgerFault, UsageFault

BUSY_TIMEOUT_S = 30.0
NETWORK_FILE_SYSTEMS = (
    "nfs",
    "cifs",
    "smb",
    "9p",
    "fuse.sshfs",
    "ceph",
    "glusterfs",
    "lustre",
    "afs",
    "ncpfs",
    "gfs",
    "ocfs",
)


def has_wal_reset_bug(version: tuple[int, int, int]) -> bool:
    """Say whether this SQLite can corrupt a WAL database when it resets the log (3.7.0 to 3.51.2, with two fixed lines)."""
    if version < (3, 7, 0) or version >= (3, 51, 3):
        return False
    major, minor, patch = version
    return not ((minor == 50 and patch >= 7) or (minor == 44 and patch >= 6))


def sqlite_module() -> ModuleType:
    """Return the DBAPI module with a sound SQLite: the standard library's, else pysqlite3's, else the first again."""
    if not has_wal_reset_bug(version_of(sqlite3)):
        return sqlite3
    with suppress(ImportError):
        other = importlib.import_module("pysqlite3")
        if not has_wal_reset_bug(version_of(other)):
            return other
    return sqlite3


def version_of(module: ModuleType) -> tuple[int, int, int]:
    """Return the version of a DBAPI module's SQLite library."""
    major, minor, patch = (int(part) for part in str(module.sqlite_version).split(".")[:3])
    return major, minor, patch


def journal_mode(module: ModuleType) -> str:
    """Return the journal that is safe with this SQLite: the write-ahead log, or a rollback journal where that has the bug."""
    return "DELETE" if has_wal_reset_bug(version_of(module)) else "WAL"


def parse_url(text: str) -> URL:
    """Read a ledger address; a bare path is a SQLite file.

    Raises:
        UsageFault: when it is neither SQLite nor Postgres.
    """
    if "://" not in text:
        text = f"sqlite:///{text}"
    try:
        url = make_url(text)
    except ArgumentError:
        raise UsageFault(
            "the ledger's address cannot be read", hint="use sqlite:///PATH or postgresql+psycopg://..."
        ) from None
    if url.drivername in ("postgres", "postgresql"):
        url = url.set(drivername="postgresql+psycopg")
    if url.get_backend_name() not in ("sqlite", "postgresql"):
        raise UsageFault(f"the ledger cannot be kept in {url.get_backend_name()!r}", hint="use sqlite or postgresql")
    if url.get_backend_name() == "sqlite" and url.database in (None, "", ":memory:"):
        raise UsageFault(
            "the ledger must be a file: a memory database forgets what was paid", hint="--db .batchrun/ledger.db"
        )
    return url


def open_engine(url: URL) -> Engine:
    """Open the database. A connection asks for a writing transaction by `execution_options(is_write=True)`.

    Raises:
        LedgerFault: the folder is on a network file system, or the driver is missing.
    """
    return _open_sqlite(url) if url.get_backend_name() == "sqlite" else _open_postgres(url)


def _open_sqlite(url: URL) -> Engine:
    path = Path(str(url.database)).absolute()
    if kind := network_file_system(path.parent):
        raise LedgerFault(
            f"{str(path)!r} lies on a network file system ({kind}): SQLite cannot keep its locks there",
            hint="put the ledger on a local disk with --db, or use Postgres",
        )
    module = sqlite_module()
    mode = journal_mode(module)
    engine = create_engine(
        url.set(database=str(path)), module=module, connect_args={"timeout": BUSY_TIMEOUT_S, "check_same_thread": False}
    )

    @event.listens_for(engine, "connect")
    def _configure(connection: Any, _record: object) -> None:
        connection.isolation_level = None  # the driver begins nothing by itself: its deferred BEGIN loses updates
        cursor = connection.cursor()
        cursor.execute(f"PRAGMA journal_mode={mode}")
        cursor.execute("PRAGMA synchronous=FULL")
        cursor.execute("PRAGMA foreign_keys=ON")
        cursor.execute("PRAGMA temp_store=MEMORY")
        cursor.close()

    @event.listens_for(engine, "begin")
    def _begin(connection: Connection) -> None:
        is_write = connection.get_execution_options().get("is_write", False)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if is_write else "BEGIN")

    return engine


def _open_postgres(url: URL) -> Engine:
    try:
        return create_engine(
            url,
            pool_pre_ping=True,
            connect_args={"options": "-c synchronous_commit=on -c timezone=UTC", "connect_timeout": 10},
        )
    except ModuleNotFoundError as error:
        raise LedgerFault(
            f"the ledger is in Postgres and the driver {error.name!r} is not installed",
            hint="pip install 'batchrun-llm[postgres]'",
        ) from None


def network_file_system(folder: Path) -> str | None:
    """Return the type of the network file system that holds `folder`, or None. Linux only; elsewhere None."""
    real = os.path.realpath(folder)
    best, kind = "", ""
    with suppress(OSError), open("/proc/self/mounts", encoding="utf-8", errors="replace") as mounts:
        for line in mounts:
            fields = line.split()
            point = fields[1].encode().decode("unicode_escape", "replace")
            inside = real == point or real.startswith(point.rstrip("/") + "/")
            if inside and len(point) >= len(best):
                best, kind = point, fields[2]
    return kind if kind.startswith(NETWORK_FILE_SYSTEMS) else None
