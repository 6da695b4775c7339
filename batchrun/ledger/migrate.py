"""Brings a ledger's schema to the one this release knows: made when absent, upgraded in one transaction."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection, Engine, inspect, text

from batchrun.errors import LedgerFault
from batchrun.ledger.schema import SCHEMA_REVISION

if TYPE_CHECKING:
    from alembic.config import Config

_UPGRADE_LOCK = 0x6261746368  # "batch": the key of Postgres' advisory lock


def migrations_folder() -> Path:
    """Return the Alembic environment: inside the installed package, or beside it in a checkout."""
    package = Path(__file__).resolve().parent.parent
    shipped = package / "_migrations"
    return shipped if shipped.is_dir() else package.parent / "migrations"


def current_revision(connection: Connection) -> str | None:
    """Return the schema revision the ledger says it has; None when it holds no ledger."""
    if not inspect(connection).has_table("alembic_version"):
        return None
    return connection.execute(text("SELECT version_num FROM alembic_version")).scalar()


def ensure_schema(engine: Engine, *, where: str) -> None:
    """Create the schema in an empty database; refuse any other but the current one.

    Raises:
        LedgerFault: the database holds other tables, or a ledger of another release.
    """
    with engine.connect() as connection:
        if current_revision(connection) == SCHEMA_REVISION:
            return
    with _alone(engine) as connection:  # what was seen above may have been another process half-way through
        before = current_revision(connection)
        if before is None and not inspect(connection).get_table_names():
            _upgrade(connection)
        elif before != SCHEMA_REVISION:
            raise _refusal(connection, before, where=where)
    # crash point: schema-durable


def upgrade(engine: Engine, *, where: str) -> tuple[str | None, str]:
    """Upgrade to the current schema in one transaction, one process at a time; return (before, after).

    Raises:
        LedgerFault: the ledger is of a later release, or the database holds other tables.
    """
    with _alone(engine) as connection:
        before = current_revision(connection)
        is_empty = before is None and not inspect(connection).get_table_names()
        if not is_empty and before not in known_revisions():
            raise _refusal(connection, before, where=where)
        if before != SCHEMA_REVISION:
            _upgrade(connection)
        return before, SCHEMA_REVISION


@contextmanager
def _alone(engine: Engine) -> Iterator[Connection]:
    """Open the one transaction in which the schema may change; other processes wait for its end."""
    with (
        engine.connect().execution_options(is_write=True) as connection,
        _references_unwatched(connection),
        connection.begin(),
    ):
        if engine.dialect.name == "postgresql":
            connection.execute(text(f"SELECT pg_advisory_xact_lock({_UPGRADE_LOCK})"))
        yield connection
        if engine.dialect.name == "sqlite" and (loose := connection.execute(text("PRAGMA foreign_key_check")).first()):
            raise LedgerFault(
                f"the upgrade would leave rows of {loose[0]!r} that refer to nothing; nothing was changed",
                hint="keep the release that wrote this ledger, and report this",
            )


@contextmanager
def _references_unwatched(connection: Connection) -> Iterator[None]:
    """Let SQLite rebuild a table that others refer to: to drop the old one would count as a violation.

    It cannot be set inside a transaction, so it is set on the driver's own connection before one begins.
    """
    if connection.dialect.name != "sqlite":
        yield
        return
    driver: Any = connection.connection.driver_connection
    driver.execute("PRAGMA foreign_keys=OFF")
    try:
        yield
    finally:
        driver.execute("PRAGMA foreign_keys=ON")


def _upgrade(connection: Connection) -> None:
    from alembic import command  # 0.4 s to import, needed once in a ledger's life

    config = _config()
    config.attributes["connection"] = connection
    command.upgrade(config, SCHEMA_REVISION)
    # crash point: schema-written


def _refusal(connection: Connection, revision: str | None, *, where: str) -> LedgerFault:
    if revision is None or not inspect(connection).has_table("ledgers"):
        return LedgerFault(f"{where} holds tables, but no batchrun ledger", hint="name another database with --db")
    if revision in known_revisions():
        return LedgerFault(
            f"{where} was written by an older batchrun (schema {revision}, this one has {SCHEMA_REVISION})",
            hint="batchrun db upgrade",
        )
    return LedgerFault(
        f"{where} was written by a later batchrun (schema {revision}, this one knows up to {SCHEMA_REVISION})",
        hint="upgrade batchrun; this release will not touch it",
    )


def known_revisions() -> set[str]:
    """Return every revision this release can read or upgrade."""
    from alembic.script import ScriptDirectory

    return {script.revision for script in ScriptDirectory.from_config(_config()).walk_revisions()}


def _config() -> "Config":
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(migrations_folder()).replace("%", "%%"))
    return config
