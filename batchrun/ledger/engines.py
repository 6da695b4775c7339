"""How the ledger's database is opened: which SQLite, which pragmas, which transactions; and Postgres."""

import importlib
import os
import re
import sqlite3
import time
from collections.abc import Sequence
from contextlib import closing, suppress
from pathlib import Path
from types import ModuleType
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError

from batchrun.errors import LedgerFault, UsageFault
from batchrun.ledger.intact import refuse_cut, refuse_emptied

BUSY_TIMEOUT_S = 30.0
IDLE_TRANSACTION_S = 20.0  # then Postgres takes back what a process that says nothing has locked
MOUNTS = Path("/proc/self/mounts")
# The beginnings of their types. What a fuse program does not say of itself cannot be known.
NETWORK_FILE_SYSTEMS = (
    "nfs",
    "cifs",
    "smb",
    "9p",
    "afs",
    "beegfs",
    "ceph",
    "fuse.ceph",
    "fuse.gcsfuse",
    "fuse.gluster",
    "fuse.juicefs",
    "fuse.rclone",
    "fuse.s3fs",
    "fuse.sshfs",
    "gfs",
    "gluster",
    "gpfs",
    "lustre",
    "ncpfs",
    "ocfs",
)


def has_wal_reset_bug(version: tuple[int, int, int]) -> bool:
    """Say whether this SQLite can corrupt a WAL database when it resets the log: 3.7.0 to 3.51.2 but for two lines."""
    is_mended = (3, 44, 6) <= version < (3, 45, 0) or (3, 50, 7) <= version < (3, 51, 0)
    return (3, 7, 0) <= version < (3, 51, 3) and not is_mended


def sqlite_module(candidates: Sequence[str] = ("sqlite3", "pysqlite3")) -> ModuleType:
    """Return the first installed DBAPI module whose SQLite is sound, else the standard library's."""
    for name in candidates:
        with suppress(ImportError):
            module = importlib.import_module(name)
            if not has_wal_reset_bug(version_of(module)):
                return module
    return sqlite3


def version_of(module: ModuleType) -> tuple[int, int, int]:
    """Return the version of a DBAPI module's SQLite library."""
    major, minor, patch = (int(part) for part in str(module.sqlite_version).split(".")[:3])
    return major, minor, patch


def journal_mode(module: ModuleType) -> str:
    """Return the journal that is safe with this SQLite: the write-ahead log, or a rollback journal where that is not.

    The rollback journal is truncated: of the kinds there are, that one is synced when it ends a transaction. A journal
    that is deleted can come back after a power failure and take the last commit, an intent perhaps, away.
    """
    return "TRUNCATE" if has_wal_reset_bug(version_of(module)) else "WAL"


def parse_url(text: str) -> URL:
    """Read a ledger address; a bare path is a SQLite file.

    Raises:
        UsageFault: when it is neither SQLite nor Postgres.
    """
    try:
        url = make_url(text) if "://" in text else URL.create("sqlite", database=text)
    except ArgumentError:
        raise UsageFault(
            "the ledger's address cannot be read", hint="use sqlite:///PATH or postgresql+psycopg://..."
        ) from None
    match url.drivername.split("+")[0]:
        case "sqlite":
            url = url.set(drivername="sqlite")
        case "postgres" | "postgresql":
            url = url.set(drivername="postgresql+psycopg")
        case other:
            raise UsageFault(f"the ledger cannot be kept in {other!r}", hint="use sqlite or postgresql")
    if url.get_backend_name() == "sqlite" and url.database in (None, "", ":memory:"):
        raise UsageFault(
            "the ledger must be a file: a memory database forgets what was paid", hint="--db .batchrun/ledger.db"
        )
    return url


def shown(url: URL) -> str:
    """Write an address for people: without its password, wherever in it that stands."""
    if url.get_backend_name() == "sqlite":
        return str(url.database)
    return url.set(query={}).render_as_string(hide_password=True)


def file_of(url: URL) -> Path | None:
    """Return the file of a SQLite ledger, as it was named; None where the ledger is on a server."""
    return Path(str(url.database)) if url.get_backend_name() == "sqlite" else None


def open_engine(url: URL, *, busy_timeout_s: float = BUSY_TIMEOUT_S, mounts: Path = MOUNTS) -> Engine:
    """Open the database. A connection asks for a writing transaction by `execution_options(is_write=True)`.

    Args:
        busy_timeout_s: how long a SQLite writer waits for another.

    Raises:
        LedgerFault: the folder is on a network file system, the file is not whole, or the driver is missing.
    """
    path = file_of(url)
    if path is None:
        return _open_postgres(url)
    path = path.absolute()
    if kind := network_file_system(path.parent, mounts=mounts):
        raise LedgerFault(
            f"{str(path)!r} lies on a network file system ({kind}): SQLite cannot keep its locks there",
            hint="put the ledger on a local disk with --db, or use Postgres",
        )
    refuse_emptied(path)
    return _open_sqlite(path, busy_timeout_s)


