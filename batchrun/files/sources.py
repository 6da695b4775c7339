"""An input file of any format as numbered records: JSONL, CSV or Parquet, packed with gzip or not."""

from collections.abc import Iterator
from io import FileIO
from pathlib import Path, PurePath
from typing import Any

from batchrun.core.line import LineFault
from batchrun.errors import BadInput, Fault
from batchrun.files.blocks import GZIP_MAGIC, Blocks, gunzip, with_head
from batchrun.files.lines import known_format, split_lines
from batchrun.files.paths import CHECK_IT
from batchrun.files.strict_json import parse_line
from batchrun.files.tables import CsvTable, ParquetTable

# A line of JSONL (None: too long), a table's row, or what is wrong with it.
Record = bytes | None | dict[str, Any] | LineFault

_PARQUET_MAGIC = b"PAR1"
_TABLE_SUFFIXES = (".csv", ".tsv")


def peek(path: Path, *, count: int = 20) -> list[dict[str, Any]]:
    """Return the first objects of an input file of any format: requests, or rows of data.

    Raises:
        BadInput: the file cannot be read, or one of these lines is no object.
    """
    found: list[dict[str, Any]] = []
    try:
        with path.open("rb", buffering=0) as file:
            for line_no, record in Source(file, name=path.name):
                if isinstance(record, bytes) and not record.strip():
                    continue
                value = parse_line(record) if isinstance(record, bytes) else record
                if not isinstance(value, dict):
                    raise BadInput([Fault(f"input line {line_no}", "is no object", "write one object a line")])
                found.append(value)
                if len(found) == count:
                    break
    except LineFault as fault:
        raise BadInput([Fault(f"'{path}'", fault.what, fault.hint)]) from None
    except OSError as error:
        raise BadInput([Fault(f"'{path}'", f"cannot be read: {error.strerror}", CHECK_IT)]) from None
    return found


class Source:
    """A pass over an input file. Iterate over its records; `columns` is then known, None where it is no table."""

    def __init__(self, file: FileIO, *, name: str) -> None:
        """Begin a pass.

        Args:
            name: the file's name, whose suffix tells a table from JSONL.
        """
        self._file = file
        self._path = PurePath(name.lower())
        self.blocks = Blocks(file)
        self.columns: list[str] | None = None

    def __iter__(self) -> Iterator[tuple[int, Record]]:
        """Yield (line number from 1, record); of Parquet the number is the row's.

        Raises:
            LineFault: the file as a whole cannot be read; what was yielded is then void.
        """
        suffix = self._path.suffix
        head, blocks = with_head(self.blocks)
        if head.startswith(_PARQUET_MAGIC):
            yield from self._parquet(blocks)
            return
        if head.startswith(GZIP_MAGIC):
            suffix = self._path.with_suffix("").suffix if suffix == ".gz" else suffix
            head, blocks = with_head(gunzip(blocks))
            if head.startswith(GZIP_MAGIC):
                raise LineFault("is packed with gzip twice", "unpack it once: gunzip -k FILE")
        elif head and suffix in (".gz", ".parquet"):
            kind = "gzip" if suffix == ".gz" else "Parquet"
            raise LineFault(f"is named {suffix} and is no {kind} file", "name it as what it is, or write it anew")
        if known := known_format(head):
            raise LineFault(*known)
        if suffix in _TABLE_SUFFIXES and head:
            table = CsvTable(blocks)
            self.columns = table.columns
            yield from table
        else:
            yield from split_lines(blocks)

    def _parquet(self, blocks: Iterator[bytes]) -> Iterator[tuple[int, Record]]:
        for _ in blocks:
            pass  # all of it belongs to the digest, and its rows are found from its end
        table = ParquetTable(self._file)
        self.columns = table.columns
        yield from table
