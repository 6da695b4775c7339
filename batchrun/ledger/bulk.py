"""Writing very many rows at once: SQLAlchemy's per-row work would be most of a registration's time."""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from sqlalchemy import Connection, Table
from sqlalchemy.exc import DBAPIError

from batchrun.ledger.ledger import Ledger


def insert_many(
    connection: Connection,
    table: Table,
    columns: Sequence[str],
    rows: Sequence[tuple[Any, ...]],
    *,
    alike: Mapping[str, int | float | str | None] | None = None,
) -> None:
    """Insert rows of plain values: by the driver's own loop on SQLite, by COPY on Postgres.

    Args:
        alike: columns that have one value in all rows. SQLite reads it with the statement, and not for each row again.
    """
    if not rows:
        return
    alike = alike or {}
    if connection.dialect.name != "postgresql":
        text = _insert_text(table.name, tuple(columns), tuple(alike.items()))
        connection.exec_driver_sql(text, list(rows))
        return
    driver: Any = connection.connection.driver_connection
    values = tuple(alike.values())
    statement = f'COPY "{table.name}" ({_listed((*columns, *alike))}) FROM STDIN'
    driver_error: type[Exception] = connection.dialect.loaded_dbapi.Error
    try:
        with driver.cursor() as cursor, cursor.copy(statement) as copy:
            for row in rows:
                copy.write_row((*row, *values))
    except driver_error as error:  # the driver was called past SQLAlchemy, which would have done this
        raise DBAPIError.instance(statement, None, error, driver_error) from error


def refresh_statistics(ledger: Ledger, table: Table) -> None:
    """Let Postgres look at a table that has just been filled: until it does, its plans are for an empty one."""
    if not ledger.is_sqlite:
        with ledger.write() as connection:
            connection.exec_driver_sql(f'ANALYZE "{table.name}"')


@lru_cache
def _insert_text(table: str, columns: tuple[str, ...], alike: tuple[tuple[str, Any], ...]) -> str:
    values = ", ".join(["?"] * len(columns) + [_literal(value) for _, value in alike])
    return f'INSERT INTO "{table}" ({_listed((*columns, *dict(alike)))}) VALUES ({values})'


def _listed(names: Sequence[str]) -> str:
    return ", ".join(f'"{name}"' for name in names)


def _literal(value: int | float | str | None) -> str:
    """Write a value as SQL."""
    if value is None:
        return "NULL"
    return "'" + value.replace("'", "''") + "'" if isinstance(value, str) else repr(+value)  # true is 1
