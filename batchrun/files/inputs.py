"""The input file, read twice: once to find everything that is wrong with it, once to hand out its items."""

import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from io import FileIO
from pathlib import Path
from typing import NamedTuple

from batchrun.core.line import LineFault
from batchrun.core.request import Defaults, Draft, Request
from batchrun.core.request_view import asked_words
from batchrun.errors import BadInput, Fault
from batchrun.files.digests import Keys
from batchrun.files.findings import Findings, Glimpse
from batchrun.files.names import Census, Names, stand_in_id
from batchrun.files.reading import Reading, opened_input

GLIMPSE_CHARS = 2_000  # of the first prompt
Watch = Callable[[int, int], object]  # how much is done, of how much


class InputItem(NamedTuple):
    """One line that will be sent."""

    position: int  # from 0, among items and rejected lines, in file order
    line_no: int  # from 1, as `sed -n` counts
    custom_id: str
    request: Request


class RejectedLine(NamedTuple):
    """One faulty line that was skipped on request."""

    position: int
    line_no: int
    custom_id: str  # the line's own when it is usable and was not used before, else "line-<n>"
    message: str


@dataclass(frozen=True, slots=True)
class Survey:
    """What one look at the whole input found."""

    sha256: str
    size_bytes: int
    lines: int
    items: int  # lines that can be sent
    rejected: int  # lines that cannot
    faults: tuple[Fault, ...]  # the first ones, in line order
    fault_count: int  # all of them; one where the same fault on every line is told once
    repeated: Keys = field(repr=False)  # content keys of more than one line without an id
    repeated_ids: Keys = field(repr=False)  # keys of ids that may stand on more than one line
    skip_invalid: bool
    first: Glimpse | None = None
    names: tuple[str, ...] = ()  # the fields of the first rows, where the lines are rows
    unbounded: int = 0  # items that ask for more than text, so that their text does not bound their cost
    first_unbounded: tuple[int, str] | None = None  # the first of them: its line, and for what it asks

    def check(self) -> None:
        """Raise BadInput when the job must not start: a faulty line that is not skipped, or nothing to send."""
        if (self.fault_count and not self.skip_invalid) or not self.items:
            raise BadInput(self.faults, total=self.fault_count)


def survey(
    path: Path,
    defaults: Defaults,
    *,
    max_faults: int = 20,
    skip_invalid: bool = False,
    watch: Watch | None = None,
) -> Survey:
    """Read the whole input and find every fault in it. Memory stays bounded whatever the number of lines.

    Args:
        watch: told now and then how many bytes of the file were read.

    Raises:
        BadInput: when the file cannot be read. What is wrong with its lines is returned; `Survey.check` raises it.
    """
    census = Census()
    with opened_input(path) as file:
        reading = Reading(file, defaults, is_thorough=True)
        findings = _first_look(_watched(reading, file, watch), census, Findings(max_faults))
        contents, ids = census.repeated_contents(), census.repeated_ids()
        if ids and not reading.file_fault:
            again = Reading(file, defaults, is_thorough=True)
            names = Names(repeated_ids=ids, repeated_contents=contents)
            findings = _second_look(_watched(again, file, watch), names, census, Findings(max_faults))
            ids = census.repeated_ids()
            if again.sha256() != reading.sha256():
                raise _changed(path)
    faults, fault_count = findings.told()
    if whole := reading.file_fault or _nothing_in(reading, findings):
        findings = Findings(0)
        faults, fault_count = (Fault(f"input_file '{path}'", whole.what, whole.hint),), 1
    return Survey(
        sha256=reading.sha256(),
        size_bytes=reading.size_bytes,
        lines=reading.line_count,
        items=findings.items,
        rejected=findings.rejected,
        faults=faults,
        fault_count=fault_count,
        repeated=contents,
        repeated_ids=ids,
        skip_invalid=skip_invalid,
        first=findings.first,
        names=tuple(reading.names),
        unbounded=findings.unbounded,
        first_unbounded=findings.first_unbounded,
    )


