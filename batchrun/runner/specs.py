"""Several specs at once, as files or as the lines of one: read, checked together, every fault with its place."""

import json
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

from batchrun.core.spec import JobSpec
from batchrun.errors import BadInput, Fault
from batchrun.files.paths import partial_file
from batchrun.runner.check import Checked, check_text, read_spec_text

MOST_TOLD = 100  # faults of several specs that are listed; the others are counted
_FIRST_LOOK_BYTES = 1 << 20
_BOM = b"\xef\xbb\xbf"
_LIKE_REQUESTS = ("custom_id", "messages", "prompt", "input", "body")


@dataclass(frozen=True, slots=True)
class Written:
    """One spec as it is written."""

    where: str  # "jobs/job.json", or "jobs/all.jsonl line 3"
    text: str


@dataclass(frozen=True, slots=True)
class Found:
    """One spec without faults, and where it stands."""

    where: str
    checked: Checked


def read_specs(paths: Sequence[Path]) -> list[Written]:
    """Read spec files; a `.jsonl` holds one spec a line, and lines count as `sed -n` counts them.

    Raises:
        UsageFault: a file cannot be read.
        BadInput: a `.jsonl` holds no spec, or requests.
    """
    return [written for path in paths for written in _read(path)]


def check_specs(
    paths: Sequence[Path],
    *,
    max_faults: int = 20,
    skip_invalid: bool = False,
    watch: Callable[[str, int, int], object] | None = None,
) -> list[Found]:
    """Check specs, each with its whole input, and together: no two may share a name or a file that is written.

    Args:
        max_faults: of each input, how many faults are listed.
        watch: told now and then of which spec how many bytes of the input were read, of how many.

    Raises:
        BadInput: with the faults of all specs, and their total.
        UsageFault: a file cannot be read.
    """

    def check(spec: Written) -> Checked:
        return check_text(
            spec.text,
            where=spec.where,
            max_faults=max_faults,
            skip_invalid=skip_invalid,
            watch=None if watch is None else partial(watch, spec.where),
        )

    written = read_specs(paths)
    if len(written) == 1 and not _is_lines(paths[0]):
        (spec,) = written
        checked = check(spec)
        return [Found(spec.where, checked)]
    found: list[Found] = []
    faults: list[Fault] = []
    total = 0
    hints: set[str | None] = set()
    for spec in written:
        try:
            found.append(Found(spec.where, check(spec)))
        except BadInput as error:
            faults += named(error.faults, spec.where)
            total += error.total
            hints.add(error.hint)
    shared = list(_shared(found))
    faults, total = faults + shared, total + len(shared)
    if faults:
        hint = hints.pop() if len(hints) == 1 and not shared else None
        raise BadInput(faults[:MOST_TOLD], total=total, hint=hint)
    return found


def named(faults: Sequence[Fault], where: str) -> list[Fault]:
    """Return the faults of one of several specs, so that each says whose it is."""
    return [replace(fault, where=_place(fault.where, where)) for fault in faults]


def _place(place: str, where: str) -> str:
    if place in (where, f"{where} line 1") and " line " in where:
        return where  # the text of a line has but one line
    return place if place == where or place.startswith(f"{where} line ") else f"{where}: {place}"


def _is_lines(path: Path) -> bool:
    return path.suffix.lower() == ".jsonl"


def _read(path: Path) -> list[Written]:
    if not _is_lines(path):
        return [Written(str(path), read_spec_text(path))]
    if os.path.isfile(path):
        _refuse_requests(path)
    lines = enumerate(read_spec_text(path).removeprefix("\ufeff").split("\n"), start=1)
    written = [Written(f"{path} line {line_no}", line) for line_no, line in lines if line.strip()]
    if not written:
        raise BadInput([Fault(str(path), "holds no spec", "write one spec a line")])
    return written


def _refuse_requests(path: Path) -> None:
    """Refuse an input file that stands where specs should, before all of it is read.

    Raises:
        BadInput: its first line is a request.
    """
    try:
        with path.open("rb") as file:
            pieces = iter(lambda: file.readline(_FIRST_LOOK_BYTES), b"")
            line = json.loads(next((piece for piece in pieces if piece.strip()), b"").removeprefix(_BOM))
    except (OSError, ValueError, RecursionError):
        return  # whatever is wrong with it is said where it is read
    if isinstance(line, dict) and any(name in line for name in _LIKE_REQUESTS) and not line.keys() & _SPEC_KEYS:
        hint = f"name it in a spec: batchrun init --from {path}"
        raise BadInput([Fault(f"{path} line 1", "holds requests, not specs", hint)])


# A request may name its model and its token limit, too.
_SPEC_KEYS = JobSpec.model_fields.keys() - {"model", "max_tokens"}


def _shared(found: Sequence[Found]) -> Iterator[Fault]:
    """Name what two specs must not share: the name, and any file that one of them writes."""
    names: dict[str, str] = {}
    files: dict[object, dict[bool, _Use]] = {}  # a file's identity -> is it written? -> who uses it so first
    for spec in found:
        task_id = spec.checked.spec.task_id
        if task_id in names:
            what = f"task_id {task_id!r} was already used by {names[task_id]}"
            yield Fault(spec.where, what, "give every job a name of its own")
            continue
        names[task_id] = spec.where
        uses = [(identity, use) for use in _uses(spec) for identity in _identities(use.path)]
        met = {
            other.where: (use, other)
            for identity, use in reversed(uses)
            for is_written, other in files.get(identity, {}).items()
            if is_written or use.is_written
        }
        for use, other in met.values():  # one for each other spec: two that share an output share the rest as well
            yield Fault(
                f"{spec.where}: {use.name!r}", f"is the same file as {other.name!r} of {other.where}", _mend(use, other)
            )
        for identity, use in uses:
            files.setdefault(identity, {}).setdefault(use.is_written, use)


class _Use(NamedTuple):
    """A file of a spec."""

    where: str
    name: str
    path: Path
    is_written: bool


def _uses(spec: Found) -> list[_Use]:
    checked = spec.checked
    return [
        _Use(spec.where, "output_file", checked.output, True),
        _Use(spec.where, "error_file", checked.errors, True),
        _Use(spec.where, "the partial output", partial_file(checked.output), True),
        _Use(spec.where, "input_file", checked.input, False),
    ]


def _mend(use: _Use, other: _Use) -> str:
    if use.is_written and other.is_written:
        return "give every job files of its own"
    return "submit the job that reads it when the one that writes it has ended"


def _identities(path: Path) -> list[object]:
    """Return by what a file is known under any spelling: its real path, and its inode where it exists."""
    try:
        found = os.stat(path)
    except OSError:
        return [os.path.realpath(path)]
    return [os.path.realpath(path), (found.st_dev, found.st_ino)]
