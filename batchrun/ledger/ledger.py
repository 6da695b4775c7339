"""One open ledger: its database, its identity, and the folder where its workers keep locks and spools."""

import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy import Connection, insert, select
from sqlalchemy.engine import URL
from sqlalchemy.exc import DataError, DBAPIError, IntegrityError, ProgrammingError

from batchrun.errors import LedgerFault, LedgerFull
from batchrun.ledger.engines import BUSY_TIMEOUT_S, file_of, open_engine, parse_url, shown
from batchrun.ledger.migrate import ensure_schema
from batchrun.ledger.schema import ledgers, split_key
from batchrun.ledger.seal import read_seal, refuse_closed, refuse_if_closed

_FULL = (
    "disk is full",
    "disk i/o error",
    "no space left",
    "readonly database",
    "could not extend file",
    "file or disk",
)


class Ledger:
    """An open ledger. Reading and writing transactions are short; none is open while a request is out."""

    def __init__(self, address: str, *, folder: Path, busy_timeout_s: float = BUSY_TIMEOUT_S) -> None:
        """Open the ledger at `address`, creating it in an empty database.

        Args:
            address: a SQLAlchemy URL, or a path to a SQLite file.
            folder: for the workers' locks and spools; a SQLite ledger has its own, beside the file.
            busy_timeout_s: how long a SQLite writer waits for another before the write counts as failed.

        Raises:
            LedgerFault: unreachable, on a network file system, or of another schema.
            LedgerMoved: it is closed, since its jobs are elsewhere.
        """
        self.url: URL = parse_url(address)
        if self.file is not None:
            folder = self.file.parent
            try:
                folder.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise LedgerFault(
                    f"the ledger's folder {str(folder)!r} cannot be made: {error.strerror}",
                    hint="name another place with --db or BATCHRUN_DB",
                ) from None
        self.folder = folder
        self.engine = open_engine(self.url, busy_timeout_s=busy_timeout_s)
        self._writing = self.engine.execution_options(is_write=True)
        # One reading transaction sees one instant, whatever it asks. SQLite gives that by itself.
        snapshot = {} if self.is_sqlite else {"isolation_level": "REPEATABLE READ"}
        self._reading = self.engine.execution_options(**snapshot)
        try:
            with foreign_errors(self.where):
                ensure_schema(self.engine, where=self.where)
                self.ledger_id = self._identity()
        except BaseException:
            self.close()
            raise

    @property
    def is_sqlite(self) -> bool:
        return self.url.get_backend_name() == "sqlite"

    @property
    def file(self) -> Path | None:
        """The file that holds the ledger, as an absolute path; None where a server does."""
        file = file_of(self.url)
        return file and file.absolute()

    @property
    def where(self) -> str:
        """The ledger's address for people, without a password, wherever in it that stands."""
        return f"ledger {shown(self.url)}"

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """Open a short reading transaction.

        Raises:
            LedgerMoved: the ledger has moved since it was opened.
        """
        with foreign_errors(self.where), self._reading.connect() as connection, connection.begin():
            self._refuse_if_closed(connection)
            yield connection

    @contextmanager
    def write(self) -> Iterator[Connection]:
        """Open a writing transaction that begins as a writer; it commits at the end, or nothing happened.

        Raises:
            LedgerMoved: the ledger has moved since it was opened.
        """
        with foreign_errors(self.where), self._writing.connect() as connection, connection.begin():
            self._refuse_if_closed(connection)
            yield connection

    def attempt_id(self, key: int) -> str:
        """Return the public id of an attempt: unique over all ledgers, and the same whenever it is asked."""
        item_id, fence = split_key(key)
        return f"br-{self.ledger_id}-{item_id}-{fence}"

    def close(self) -> None:
        """Close every connection."""
        self.engine.dispose()

    def _refuse_if_closed(self, connection: Connection) -> None:
        # Only SQLite ledgers are moved away. One in Postgres is closed before anybody has opened it, if ever.
        if self.is_sqlite:
            refuse_if_closed(connection, self.where)

    def _identity(self) -> str:
        with self.engine.connect() as connection, connection.begin():
            seal = read_seal(connection)
        if seal is not None:
            refuse_closed(seal, self.where)
            return seal.ledger_id
        try:
            with self._writing.connect() as connection, connection.begin():
                connection.execute(
                    insert(ledgers).values(id=1, ledger_id=secrets.token_hex(6), next_item_id=1, created_at=time.time())
                )
        except IntegrityError:
            pass  # another process was first, and its word holds
        # crash point: ledger-named
        with self.engine.connect() as connection, connection.begin():
            return str(connection.execute(select(ledgers.c.ledger_id)).scalar_one())


@contextmanager
def foreign_errors(where: str) -> Iterator[None]:
    """Turn the database's errors into the ledger's own, once, here. What a row or our own SQL is to blame for stays."""
    try:
        yield
    except (IntegrityError, DataError, ProgrammingError) as error:
        if error.connection_invalidated:
            raise _translated(error, where) from error
        raise
    except DBAPIError as error:
        raise _translated(error, where) from error


def _translated(error: DBAPIError, where: str) -> LedgerFault:
    words = next(iter(str(error.orig).splitlines()), "no reason given")
    if any(mark in words.lower() for mark in _FULL):
        return LedgerFull(f"{where} cannot be written: {words}", hint="make room on its disk, then `batchrun resume`")
    return LedgerFault(f"{where} cannot be used: {words}", hint="batchrun db check looks at it; --db names another")


def storable(text: str | None) -> str | None:
    """Return `text` as every back end can keep it: NUL and lone surrogates become U+FFFD."""
    if text is None or (text.isascii() and "\0" not in text):
        return text
    return text.replace("\0", "\ufffd").encode("utf-16", "surrogatepass").decode("utf-16", "replace")
