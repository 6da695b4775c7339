"""Parquet: typed columns, compressed, a few megabytes to a row group, so that a file of any length fits into memory."""

import io
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

from batchrun.errors import UsageFault
from batchrun.files.derived import DerivedFile
from batchrun.files.table_rows import Cell, Column, Kind, Row

GROUP_ROWS = 20_000
GROUP_BYTES = 8_000_000
_OF_A_CELL_BYTES = 8


def refuse_without_pyarrow() -> None:
    """Refuse where the library that writes Parquet is not installed.

    Raises:
        UsageFault: it is not.
    """
    try:
        import pyarrow.parquet  # noqa: F401
    except ModuleNotFoundError:
        hint = "install the extra: pip install '.[parquet]'; or --format csv"
        raise UsageFault("Parquet needs pyarrow, which is not installed", hint=hint) from None


class ParquetOutput:
    """Writes rows into a derived file, a row group at a time. What was written is whole after `close`."""

    def __init__(self, file: DerivedFile, columns: Sequence[Column]) -> None:
        import pyarrow
        from pyarrow.parquet import ParquetWriter

        self._arrow = pyarrow
        types = {
            Kind.TEXT: pyarrow.string(),
            Kind.COUNT: pyarrow.int64(),
            Kind.SECONDS: pyarrow.float64(),
            Kind.MONEY: pyarrow.decimal128(38, 12),
            Kind.VECTOR: pyarrow.list_(pyarrow.float32()),
        }
        self._schema = pyarrow.schema([(column.name, types[column.kind]) for column in columns])
        self._writer = ParquetWriter(pyarrow.PythonFile(_Sink(file), mode="w"), self._schema, compression="zstd")
        self._rows: list[Row] = []
        self._size_bytes = 0

    def write(self, row: Row) -> None:
        """Append one row."""
        self._rows.append(row)
        self._size_bytes += sum(map(_size, row))
        if len(self._rows) >= GROUP_ROWS or self._size_bytes >= GROUP_BYTES:
            self._flush()

    def close(self) -> None:
        """Write the last group and the file's foot."""
        if self._rows:
            self._flush()
        self._writer.close()

    def _flush(self) -> None:
        arrays = [
            self._arrow.array(list(cells), type=field.type)
            for cells, field in zip(zip(*self._rows, strict=True), self._schema, strict=True)
        ]
        self._rows, self._size_bytes = [], 0
        self._writer.write_table(self._arrow.Table.from_arrays(arrays, schema=self._schema))


def _size(cell: Cell) -> int:
    if cell is None or isinstance(cell, int | float | Decimal):
        return _OF_A_CELL_BYTES
    return _OF_A_CELL_BYTES + len(cell) * (1 if isinstance(cell, str) else 4)


class _Sink(io.RawIOBase):
    """A derived file as pyarrow writes to it. Closing it is the derived file's own business."""

    def __init__(self, file: DerivedFile) -> None:
        super().__init__()
        self._file = file
        self._size_bytes = 0

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._size_bytes

    def write(self, data: Any, /) -> int:
        self._file.write(bytes(data))
        self._size_bytes += len(data)
        return len(data)
