"""One pass over an input file: every line that is not blank becomes a checked draft or a fault."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from io import FileIO
from pathlib import Path

from batchrun.core.line import LineFault
from batchrun.core.request import Defaults, Draft, draft_request
from batchrun.core.wording import quoted
from batchrun.errors import BadInput, Fault
from batchrun.files.json_faults import Unfinished
from batchrun.files.lines import MAX_LINE_BYTES, known_format, split_lines
from batchrun.files.paths import input_faults
from batchrun.files.strict_json import parse_line, repeated_name

_LIKE_PRETTY = (b" ", b"\t", b"}", b"]", b'"')  # how the lines of an object go on that was written over several
_COMPACT = "write one object a line: jq -c . OLD > NEW"
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
        raise BadInput([Fault(f"input_file '{path}'", f"cannot be read: {error.strerror}")]) from None


class Reading:
    """A pass from the file's begin to its end. The figures are those of what was read so far."""

    def __init__(self, file: FileIO, defaults: Defaults, *, is_thorough: bool) -> None:
        file.seek(0)
        known = known_format(file.read(8))
        file.seek(0)
        self._file = file
        self._defaults = defaults
        self._is_thorough = is_thorough  # look for names that stand twice: needless where all lines were found good
        self._digest = sha256()
        self.size_bytes = 0
        self.line_count = 0
        # Set when the file as a whole is no JSONL; what was yielded is then void.
        self.file_fault = LineFault(*known) if known else None

    def __iter__(self) -> Iterator[tuple[int, Draft | LineFault]]:
        """Yield (line number, draft or fault) for each line that is not blank, in file order."""
        opened: Unfinished | None = None  # the object that may go on over the next lines
        is_first = True
        for line_no, raw in split_lines(self._file, self._take):
            self.line_count = line_no
            if self.file_fault or (raw is not None and (not raw or raw.isspace())):
                continue
            found = self._read(raw)
            if opened and isinstance(found, LineFault) and found.custom_id is None and _goes_on(raw):
                if is_first and opened.is_bracket_alone:
                    self.file_fault = LineFault("holds JSON written over several lines", _COMPACT)
                continue
            if isinstance(found, Unfinished) and is_first and found.is_array:
                self.file_fault = LineFault("holds one array around everything", _ELEMENTS)
            is_first = is_first and opened is None and isinstance(found, Unfinished)
            opened = found if isinstance(found, Unfinished) else None
            yield line_no, found

    def sha256(self) -> str:
        """Return the digest of the bytes read so far, in hex."""
        return self._digest.hexdigest()

    def _take(self, block: bytes) -> None:
        self._digest.update(block)
        self.size_bytes += len(block)

    def _read(self, raw: bytes | None) -> Draft | LineFault:
        if raw is None:
            return LineFault(f"is longer than {MAX_LINE_BYTES >> 20} MiB, the most that is read", "make it smaller")
        try:
            line = parse_line(raw)
            draft = draft_request(line, self._defaults)
            if self._is_thorough:
                _check_names(raw, line, draft)
        except LineFault as fault:
            return fault
        return draft


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


def _goes_on(raw: bytes | None) -> bool:
    return raw is not None and (raw.startswith(_LIKE_PRETTY) or raw.strip() in (b"{", b"["))
