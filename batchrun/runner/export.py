"""The outputs, derived from the ledger: at a job's end, at any time, and line by line while it runs."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from batchrun.core.states import ItemState, is_final
from batchrun.errors import LedgerFault, LedgerFull
from batchrun.files.derived import DerivedFile
from batchrun.files.outputs import answer_line, error_line
from batchrun.files.paths import default_error_file, is_same_file
from batchrun.ledger.jobs import Job, read_job
from batchrun.ledger.ledger import Ledger
from batchrun.ledger.results import Result
from batchrun.runner.purged import WRITE, refuse_purged
from batchrun.runner.telling import IN_INPUT_ORDER, Telling, output_item, tell

ENDED = tuple(state for state in ItemState if is_final(state))


@dataclass(frozen=True, slots=True)
class Outputs:
    """What was written where."""

    output: Path
    output_lines: int
    errors: Path
    error_lines: int


def output_paths(job: Job) -> tuple[Path, Path]:
    """Return the job's output file and error file."""
    return Path(job.spec["output_file"]), Path(job.spec["error_file"])


def write_outputs(
    ledger: Ledger,
    job: Job,
    *,
    output: Path | None = None,
    so_far: bool = False,
    telling: Telling = IN_INPUT_ORDER,
    wrote: Callable[[int], object] | None = None,
) -> Outputs:
    """Write output and error file anew; the old ones stay until the new ones are whole and on disk.

    At a job's end every input id stands exactly once in the two files.

    Args:
        output: another place than the job's own.
        so_far: the job has not ended: items that are still pending or running stand in neither file.
        telling: the order of the lines, and what of the input stands in them.
        wrote: told after each line how many there are; what it raises ends the writing, and the old files stay.

    Raises:
        LedgerFull: no space, or no folder; the old files are untouched and nothing is lost.
        LedgerFault: the ledger's items do not add up to the job's input.
        IllegalMove: the job was purged meanwhile.
    """
    output, errors = export_paths(job, output)
    written = 0
    with saying_why(output, job), ExitStack() as files:
        failures = files.enter_context(DerivedFile(errors))
        answers = files.enter_context(DerivedFile(output))
        for item in tell(ledger, job, telling, states=ENDED if so_far else tuple(ItemState)):
            written += 1
            if item.state is ItemState.COMPLETED:
                answers.write(answer_line(item))
            else:
                failures.write(error_line(item))
            if wrote is not None:
                wrote(written)
        check_is_whole(ledger, job, None if so_far else written)
    return Outputs(output, answers.line_count, errors, failures.line_count)


def export_paths(job: Job, output: Path | None) -> tuple[Path, Path]:
    """Return where answers and failures go if the answers are to go to `output`; None: to the job's own files."""
    own_output, own_errors = output_paths(job)
    if output is None or is_same_file(output, own_output):
        return own_output, own_errors
    return output, default_error_file(output)


@contextmanager
def saying_why(output: Path, job: Job) -> Iterator[None]:
    """Say in words why a file cannot be written."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        again = "resume" if output == output_paths(job)[0] else "export"
        raise LedgerFull(
            f"{str(output)!r} cannot be written: {reason}",
            hint=f"make room or restore the folder, then `batchrun {again} {job.task_id}`: every answer is kept",
        ) from None


def check_is_whole(ledger: Ledger, job: Job, written: int | None) -> None:
    """Check, before files are put into place, that what was read for them is all there is.

    Args:
        written: items that were written; None where not all of them have ended.

    Raises:
        LedgerFault: there are more or less of them than in the job's input.
        IllegalMove: the job was purged while they were read.
    """
    if written is not None and written != job.total:
        raise LedgerFault(
            f"job {job.task_id!r} has {written:,} items in the ledger and {job.total:,} in its input",
            hint="batchrun db check",
        )
    with ledger.read() as connection:
        refuse_purged(read_job(connection, job.id), WRITE)


def answer_lines(ledger: Ledger, rows: Iterable[Result]) -> Iterator[bytes]:
    """Render the completed ones among some rows."""
    for row in rows:
        if row.state == ItemState.COMPLETED:
            yield answer_line(output_item(ledger, row))
