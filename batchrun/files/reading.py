"""One pass over an input file: every line that is not blank becomes a checked draft or a fault."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from io import FileIO
from pathlib import Path
from typing import Any

from batchrun.core.line import LineFault, is_row
from batchrun.core.request import Defaults, Draft, draft_request, draft_row
from batchrun.core.variables import example_variable
from batchrun.core.wording import clipped, quoted
from batchrun.errors import BadInput, Fault
from batchrun.files.json_faults import Unfinished
from batchrun.files.lines import MAX_LINE_BYTES
from batchrun.files.paths import CHECK_IT, input_faults
from batchrun.files.sources import Record, Source
from batchrun.files.strict_json import parse_line, repeated_name
from batchrun.files.template import Template

_LIKE_PRETTY = (b" ", b"\t", b"}", b"]", b'"')  # how the lines of an object go on that was written over several
_COMPACT = "write one object a line: jq -c . OLD > NEW"
LOOKED_AT = 100  # rows whose fields are noted
_ELEMENTS = "write one object a line: jq -c '.[]' OLD > NEW"


@contextmanager
def opened_input(path: Path) -> Iterator[FileIO]:
    """Open an input file.

    Raises:
        BadInput: when it cannot be read.
    """
    if faults := input_faults(path):
        raise BadInput(faults)
    try:
        with FileIO(os.fspath(path)) as file:
            yield file
    except OSError as error:
        raise BadInput([Fault(f"input_file '{path}'", f"cannot be read: {error.strerror}", CHECK_IT)]) from None


class Reading:
    """A pass from the file's begin to its end. The figures are those of what was read so far."""

    def __init__(self, file: FileIO, defaults: Defaults, *, is_thorough: bool) -> None:
        self._source = Source(file, name=os.fsdecode(file.name))
        self._defaults = defaults
        self._template = None if defaults.prompt_template is None else Template.of(defaults.prompt_template)
        self._is_thorough = is_thorough  # look for names that stand twice: needless where all lines were found good
        self.line_count = 0
        self.names: dict[str, None] = {}  # the fields of the first rows, in their order
        self._rows_seen = 0
        # Set when the file as a whole cannot be read; what was yielded is then void.
        self.file_fault: LineFault | None = None

    @property
    def size_bytes(self) -> int:
        return self._source.blocks.size_bytes

    def sha256(self) -> str:
        """Return the digest of the file's bytes read so far, in hex."""
        return self._source.blocks.sha256()

    def __iter__(self) -> Iterator[tuple[int, Draft | LineFault]]:
        """Yield (line number, draft or fault) for each line that is not blank, in file order."""
        try:
            yield from self._drafts()
        except LineFault as fault:
            self.file_fault = fault
        for _ in self._source.blocks:
            pass  # the digest is the whole file's, also when the rest is not worth reading

    def _drafts(self) -> Iterator[tuple[int, Draft | LineFault]]:
        opened: Unfinished | None = None  # the object that may go on over the next lines
        is_first = True
        for line_no, record in self._source:
            self.line_count = line_no
            if isinstance(record, bytes) and (not record or record.isspace()):
                continue
            found = self._read(record) if isinstance(record, bytes) else self._read_other(record)
            if opened and isinstance(found, LineFault) and found.custom_id is None and _goes_on(record):
                if is_first and opened.is_bracket_alone:
                    raise LineFault("holds JSON written over several lines", _COMPACT)
                continue
            if isinstance(found, Unfinished) and is_first and found.is_array:
                raise LineFault("holds one array around everything", _ELEMENTS)
            is_first = is_first and opened is None and isinstance(found, Unfinished)
            opened = found if isinstance(found, Unfinished) else None
            yield line_no, found

    def _read(self, raw: bytes) -> Draft | LineFault:
        try:
            line = parse_line(raw)
            if self._template is not None and is_row(line):
                draft = self._draft_row(line, self._template)
            else:
                draft = draft_request(line, self._defaults)
            if self._is_thorough:
                _check_names(raw, line, draft)
        except LineFault as fault:
            return fault
        return draft

    def _read_other(self, record: dict[str, Any] | LineFault | None) -> Draft | LineFault:
        if record is None:
            return LineFault(f"is longer than {MAX_LINE_BYTES >> 20} MiB, the most that is read", "make it smaller")
        if self._source.columns and self._template is None:
            raise _no_template(self._source.columns)
        if isinstance(record, LineFault):
            return record
        assert self._template is not None  # only tables have rows
        try:
            return self._draft_row(record, self._template)
        except LineFault as fault:
            return fault

    def _draft_row(self, row: dict[str, Any], template: Template) -> Draft:
        if self._rows_seen < LOOKED_AT:
            self._rows_seen += 1
            self.names |= dict.fromkeys(row)
        return draft_row(row, template.render, self._defaults)


def _no_template(columns: list[str]) -> LineFault:
    names = clipped(", ".join(name for name in columns if name))
    hint = f'add "prompt_template" to the spec, such as "{example_variable(columns)}"'
    return LineFault(f"is a table (columns: {names}), and the spec has no prompt_template", hint)


def _check_names(raw: bytes, line: dict[str, object], draft: Draft) -> None:
    """Refuse a line in which a name stands twice: which of the two values is meant?

    The draft has written the body anew, and there no name stands twice: equal numbers of colons prove that none did
    before. Only where they differ (an escape may do that too) is the line read once more.
    """
    outside = len(line) if "body" in line else len(line) - len(draft.body)
    if draft.custom_id is not None:
        outside += draft.custom_id.count(":")
    if raw.count(b":") == draft.own.count(b":") + outside:
        return
    if (name := repeated_name(raw)) is not None:
        custom_id = None if name in ("custom_id", "id") else draft.custom_id
        raise LineFault(f"{quoted(name)} stands twice in one object", "keep one of the two", custom_id=custom_id)


def _goes_on(raw: Record) -> bool:
    return isinstance(raw, bytes) and (raw.startswith(_LIKE_PRETTY) or raw.strip() in (b"{", b"["))
