"""One statement for many rows, on the hot path: what SQLAlchemy does for each row would cost more than the database."""

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from operator import itemgetter
from typing import Any

from sqlalchemy import Connection, Dialect
from sqlalchemy.sql.dml import Insert, Update

_PLAIN = (str, int, float, bytes, type(None))  # what both drivers take as it is


class Round:
    """A statement whose rows are plain values, each under its name; it is compiled once for each kind of database."""

    def __init__(self, statement: Insert | Update, *names: str) -> None:
        """Prepare a statement.

        Args:
            names: of an INSERT: the columns that every row has.
        """
        self._statement, self._names = statement, list(names)
        self._compile = cache(self._compiled)

    def execute(self, connection: Connection, rows: Sequence[Mapping[str, Any]]) -> int:
        """Execute it for each row; return how many rows of the table it came to."""
        text, in_order, constants = self._compile(connection.dialect)
        values: list[Any] = [{**constants, **row} for row in rows] if constants else list(rows)
        if in_order is not None:
            values = list(map(in_order, values))
        return int(connection.exec_driver_sql(text, values).rowcount)

    def _compiled(self, dialect: Dialect) -> tuple[str, Callable[[Any], Any] | None, Mapping[str, Any]]:
        """Return the text, what puts a row in order where its values have no names there, and what never changes."""
        compiled: Any = self._statement.compile(dialect=dialect, column_keys=self._names or None)
        constants = {name: bind.effective_value for name, bind in compiled.binds.items() if not bind.required}
        odd = {name: value for name, value in constants.items() if type(value) not in _PLAIN}
        assert not odd, f"these would need SQLAlchemy's own treatment: {odd}"
        names = compiled.positiontup
        return str(compiled), None if names is None else itemgetter(*names), constants
