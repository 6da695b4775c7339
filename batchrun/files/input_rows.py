"""The rows of an input file once more: for a join with the answers, of the very file that was registered."""

import os
from collections.abc import Iterator
from io import FileIO
from pathlib import Path
from typing import Any

from batchrun.core.line import LineFault, is_row
from batchrun.errors import UsageFault
from batchrun.files.reading import opened_input
from batchrun.files.sources import Source
from batchrun.files.strict_json import parse_line
from batchrun.files.table_rows import MOST_COLUMNS

Row = dict[str, Any]


class InputRows:
    """The rows of one input file, to be asked for in the order of their lines."""

    def __init__(self, path: Path, *, sha256: str) -> None:
        """Look at the whole file, and at its columns.

        Args:
            sha256: the digest of the file that the job was registered with.

        Raises:
            BadInput: it cannot be read.
            UsageFault: it is another file, or has more columns than can be joined.
        """
        self._path = path
        self._sha256 = sha256
        names: dict[str, None] = {}
        for _, row in self:
            names.update(dict.fromkeys(row))
            if len(names) > MOST_COLUMNS:
                what = f"'{path}' has rows of more than {MOST_COLUMNS:,} different fields, too many for a table"
                raise UsageFault(what, hint="--format jsonl takes any number of them, or --join-prompt leaves them out")
        self.columns = tuple(names)

    def __iter__(self) -> Iterator[tuple[int, Row]]:
        """Yield (line number, row) for each row, in file order; request lines and faulty ones are left out.

        Raises:
            UsageFault: at the end, when the file is not the one that was registered; what was yielded is then void.
        """
        with opened_input(self._path) as file:
            yield from self._of(file)

    def _of(self, file: FileIO) -> Iterator[tuple[int, Row]]:
        source = Source(file, name=os.fsdecode(file.name))
        try:
            for line_no, record in source:
                value = _parsed(record) if isinstance(record, bytes) else record
                if isinstance(value, dict) and is_row(value):
                    yield line_no, value
        except LineFault:
            pass  # then it is another file
        for _ in source.blocks:
            pass
        if source.blocks.sha256() != self._sha256:
            raise self._changed()

    def _changed(self) -> UsageFault:
        what = f"input_file '{self._path}' is not as it was when the job was registered: its rows cannot be joined"
        return UsageFault(what, hint="put the file back, or --join-prompt: what was asked stands in the ledger")


def _parsed(raw: bytes) -> Any:
    try:
        return parse_line(raw)
    except LineFault:
        return None


class Alongside:
    """Finds the row of one line after another, going through the file once."""

    def __init__(self, rows: InputRows) -> None:
        self._rows = iter(rows)
        self._next: tuple[int, Row] | None = next(self._rows, None)

    def row(self, line_no: int) -> Row | None:
        """Return the row of this line, None where it is none. Lines are asked for in ascending order."""
        while self._next is not None and self._next[0] < line_no:
            self._next = next(self._rows, None)
        return self._next[1] if self._next is not None and self._next[0] == line_no else None

    def end(self) -> None:
        """Go on to the end of the file, where it is seen whether it is the right one."""
        while self._next is not None:
            self._next = next(self._rows, None)
