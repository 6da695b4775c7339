"""`revalidate`: a job's stored answers judged by another schema, or by the job's own once more. No request is made."""

import json
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from batchrun.core.answer_check import AnswerCheck, check_of, invalid
from batchrun.core.outcome import INVALID_ANSWER
from batchrun.core.states import FINAL_JOB_STATES, ItemState, JobState
from batchrun.ledger import jobs as job_moves
from batchrun.ledger.events import record_event
from batchrun.ledger.jobs import Job
from batchrun.ledger.ledger import Ledger
from batchrun.ledger.liveness import Worker
from batchrun.ledger.results import stream_results
from batchrun.ledger.revalidation import Verdict, revalidate
from batchrun.runner.export import write_outputs
from batchrun.runner.finalize import finalize
from batchrun.runner.purged import WRITE, refuse_purged

MOVED_AT_ONCE = 500  # items of one transaction
_WITH_ANSWER = (ItemState.COMPLETED, ItemState.FAILED)


@dataclass
class Revalidated:
    """What became of a job's answers, or would."""

    judged: int = 0
    completed: int = 0  # were invalid, and are not any more
    failed: int = 0  # were taken, and are invalid now
    invalid: int = 0  # of those judged


def with_schema(spec: Mapping[str, Any], *, schema: Any, accept_fenced: bool | None) -> dict[str, Any]:
    """Return a job's spec with what its answers are to be; None leaves either as it is."""
    said = {"response_schema": schema, "accept_fenced": accept_fenced}
    return {**spec, **{name: value for name, value in said.items() if value is not None}}


def try_out(ledger: Ledger, job: Job, spec: Mapping[str, Any]) -> Revalidated:
    """Say what judging the answers by this spec would do. Nothing is changed.

    Raises:
        IllegalMove: the job is purged.
    """
    refuse_purged(job, WRITE)
    found = Revalidated()
    for verdict in _verdicts(ledger, job, check_of(spec), found):
        found.completed += verdict.is_move and verdict.fault is None
        found.failed += verdict.is_move and verdict.fault is not None
    return found


def judge_anew(
    ledger: Ledger,
    job: Job,
    spec: Mapping[str, Any],
    *,
    worker: Worker,
    judged: Callable[[int], object] = lambda count: None,
) -> Revalidated:
    """Judge the stored answers of a job that is held; its outputs are written anew where any item moved.

    Each batch is one transaction with the job's own move, so that whatever ends this process, what was moved is true,
    the outputs are due, and the same command goes on from there.

    Args:
        spec: the job's from now on, as `with_schema` makes it.
        judged: told after each batch how many answers were judged; what it raises ends the work between two batches.

    Raises:
        IllegalMove: the job is purged.
    """
    refuse_purged(job, WRITE)
    if spec != job.spec:
        with ledger.write() as connection:
            job_moves.keep_spec(connection, job.id, spec=json.dumps(spec))
    found = Revalidated()
    for batch in _batches(_verdicts(ledger, job, check_of(spec), found)):
        now = time.time()
        with ledger.write() as connection:
            completed, failed = revalidate(connection, job.id, batch)
            if completed or failed:
                detail = {"completed": completed, "failed": failed}
                record_event(connection, job.id, "revalidated", at=now, detail=detail)
                job_moves.move_job(connection, job.id, "rewrite", now=now)
        found.completed += completed
        found.failed += failed
        judged(found.judged)
    _write(ledger, job, worker)
    return found


def _write(ledger: Ledger, job: Job, worker: Worker) -> None:
    """Write the outputs where they are due: a job that had ended ends anew, one that rests shows what it has."""
    with ledger.read() as connection:
        job = job_moves.read_job(connection, job.id)
    if job.state is JobState.FINALIZING or job.state in FINAL_JOB_STATES:
        finalize(ledger, job, holder=worker.id)
    elif job.state is JobState.PAUSED:
        write_outputs(ledger, job, so_far=True)


def _batches(verdicts: Iterator[Verdict]) -> Iterator[list[Verdict]]:
    batch: list[Verdict] = []
    for one in verdicts:
        batch.append(one)
        if len(batch) == MOVED_AT_ONCE:
            yield batch
            batch = []
    if batch:
        yield batch


def _verdicts(ledger: Ledger, job: Job, check: AnswerCheck | None, found: Revalidated) -> Iterator[Verdict]:
    """Judge what is stored, a few answers in memory at a time; yield what changes, and count everything."""
    for row in stream_results(ledger, job.id, states=_WITH_ANSWER):
        was = ItemState(row.state)
        if row.key is None or row.raw is None or (was is ItemState.FAILED and row.item_cause != INVALID_ANSWER):
            continue
        words = None if check is None else invalid(bytes(row.raw), check)
        found.judged += 1
        found.invalid += words is not None
        verdict = Verdict(row.id, row.fence, row.key, was, words)
        if verdict.is_move or words != row.item_message:
            yield verdict
