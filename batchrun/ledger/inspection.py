"""A look at a ledger from outside: its schema and its engine, without changing anything; and its upgrade."""

from dataclasses import dataclass, field
from pathlib import Path

from batchrun.ledger.engines import (
    file_of,
    has_wal_reset_bug,
    journal_mode,
    open_engine,
    parse_url,
    shown,
    sqlite_module,
    version_of,
)
from batchrun.ledger.ledger import foreign_errors
from batchrun.ledger.migrate import current_revision, upgrade
from batchrun.ledger.schema import SCHEMA_REVISION
from batchrun.ledger.seal import closed_why


@dataclass
class Found:
    """What a look at a ledger found."""

    where: str
    engine: str
    journal: str | None
    revision: str | None
    known_revision: str = SCHEMA_REVISION
    warnings: list[str] = field(default_factory=list)
    closed: str | None = None  # why nothing runs here, in words: it was moved, or a move to here is not finished

    @property
    def is_current(self) -> bool:
        return self.revision == self.known_revision

    @property
    def is_usable(self) -> bool:
        return self.is_current and self.closed is None


def missing_ledger(address: str) -> Path | None:
    """Return the path of a SQLite ledger that is not there; None where it is, and for a ledger that is no file."""
    url = parse_url(address)
    file = file_of(url)
    return file if file is not None and not file.exists() else None


def inspect_ledger(address: str) -> Found:
    """Look at the ledger at `address`; a SQLite file that is not there is not made.

    Raises:
        LedgerFault: it cannot be reached.
    """
    url = parse_url(address)
    where = f"ledger {shown(url)}"
    if url.get_backend_name() != "sqlite":
        found = Found(where, "Postgres", None, None)
    else:
        module = sqlite_module()
        found = Found(
            where, f"SQLite {module.sqlite_version} ({module.__name__.split('.')[0]})", journal_mode(module), None
        )
        if has_wal_reset_bug(version_of(module)):
            found.warnings.append(
                "this SQLite can corrupt a write-ahead log: a rollback journal is used, which is slower"
            )
        if missing_ledger(address):
            found.warnings.append("there is no ledger yet; the first submit makes it")
            return found
    engine = open_engine(url)
    try:
        with foreign_errors(where), engine.connect() as connection:
            found.revision = current_revision(connection)
            if found.revision == SCHEMA_REVISION:
                found.closed = closed_why(connection, where)
    finally:
        engine.dispose()
    return found


def upgrade_ledger(address: str) -> tuple[str, str | None, str]:
    """Upgrade the ledger at `address`, making it where there is none; return (where, before, after)."""
    url = parse_url(address)
    where = f"ledger {shown(url)}"
    if file := file_of(url):
        file.parent.mkdir(parents=True, exist_ok=True)
    engine = open_engine(url)
    try:
        with foreign_errors(where):
            before, after = upgrade(engine, where=where)
    finally:
        engine.dispose()
    return where, before, after