def read_items(path: Path, defaults: Defaults, survey: Survey) -> Iterator[InputItem | RejectedLine]:
    """Hand out the items of a surveyed file, in file order, and with `skip_invalid` its faulty lines too.

    Raises:
        BadInput: at once when the survey forbids the start; at the end at the latest when the file is not the one
            that was surveyed, and then nothing that was handed out may be used.
    """
    survey.check()
    return _items(path, defaults, survey)


def _items(path: Path, defaults: Defaults, survey: Survey) -> Iterator[InputItem | RejectedLine]:
    names = Names(repeated_ids=survey.repeated_ids, repeated_contents=survey.repeated)
    with opened_input(path) as file:
        if os.fstat(file.fileno()).st_size != survey.size_bytes:
            raise _changed(path)
        reading = Reading(file, defaults, is_thorough=survey.fault_count > 0)
        for position, (line_no, found) in enumerate(reading):
            custom_id, fault = names.settle(found, line_no)
            if fault is None and isinstance(found, Draft):
                yield InputItem(position, line_no, custom_id, found.request())
            elif fault and survey.skip_invalid:
                yield RejectedLine(position, line_no, custom_id, fault.what)
            else:
                raise _changed(path)
        if reading.sha256() != survey.sha256:
            raise _changed(path)


def _watched(reading: Reading, file: FileIO, watch: Watch | None) -> Iterator[tuple[int, Draft | LineFault]]:
    """Pass on what a reading yields, and tell how far it is."""
    if watch is None:
        yield from reading
        return
    whole_bytes, told_bytes = os.fstat(file.fileno()).st_size, 0
    for one in reading:
        if reading.size_bytes != told_bytes:
            told_bytes = reading.size_bytes
            watch(told_bytes, whole_bytes)
        yield one


def _first_look(reading: Iterable[tuple[int, Draft | LineFault]], census: Census, findings: Findings) -> Findings:
    """Find the faults of every line by itself, and count ids and contents."""
    for line_no, found in reading:
        if isinstance(found, LineFault):
            findings.add_fault(line_no, found)
            census.add_id(found.custom_id or stand_in_id(line_no))
        else:
            if not findings.items:
                findings.first = _glimpse(line_no, found)
            findings.add_item(line_no, found)
            if found.custom_id is None:
                census.add_content(found.content_key)
            else:
                census.add_id(found.custom_id)
    census.add_made_up_ids()
    return findings


def _second_look(
    reading: Iterable[tuple[int, Draft | LineFault]], names: Names, census: Census, findings: Findings
) -> Findings:
    """Find the same faults again, and the ids that were used on a line before."""
    for line_no, found in reading:
        custom_id, fault = names.settle(found, line_no)
        if fault is None:
            if isinstance(found, Draft):
                findings.first = findings.first or _glimpse(line_no, found)
                findings.add_item(line_no, found)
            continue
        findings.add_fault(line_no, fault)
        if not isinstance(found, LineFault) or found.custom_id not in (None, custom_id):
            census.add_id(stand_in_id(line_no))  # its own id is another line's: the first look could not know
    return findings


def _glimpse(line_no: int, draft: Draft) -> Glimpse:
    asked = draft.added if draft.is_row else {**draft.body, **draft.added}
    return Glimpse(line_no, draft.custom_id, asked_words(asked)[:GLIMPSE_CHARS])


def _nothing_in(reading: Reading, findings: Findings) -> LineFault | None:
    if findings.items or findings.rejected:
        return None
    what = "is empty: no items" if not reading.size_bytes else "holds only blank lines: no items"
    return LineFault(what, "write one request a line")


def _changed(path: Path) -> BadInput:
    what = "changed while it was read"
    return BadInput([Fault(f"input_file '{path}'", what, "start again when nothing writes to it any more")])
