"""Carrying tables from one ledger's database to another's: in chunks, in the order of the keys, and compared.

The rows that are in the target say how far the copying has come, so that it can be taken up again after any death.
"""

import marshal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from sqlalchemy import Column, Connection, Engine, LargeBinary, Select, Table, Text, func, literal, select, text, tuple_
from sqlalchemy.engine import URL

from batchrun.ledger.bulk import insert_many
from batchrun.ledger.engines import open_engine, shown
from batchrun.ledger.ledger import foreign_errors
from batchrun.ledger.migrate import ensure_schema
from batchrun.ledger.schema import ledgers, metadata

CHUNK_ROWS = 10_000
CHUNK_BYTES = 8_000_000  # of requests and answers; one that is larger makes a chunk of its own
_WEIGHED_ROWS = 1_000
_HARMLESS = ("host", "port", "user", "dbname", "service")  # of what may stand in an address behind the question mark

# What refers to another table comes after it. The ledger's own row is not carried: it opens and closes it.
TABLES: tuple[Table, ...] = tuple(table for table in metadata.sorted_tables if table is not ledgers)
Rows = Sequence[tuple[Any, ...]]


@dataclass(frozen=True, slots=True)
class Digest:
    """What a table holds: equal for equal rows."""

    rows: int
    sha256: str


@dataclass(frozen=True, slots=True)
class End:
    """One end of a move: a ledger's database, whatever its seal says."""

    url: URL
    engine: Engine

    @property
    def where(self) -> str:
        """The ledger's address for people, without a password."""
        return f"ledger {shown(self.url)}"

    @property
    def address(self) -> str:
        """The address as it can be typed again, but for its password."""
        if self.url.get_backend_name() == "sqlite":
            return f"sqlite:///{Path(str(self.url.database)).absolute()}"
        kept = {name: value for name, value in self.url.query.items() if name in _HARMLESS}
        return self.url.set(query=kept).render_as_string(hide_password=True)

    @property
    def is_postgres(self) -> bool:
        return self.engine.dialect.name == "postgresql"

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """Open a reading transaction."""
        with foreign_errors(self.where), self.engine.connect() as connection, connection.begin():
            yield connection

    @contextmanager
    def write(self) -> Iterator[Connection]:
        """Open a writing transaction."""
        writer = self.engine.execution_options(is_write=True)
        with foreign_errors(self.where), writer.connect() as connection, connection.begin():
            yield connection


@contextmanager
def open_end(url: URL) -> Iterator[End]:
    """Open a database for a move; an empty one gets its tables.

    Raises:
        LedgerFault: it cannot be reached, or holds other tables, or a ledger of another release.
    """
    if url.get_backend_name() == "sqlite":
        Path(str(url.database)).absolute().parent.mkdir(parents=True, exist_ok=True)
    end = End(url, open_engine(url))
    try:
        with foreign_errors(end.where):
            ensure_schema(end.engine, where=end.where)
        yield end
    finally:
        end.engine.dispose()


def chunks(end: End, table: Table, *, after: Sequence[int] | None = None) -> Iterator[Rows]:
    """Yield a table's rows in the order of its key, bounded in rows and bytes; each chunk is a reading of its own.

    Args:
        after: begin behind this key.
    """
    places = [table.c.keys().index(column.name) for column in table.primary_key]
    while True:
        with end.read() as connection:
            limit = _fitting(connection, table, after)
            rows = [tuple(row) for row in connection.execute(_behind(select(table), table, after).limit(limit))]
        if not rows:
            return
        yield rows
        after = [rows[-1][place] for place in places]


def last_key(connection: Connection, table: Table) -> list[int] | None:
    """Return the highest key of a table; None where it is empty."""
    keys = list(table.primary_key)
    row = connection.execute(select(*keys).order_by(*(key.desc() for key in keys)).limit(1)).one_or_none()
    return None if row is None else list(row)


def append(connection: Connection, table: Table, rows: Rows, *, after: Sequence[int] | None) -> bool:
    """Write a chunk behind the rows that are there; False where these do not end at `after`: another one was faster."""
    if last_key(connection, table) != (None if after is None else list(after)):
        return False
    insert_many(connection, table, table.c.keys(), rows)
    return True


def digest(end: End, table: Table, *, counted: Callable[[int], object]) -> Digest:
    """Read a table once and say what it holds; `counted` hears how many rows each chunk had."""
    total, sums = 0, sha256()
    for rows in chunks(end, table):
        # Equal values of these plain kinds give equal bytes (before version 3 it writes no references), and equal
        # tables are cut into equal chunks.
        sums.update(marshal.dumps(list(rows), 2))
        total += len(rows)
        counted(len(rows))
    return Digest(total, sums.hexdigest())


def count(connection: Connection, table: Table) -> int:
    """Count a table's rows."""
    return int(connection.execute(select(func.count()).select_from(table)).scalar_one())


def settle_down(end: End) -> None:
    """Let a Postgres that was filled with given keys give out the next ones, and look at what it has for its plans."""
    if not end.is_postgres:
        return
    for table in TABLES:
        with end.write() as connection:
            if (key := table.autoincrement_column) is not None:
                highest = select(func.max(key)).scalar_subquery()
                sequence = func.pg_get_serial_sequence(literal(table.name), literal(key.name))
                connection.execute(select(func.setval(sequence, highest)))  # of NULL, where it is empty: left alone
            connection.execute(text(f'ANALYZE "{table.name}"'))


def find_unstorable(connection: Connection) -> str | None:
    """Name a column of a SQLite ledger that holds what Postgres cannot keep, a NUL in a text; None where none does."""
    for table in TABLES:
        for column in table.columns:
            if isinstance(column.type, Text):
                found = text(
                    f'SELECT 1 FROM "{table.name}" WHERE instr(CAST("{column.name}" AS BLOB), x\'00\') LIMIT 1'
                )
                if connection.execute(found).first() is not None:
                    return f"{table.name}.{column.name}"
    return None


def _behind(query: Select[Any], table: Table, after: Sequence[int] | None) -> Select[Any]:
    keys = list(table.primary_key)
    query = query.order_by(*keys)
    if after is None:
        return query
    if len(keys) == 1:
        return query.where(keys[0] > after[0])
    return query.where(tuple_(*keys) > tuple_(*(literal(part) for part in after)))


def _fitting(connection: Connection, table: Table, after: Sequence[int] | None) -> int:
    """Return how many of the next rows make a chunk; at least one."""
    wide: list[Column[Any]] = [column for column in table.columns if _is_wide(column)]
    if not wide:
        return CHUNK_ROWS
    weight = sum((func.coalesce(func.length(column), 0) for column in wide), start=literal(0))
    left, fitting = CHUNK_BYTES, 0
    for size in connection.execute(_behind(select(weight), table, after).limit(_WEIGHED_ROWS)).scalars():
        left -= size
        if fitting and left < 0:
            break
        fitting += 1
    return max(1, fitting)


def _is_wide(column: Column[Any]) -> bool:
    return isinstance(column.type, LargeBinary) and column.type.length is None
