"""CSV as spreadsheets and dataframes read it: RFC 4180 in UTF-8, each record ended by a newline."""

import re
from collections.abc import Sequence
from decimal import Decimal

from pydantic_core import to_json

from batchrun.files.derived import DerivedFile
from batchrun.files.table_rows import Cell, Column, Kind, Row

# What a reader may take for the end of a cell or of a line, and blanks that some readers take off.
_NEEDS_QUOTES = re.compile(r'[",]|[^\S ]|\A | \Z|\A\Z')
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


class CsvOutput:
    """Writes rows into a derived file. No value is an empty cell, an empty text is two quotes."""

    def __init__(self, file: DerivedFile, columns: Sequence[Column], *, spreadsheet_safe: bool = False) -> None:
        """Write the header.

        Args:
            spreadsheet_safe: put a quote before a text that a spreadsheet would compute as a formula.
        """
        self._file = file
        self._guards = [spreadsheet_safe and column.kind is Kind.TEXT for column in columns]
        self._put([_quoted(column.name) for column in columns])

    def write(self, row: Row) -> None:
        """Append one row."""
        self._put([_written(cell, guards) for cell, guards in zip(row, self._guards, strict=True)])

    def close(self) -> None:
        """Do nothing: what was written is whole at any time."""

    def _put(self, cells: list[str]) -> None:
        self._file.write((",".join(cells) + "\n").encode())


def _written(cell: Cell, guards: bool) -> str:
    match cell:
        case None:
            return ""
        case str():
            return _quoted(f"'{cell}" if guards and cell.startswith(_FORMULA) else cell)
        case Decimal():
            return f"{cell:f}"
        case int() | float():
            return str(cell)
        case _:
            return _quoted(to_json(list(cell)).decode())


def _quoted(text: str) -> str:
    return '"' + text.replace('"', '""') + '"' if _NEEDS_QUOTES.search(text) else text
