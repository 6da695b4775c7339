"""Brings a ledger's schema to the one this release knows: made when absent, upgraded in one transaction, never guessed."""

from pathlib import Path
from typing import TYPE_CHECKING

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
        revision = current_revision(connection)
        is_empty = revision is None and not inspect(connection).get_table_names()
    if revision == SCHEMA_REVISION:
        return
    if is_empty:
        upgrade(engine, where=where)
        return
    if revision is None:
        raise LedgerFault(f"{where} holds tables, but no batchrun ledger", hint="name another database with --db")
    if revision in known_revisions():
        raise LedgerFault(
            f"{where} was written by an older batchrun (schema {revision}, this one has {SCHEMA_REVISION})",
            hint="batchrun db upgrade",
        )
    raise _newer(where, revision)


def upgrade(engine: Engine, *, where: str) -> tuple[str | None, str]:
    """Upgrade to the current schema in one transaction, one process at a time; return (before, after).

    Raises:
        LedgerFault: the ledger is of a later release.
    """
    from alembic import command  # 0.4 s to import, needed once in a ledger's life

    with engine.connect().execution_options(is_write=True) as connection, connection.begin():
        if engine.dialect.name == "postgresql":
            connection.execute(text(f"SELECT pg_advisory_xact_lock({_UPGRADE_LOCK})"))
        before = current_revision(connection)
        if before is not None and before not in known_revisions():
            raise _newer(where, before)
        if before != SCHEMA_REVISION:
            config = _config()
            config.attributes["connection"] = connection
            command.upgrade(config, SCHEMA_REVISION)
        return before, SCHEMA_REVISION


def known_revisions() -> set[str]:
    """Return every revision this release can read or upgrade."""
    from alembic.script import ScriptDirectory

    return {script.revision for script in ScriptDirectory.from_config(_config()).walk_revisions()}


def _config() -> "Config":
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(migrations_folder()).replace("%", "%%"))
    return config


def _newer(where: str, revision: str) -> LedgerFault:
    return LedgerFault(
        f"{where} was written by a later batchrun (schema {revision}, this one knows up to {SCHEMA_REVISION})",
        hint="upgrade batchrun; this release will not touch it",
    )
