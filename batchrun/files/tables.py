"""Tables as input: CSV and Parquet, each row an object of its columns."""

import csv
import datetime
import decimal
import math
from collections.abc import Iterable, Iterator
from io import FileIO
from typing import Any

from batchrun.core.line import LineFault
from batchrun.core.wording import clipped, kind, quoted
from batchrun.files.lines import MAX_LINE_BYTES, split_lines

Row = dict[str, Any]
_QUOTES = 'a quote inside a quoted field is written twice: ""'
_DELIMITERS = ",;\t|"
_AT_ONCE = 1024  # rows of a Parquet file


class CsvTable:
    """A CSV file (RFC 4180) with a header. A record may go over several lines; it is named by its first one."""

    def __init__(self, blocks: Iterable[bytes]) -> None:
        """Read the header.

        Raises:
            LineFault: it cannot be one.
        """
        csv.field_size_limit(MAX_LINE_BYTES)
        texts = _texts(blocks)
        head = next(texts, "")
        # Whatever stands most often in the header: spreadsheets write semicolons where the comma is the decimal point.
        delimiter = max(_DELIMITERS, key=head.count)
        self._reader = csv.reader(_chained(head, texts), delimiter=delimiter, strict=True)
        self.columns = self._header()

    def _header(self) -> list[str]:
        try:
            header = [name.strip() for name in next(self._reader, [])]
        except csv.Error as error:
            raise LineFault(f"has a header that is no CSV: {error}", _QUOTES) from None
        _check_utf8("".join(header))
        if not any(header):
            raise LineFault("has no header: the first line must name the columns", "write the names on the first line")
        for name in header:
            if name and header.count(name) > 1:
                raise LineFault(f"names the column {quoted(name)} twice", "give every column a name of its own")
        return header

    def __iter__(self) -> Iterator[tuple[int, Row | LineFault]]:
        """Yield (line number, row or fault) for each record that is not blank. Columns without a name are left out."""
        while True:
            line_no = self._reader.line_num + 1
            try:
                cells = next(self._reader)
            except StopIteration:
                return
            except csv.Error as error:
                yield line_no, LineFault(f"is not CSV: {error}", _QUOTES)
                continue
            if cells:
                yield line_no, self._row(cells)

    def _row(self, cells: list[str]) -> Row | LineFault:
        if len(cells) != len(self.columns):
            what = f"has {len(cells)} fields, the header names {len(self.columns)}"
            return LineFault(what, "quote a field that holds the delimiter or a line end")
        try:
            _check_utf8("".join(cells))
        except LineFault as fault:
            return fault
        return {name: cell for name, cell in zip(self.columns, cells, strict=True) if name}


def _texts(blocks: Iterable[bytes]) -> Iterator[str]:
    """Yield the lines as text, each with its end; what is no UTF-8 becomes surrogates, for `_check_utf8` to find."""
    for line_no, raw in split_lines(blocks):
        if raw is None:
            what = f"has a line {line_no} of more than {MAX_LINE_BYTES >> 20} MiB, the most that is read"
            raise LineFault(what, "make it smaller, or end its records by line breaks")
        yield raw.decode("utf-8", "surrogateescape") + "\n"


def _chained(first: str, rest: Iterator[str]) -> Iterator[str]:
    if first:
        yield first
    yield from rest


def _check_utf8(text: str) -> None:
    if text.isascii():
        return
    try:
        text.encode()
    except UnicodeEncodeError as error:
        byte = ord(text[error.start]) & 0xFF
        hint = "save the file as UTF-8: iconv -f LATIN1 -t UTF-8 OLD > NEW"
        raise LineFault(f"is not UTF-8 (byte 0x{byte:02x})", hint) from None


class ParquetTable:
    """A Parquet file; rows are numbered from 1. Dates and decimals become text, NaN becomes null."""

    def __init__(self, file: FileIO) -> None:
        """Open it.

        Raises:
            LineFault: it is damaged, or pyarrow is not installed.
        """
        try:
            import pyarrow
            from pyarrow.parquet import ParquetFile
        except ModuleNotFoundError:
            hint = "install the extra: pip install '.[parquet]'; or write the file as JSONL"
            raise LineFault("is a Parquet file, and pyarrow is not installed", hint) from None
        self._errors = (pyarrow.ArrowException, OSError)
        try:
            file.seek(0)
            self._table = ParquetFile(file)
        except self._errors as error:
            raise _damaged(error) from None
        self.columns: list[str] = self._table.schema_arrow.names
        for name in self.columns:
            if self.columns.count(name) > 1:
                raise LineFault(f"names the column {quoted(name)} twice", "give every column a name of its own")

    def __iter__(self) -> Iterator[tuple[int, Row | LineFault]]:
        """Yield (row number, row or fault).

        Raises:
            LineFault: the file is damaged.
        """
        row_no = 0
        try:
            for batch in self._table.iter_batches(batch_size=_AT_ONCE):
                for cells in self._rows(batch):
                    row_no += 1
                    yield row_no, cells if isinstance(cells, LineFault) else _json_row(cells)
        except self._errors as error:
            raise _damaged(error) from None

    def _rows(self, batch: Any) -> Iterator[Row | LineFault]:
        """Yield a batch's rows; where Python cannot hold a value the rows are read one by one, to name that one."""
        try:
            yield from batch.to_pylist()
            return
        except (ValueError, OverflowError):  # of a date beyond the year 9999, of text that is no UTF-8
            pass
        for place in range(batch.num_rows):
            try:
                yield batch.slice(place, 1).to_pylist()[0]
            except (ValueError, OverflowError) as error:
                words = str(error).splitlines()[0] if str(error) else type(error).__name__
                yield LineFault(f"holds a value that cannot be read: {clipped(words)}", "write it as text")


def _damaged(error: Exception) -> LineFault:
    return LineFault(f"is a damaged Parquet file: {str(error).splitlines()[0]}", "write or copy it anew")


def _json_row(cells: Row) -> Row | LineFault:
    try:
        return {name: _json_value(name, cell) for name, cell in cells.items()}
    except LineFault as fault:
        return fault


def _json_value(name: str, cell: Any) -> Any:
    match cell:
        case float():
            return None if math.isnan(cell) else cell
        case None | bool() | int() | str():
            return cell
        case list() | tuple():
            return [_json_value(name, part) for part in cell]
        case dict():
            return {str(key): _json_value(name, part) for key, part in cell.items()}
        case datetime.datetime() | datetime.date() | datetime.time():
            return cell.isoformat()
        case decimal.Decimal() | datetime.timedelta():
            return str(cell)
    raise LineFault(f"column {quoted(name)} holds {_python_kind(cell)}, which JSON cannot carry", "write it as text")


def _python_kind(cell: object) -> str:
    return "bytes" if isinstance(cell, bytes) else f"a {type(cell).__name__}" if kind(cell) == "null" else kind(cell)