def _open_sqlite(path: Path, busy_timeout_s: float) -> Engine:
    module = sqlite_module()
    mode = journal_mode(module)
    engine = create_engine(
        URL.create("sqlite", database=str(path)),
        module=module,
        connect_args={"timeout": busy_timeout_s, "check_same_thread": False},
    )

    @event.listens_for(engine, "connect")
    def _configure(connection: Any, _record: object) -> None:
        try:
            _set_pragmas(connection, mode, busy_timeout_s)
            with closing(connection.cursor()) as cursor:
                refuse_cut(cursor, path)
        except BaseException:
            connection.close()
            raise

    @event.listens_for(engine, "begin")
    def _begin(connection: Connection) -> None:
        is_write = connection.get_execution_options().get("is_write", False)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if is_write else "BEGIN")

    return engine


def _set_pragmas(connection: Any, mode: str, patience_s: float) -> None:
    connection.isolation_level = None  # the driver begins nothing by itself: its deferred BEGIN loses updates
    with closing(connection.cursor()) as cursor:
        found = set_journal(cursor, mode, patience_s)
        if found == "wal" and mode != "WAL":
            raise LedgerFault(
                "the ledger has a write-ahead log, which the SQLite of this Python can corrupt",
                hint="pip install pysqlite3, or end the other processes that use this ledger",
            )
        cursor.execute("PRAGMA synchronous=FULL")
        cursor.execute("PRAGMA foreign_keys=ON")
        cursor.execute("PRAGMA temp_store=MEMORY")
        cursor.execute("PRAGMA secure_delete=ON")  # what is deleted is overwritten, on every page that is left behind


def set_journal(cursor: Any, mode: str, patience_s: float) -> str:
    """Set the journal mode and return the one the file now has.

    Two connections that change a new file at once would wait for each other, so SQLite refuses one of them at once
    instead of waiting its busy timeout: the wait is ours.
    """
    deadline = time.monotonic() + patience_s
    while True:
        try:
            return str(cursor.execute(f"PRAGMA journal_mode={mode}").fetchone()[0])
        except Exception as error:  # of whichever driver this is
            if "locked" not in str(error) or time.monotonic() > deadline:
                raise
        time.sleep(0.01)


def _open_postgres(url: URL) -> Engine:
    # What the server or the role sets by default does not hold here; what the user set in the address does.
    given = url.query.get("options", "")
    said = given if isinstance(given, str) else " ".join(given)
    # A process that is stopped in the middle of a transaction holds its locks: everybody else would wait for it.
    patience = f"-c idle_in_transaction_session_timeout={int(IDLE_TRANSACTION_S * 1000)}"
    options = f"{patience} {said} -c synchronous_commit=on -c timezone=UTC"
    try:
        return create_engine(
            url.difference_update_query(["options"]),
            pool_pre_ping=True,
            isolation_level="READ COMMITTED",  # a guard must see what was committed while it waited for its lock
            connect_args={"options": options.strip(), "connect_timeout": 10},
        )
    except ModuleNotFoundError as error:
        raise LedgerFault(
            f"the ledger is in Postgres and the driver {error.name!r} is not installed",
            hint="install the extra: .venv/bin/pip install '.[postgres]'",
        ) from None


def network_file_system(folder: Path, *, mounts: Path = MOUNTS) -> str | None:
    """Return the type of the network file system that holds `folder`, or None. Linux only; elsewhere None."""
    kind = file_system(folder, mounts=mounts)
    return kind if kind.startswith(NETWORK_FILE_SYSTEMS) else None


def file_system(folder: Path, *, mounts: Path = MOUNTS) -> str:
    """Return the type of the file system that holds `folder`, such as "ext4"; "" where the system does not tell."""
    real = os.path.realpath(folder)
    best, kind = "", ""
    with suppress(OSError), mounts.open(encoding="utf-8", errors="surrogateescape") as lines:
        for line in lines:
            _, point, found, *_ = line.split(" ")
            point = re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal[1], 8)), point)
            inside = real == point or real.startswith(point.rstrip("/") + "/")
            if inside and len(point) >= len(best):  # of two mounts on one point the later one is seen
                best, kind = point, found
    return kind
