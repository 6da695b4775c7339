"""A spec and the files it names: could it be submitted? The input itself is `batchrun validate`'s to read."""

from collections.abc import Sequence
from pathlib import Path

from batchrun.core.spec import JobSpec
from batchrun.core.spec_check import check_spec
from batchrun.errors import Fault
from batchrun.files.paths import check_paths, default_error_file
from batchrun.runner.doctor.finding import Check, Notes
from batchrun.runner.doctor.places import note_room, size
from batchrun.runner.specs import Written, named


def files_check(written: Written, spec: JobSpec | None) -> Check:
    """Return the look at one spec and its files.

    Args:
        spec: None where it is faulty.
    """

    def look(notes: Notes) -> None:
        if spec is None:
            _, faults, _ = check_spec(written.text, where=written.where)
            _note_faults(notes, "spec", named(faults, written.where))
            return
        notes.ok("spec", f"{spec.task_id}: model {spec.model}, concurrency {spec.concurrency}")
        source, output = Path(spec.input_file), Path(spec.output_file)
        errors = Path(spec.error_file) if spec.error_file else default_error_file(output)
        faults = check_paths(input_file=source, output_file=output, error_file=errors)
        _note_faults(notes, "files", faults)
        if not faults:
            notes.ok("input", f"{source}, {size(source.stat().st_size)}")
            notes.ok("output", f"{output.parent or Path()} can be written to")
            note_room(notes, output.absolute().parent, holds="the outputs")

    return Check("spec", written.where, look, silence="is its folder on a disk that does not answer?")


def _note_faults(notes: Notes, name: str, faults: Sequence[Fault]) -> None:
    for fault in faults:
        notes.fail(name, str(fault), fault.hint)
