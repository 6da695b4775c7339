"""The outputs, derived from the ledger: at a job's end, at any time by `export`, and line by line while it runs."""

from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from batchrun.core.outcome import Charge
from batchrun.core.prices import usd
from batchrun.core.states import FINAL_JOB_STATES, ItemState, is_final
from batchrun.errors import LedgerFault, LedgerFull, UsageFault
from batchrun.files.derived import DerivedFile
from batchrun.files.outputs import OutputItem, answer_line, error_line
from batchrun.ledger.jobs import Job, find_job
from batchrun.ledger.ledger import Ledger
from batchrun.ledger.results import Result, stream_results

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


def output_item(ledger: Ledger, row: Result) -> OutputItem:
    """Make a ledger row into what a line of output says."""
    state = ItemState(row.state)
    key, cost = row.key, row.cost_pusd
    is_told = state is not ItemState.REJECTED
    doubtful = row.charge == Charge.POSSIBLE and row.reserved_pusd
    return OutputItem(
        custom_id=row.custom_id,
        state=state,
        attempts=row.attempts_count,
        attempt_id=None if key is None else ledger.attempt_id(key),
        status=row.http_status,
        request_id=row.request_id,
        response_id=row.response_id,
        raw=None if row.raw is None else bytes(row.raw),
        finish_reason=row.finish_reason,
        warning=row.warning,
        prompt_tokens=row.prompt_tokens,
        completion_tokens=row.completion_tokens,
        cost_usd=None if cost is None else usd(cost),
        endpoint=row.endpoint if is_told else None,
        model=row.model,
        sent_at=row.sent_at,
        duration_s=row.duration_s,
        cause=row.item_cause,
        message=row.item_message,
        possible_cost_usd=usd(row.reserved_pusd) if doubtful else None,
    )


def write_outputs(ledger: Ledger, job: Job, *, output: Path | None = None, so_far: bool = False) -> Outputs:
    """Write output and error file anew; the old ones stay until the new ones are whole and on disk.

    At a job's end every input id stands exactly once in the two files.

    Args:
        output: another place than the job's own.
        so_far: the job has not ended: items that are still pending or running stand in neither file.

    Raises:
        LedgerFull: no space, or no folder; the old files are untouched and nothing is lost.
        LedgerFault: the ledger's items do not add up to the job's input.
    """
    own_output, errors = output_paths(job)
    if output is not None:
        errors = output.with_name(f"{output.stem}.errors{output.suffix}")
    output = output or own_output
    written = 0
    try:
        with ExitStack() as files:
            failures = files.enter_context(DerivedFile(errors))
            answers = files.enter_context(DerivedFile(output))
            for row in stream_results(ledger, job.id, states=ENDED if so_far else tuple(ItemState)):
                written += 1
                item = output_item(ledger, row)
                if item.state is ItemState.COMPLETED:
                    answers.write(answer_line(item))
                else:
                    failures.write(error_line(item))
            if written != job.total and not so_far:
                raise LedgerFault(
                    f"job {job.task_id!r} has {written:,} items in the ledger and {job.total:,} in its input"
                )
    except OSError as error:
        reason = error.strerror or str(error)
        raise LedgerFull(
            f"{str(output)!r} cannot be written: {reason}",
            hint=f"make room or restore the folder, then `batchrun resume {job.task_id}`: the ledger has every answer",
        ) from None
    return Outputs(output, answers.line_count, errors, failures.line_count)


def answer_lines(ledger: Ledger, rows: Iterable[Result]) -> Iterator[bytes]:
    """Render the completed ones among some rows."""
    for row in rows:
        if row.state == ItemState.COMPLETED:
            yield answer_line(output_item(ledger, row))


def _refuse_to_replace(ledger: Ledger, job: Job, output: Path) -> None:
    kept = [Path(job.spec["input_file"]), *([Path(str(ledger.url.database))] if ledger.is_sqlite else [])]
    if output.exists() and not output.is_file():
        raise UsageFault(f"{str(output)!r} is no regular file", hint="name a file with -o")
    if any(path.exists() and output.exists() and output.samefile(path) for path in kept):
        raise UsageFault(f"{str(output)!r} would be replaced, and it is no output", hint="name another file with -o")


def export_job(ledger: Ledger, task_id: str, *, output: Path | None = None) -> Outputs:
    """Write a job's outputs as they stand now, to its own files or to others."""
    with ledger.read() as connection:
        job = find_job(connection, task_id)
    if output is not None:
        _refuse_to_replace(ledger, job, output)
    return write_outputs(ledger, job, output=output, so_far=job.state not in FINAL_JOB_STATES)
