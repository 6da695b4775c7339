"""`export`: a job's outputs anew, as JSONL, CSV or Parquet, to its own files or to others."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

from batchrun.core.line import EMBEDDINGS
from batchrun.core.states import FINAL_JOB_STATES, ItemState, JobState
from batchrun.errors import UsageFault
from batchrun.files.csv_output import CsvOutput
from batchrun.files.derived import DerivedFile
from batchrun.files.input_rows import InputRows
from batchrun.files.parquet_output import ParquetOutput, refuse_without_pyarrow
from batchrun.files.paths import is_same_file, partial_file
from batchrun.files.table_rows import Layout, Row, table_rows
from batchrun.ledger.jobs import Job, find_job, list_jobs
from batchrun.ledger.ledger import Ledger
from batchrun.ledger.results import asks_for
from batchrun.runner.export import ENDED, check_is_whole, export_paths, output_paths, saying_why, write_outputs
from batchrun.runner.purged import WRITE, refuse_purged
from batchrun.runner.telling import Order, Telling, tell

Format = Literal["jsonl", "csv", "parquet"]
Join = Literal["prompt", "input"]
SUFFIXES: dict[str, Format] = {".jsonl": "jsonl", ".csv": "csv", ".parquet": "parquet"}


@dataclass(frozen=True, slots=True)
class Wish:
    """What an export is to be like."""

    output: Path | None = None  # None: the job's own files
    format: Format | None = None  # None: as the output's name says
    order: Order = "input"
    join: Join | None = None  # what was asked beside each answer: the prompt, or that and the input's columns
    spreadsheet_safe: bool = False

    def format_of(self) -> Format:
        """Return the format.

        Raises:
            UsageFault: name and format contradict each other, or the file is not named.
        """
        named = SUFFIXES.get(self.output.suffix.lower()) if self.output else "jsonl"
        chosen = self.format or named or "jsonl"
        if self.output is not None and named is not None and named != chosen:
            what = f"{str(self.output)!r} is named {self.output.suffix}, and the format is {chosen}"
            raise UsageFault(what, hint=f"name it .{chosen}, or leave --format out")
        if chosen != "jsonl" and self.output is None:
            raise UsageFault(f"a {chosen} file needs a name", hint=f"-o FILE.{chosen}")
        if self.spreadsheet_safe and chosen != "csv":
            raise UsageFault("--spreadsheet-safe is for CSV alone", hint="--format csv")
        return chosen


@dataclass(frozen=True, slots=True)
class Exported:
    """What was written where."""

    format: Format
    output: Path
    count: int  # lines, or rows of a table
    errors: Path | None  # None: a table holds everything
    error_count: int
    items: int
    left: int  # items that have not ended, and stand nowhere yet


class _Table(Protocol):
    def write(self, row: Row) -> None: ...

    def close(self) -> None: ...


def export_job(ledger: Ledger, task_id: str, wish: Wish | None = None) -> Exported:
    """Write a job's outputs as they stand now.

    Raises:
        JobNotFound: there is no such job.
        IllegalMove: it is purged.
        UsageFault: what is wished for cannot be had: the format, the file, or the join.
        LedgerFull: the file cannot be written; what stood there stands.
    """
    wish = wish or Wish()
    chosen = wish.format_of()
    with ledger.read() as connection:
        job = find_job(connection, task_id)
        jobs = list_jobs(connection)
    refuse_purged(job, WRITE)
    if wish.output is not None:
        _refuse_to_replace(ledger, job, jobs, wish.output, with_errors=chosen == "jsonl")
    if chosen == "parquet":
        refuse_without_pyarrow()
    telling = Telling(wish.order, wish.join is not None, _rows_of(job) if wish.join == "input" else None)
    if chosen == "jsonl":
        so_far = job.state not in FINAL_JOB_STATES
        made = write_outputs(ledger, job, output=wish.output, so_far=so_far, telling=telling)
        items = made.output_lines + made.error_lines
        return Exported(chosen, made.output, made.output_lines, made.errors, made.error_lines, items, job.total - items)
    assert wish.output is not None
    return _write_table(ledger, job, wish.output, chosen, telling, spreadsheet_safe=wish.spreadsheet_safe)


def _rows_of(job: Job) -> InputRows | None:
    """Return the rows that the job's requests were made of; None where its lines were requests."""
    if job.spec.get("prompt_template") is None:
        return None
    path = Path(job.spec["input_file"])
    if not path.exists():
        what = f"input_file '{path}' is not there any more: its rows cannot be joined"
        raise UsageFault(what, hint="put the file back, or --join-prompt: what was asked stands in the ledger")
    return InputRows(path, sha256=job.input_digest)


def _write_table(
    ledger: Ledger, job: Job, output: Path, chosen: Format, telling: Telling, *, spreadsheet_safe: bool
) -> Exported:
    with ledger.read() as connection:
        has_vectors = asks_for(connection, job.id, path=EMBEDDINGS)
    columns = telling.rows.columns if telling.rows else ()
    layout = Layout(vectors=has_vectors, prompts=telling.with_requests, inputs=columns)
    so_far = job.state not in FINAL_JOB_STATES
    items = rows = 0
    with saying_why(output, job), _opened(output, chosen, layout, spreadsheet_safe=spreadsheet_safe) as table:
        for item in tell(ledger, job, telling, states=ENDED if so_far else tuple(ItemState)):
            items += 1
            for row in table_rows(item, layout):
                rows += 1
                table.write(row)
        table.close()
        check_is_whole(ledger, job, None if so_far else items)
    return Exported(chosen, output, rows, None, 0, items, job.total - items)


@contextmanager
def _opened(output: Path, chosen: Format, layout: Layout, *, spreadsheet_safe: bool) -> Iterator[_Table]:
    """Open the table; the old file stays until the new one is whole."""
    with ExitStack() as files:
        file = files.enter_context(DerivedFile(output))
        if chosen == "csv":
            yield CsvOutput(file, layout.columns, spreadsheet_safe=spreadsheet_safe)
        else:
            yield ParquetOutput(file, layout.columns)


def _refuse_to_replace(ledger: Ledger, job: Job, jobs: list[Job], output: Path, *, with_errors: bool) -> None:
    """Refuse a file that is no output of this job: an input, another job's output, the ledger.

    Raises:
        UsageFault: it is one.
    """
    if output.exists() and not output.is_file():
        raise UsageFault(f"{str(output)!r} is no regular file", hint="name a file with -o")
    pairs = zip(export_paths(job, output), output_paths(job), strict=True)
    written = [path for path, own in list(pairs)[: 2 if with_errors else 1] if path != own]
    taken = [path for one in jobs if one.state is not JobState.FAILED for path in _written_by(one)]
    taken += [Path(one.spec["input_file"]) for one in jobs]
    taken += [ledger.file] if ledger.file else []
    for path in written:
        if any(is_same_file(path, other) for other in taken):
            what = f"{str(path)!r} would be replaced, and it is no output of job {job.task_id!r}"
            raise UsageFault(what, hint="name another file with -o")


def _written_by(job: Job) -> tuple[Path, ...]:
    """Return all files that a job writes, or will write."""
    output, errors = output_paths(job)
    return output, errors, partial_file(output)
