"""Registering a checked spec as a job: new, the same again, or changed."""

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from batchrun.core.bounds import most_pusd
from batchrun.core.concurrency import Concurrency
from batchrun.core.order import rank_of
from batchrun.core.prices import to_pusd
from batchrun.core.states import JobState
from batchrun.core.strata import draw
from batchrun.errors import BadInput, Fault, IllegalMove, JobBusy, JobNotFound, SpecChanged
from batchrun.files.inputs import RejectedLine, Watch, read_items
from batchrun.files.paths import is_same_file
from batchrun.ledger import jobs as job_moves
from batchrun.ledger.changes import Changes, accept, compare, stage, unstage
from batchrun.ledger.jobs import Job
from batchrun.ledger.ledger import Ledger
from batchrun.ledger.liveness import Observer
from batchrun.ledger.register import Line, forget_items, write_items
from batchrun.ledger.trial import count_lengths, mark_trial, stream_lengths
from batchrun.runner.check import Checked
from batchrun.runner.pricing import reprice
from batchrun.runner.purged import CHANGE, refuse_purged
from batchrun.runner.ranking import rerank
from batchrun.runner.standing import read_standing
from batchrun.runner.strata import strata_of

FOLLOW_S = 0.2
WATCHED_EVERY = 500  # items


@dataclass(frozen=True, slots=True)
class Overrides:
    """What flags and settings put over the spec. None of it is part of the job's identity."""

    on_unknown: str | None = None
    on_unknown_is_said: bool = True  # by the spec or a flag, not by the environment or for want of any word
    concurrency: Concurrency | None = None
    max_cost_usd: Any = None
    trial_size: int | None = None
    addresses: tuple[str, ...] = ()  # of its endpoints, normalised


def effective_spec(checked: Checked, overrides: Overrides) -> dict[str, Any]:
    """Return the spec as the ledger keeps it: flags applied, paths absolute, the address it runs at, no secret."""
    spec = checked.spec.model_dump(mode="json")
    spec["input_file"], spec["output_file"] = str(checked.input), str(checked.output)
    spec["error_file"] = str(checked.errors)
    spec["response_schema"] = checked.schema
    spec["on_unknown"] = overrides.on_unknown or checked.spec.on_unknown or "hold"
    spec["on_unknown_is_said"] = overrides.on_unknown_is_said
    if overrides.concurrency is not None:
        spec["concurrency"] = overrides.concurrency.written
    if overrides.max_cost_usd is not None:
        spec["max_cost_usd"] = str(overrides.max_cost_usd)
    if overrides.trial_size is not None:
        spec["trial"]["size"] = overrides.trial_size
    # A limit on the job's cost holds at whichever endpoint; what each attempt costs, its own endpoint's price says.
    dearest = checked.spec.dearest
    for one, address in zip(spec["endpoints"], overrides.addresses, strict=False):
        one["base_url"] = address
        one["price"] = one["price"] or spec["price"]
    spec["price"] = None if dearest is None else dearest.model_dump(mode="json")
    spec["resolved_base_url"] = overrides.addresses[0] if overrides.addresses else None
    return spec


def find(ledger: Ledger, task_id: str) -> Job | None:
    """Return the job of this name, or None."""
    with ledger.read() as connection:
        try:
            return job_moves.find_job(connection, task_id)
        except JobNotFound:
            return None


def register(
    ledger: Ledger,
    checked: Checked,
    *,
    spec: dict[str, Any],
    worker_id: int,
    is_trial: bool = False,
    watch: Watch | None = None,
) -> Job | None:
    """- -> validating -> in_progress: write the job with all its items, held by this process.

    Args:
        is_trial: a trial is wanted even where it leaves nothing for a full run.
        watch: told now and then how many items are written, of how many.

    Returns:
        The job, or None when another process registered it first.

    Raises:
        BadInput: the input changed while it was read, or the output file is another job's.
    """
    now = time.time()
    tried = min(spec["trial"]["size"], checked.survey.items)
    has_trial = 0 < tried < checked.survey.items or (is_trial and tried > 0)
    max_cost = spec["max_cost_usd"]
    with ledger.write() as connection:
        refuse_shared_output(connection, checked)
        job = job_moves.register_job(
            connection,
            task_id=checked.spec.task_id,
            spec=spec,
            input_digest=checked.survey.sha256,
            params_digest=checked.defaults.digest().hex(),
            total=checked.survey.items + checked.survey.rejected,
            phase="trial" if has_trial else "full",
            on_unknown=spec["on_unknown"],
            concurrency=Concurrency.of(spec["concurrency"]),
            retry_times=spec["retry_times"],
            rpm=spec["rpm"],
            tpm=spec["tpm"],
            max_cost_pusd=to_pusd(max_cost),
            holder=worker_id,
            now=now,
        )
    if job is None:
        return None
    # crash point: register-named
    return _fill(ledger, checked, job, now=now, watch=watch)


def _fill(ledger: Ledger, checked: Checked, job: Job, *, now: float, watch: Watch | None) -> Job:
    taken = lines(checked) if watch is None else _watched(lines(checked), job.total, watch)
    try:
        write_items(ledger, job.id, taken, trial=(), now=now)
    except BadInput as error:
        with ledger.write() as connection:
            job_moves.move_job(connection, job.id, "fail", now=time.time(), reason="input", message=str(error))
        raise
    # crash point: register-filled
    chosen = _choose_trial(ledger, job) if job.phase == "trial" else set()
    with ledger.write() as connection:
        mark_trial(connection, job.id, chosen)
        job_moves.move_job(connection, job.id, "open", now=time.time())
        job = job_moves.read_job(connection, job.id)
    # crash point: register-open
    return job


def _choose_trial(ledger: Ledger, job: Job) -> set[int]:
    """Choose the items that are tried first, of those that were written: their requests' lengths are known now."""
    with ledger.read() as connection:
        lengths = count_lengths(connection, job.id)
        strata = strata_of(job.spec["trial"], lengths)
        if job.spec["trial"]["sample"] == "head":
            return {item_id for item_id, _ in stream_lengths(connection, job.id, limit=strata[0].taken)}
        return draw(stream_lengths(connection, job.id), strata, seed=job.spec["trial"]["seed"])


def _watched(taken: Iterator[Line], total: int, watch: Watch) -> Iterator[Line]:
    """Pass the lines on, and tell how many there were."""
    for number, line in enumerate(taken, start=1):
        yield line
        if number % WATCHED_EVERY == 0:
            watch(number, total)


def is_unfinished(job: Job) -> bool:
    """Say whether the job's registration has not ended, or could not."""
    return job.state in (JobState.VALIDATING, JobState.FAILED)


def take_over_registration(
    ledger: Ledger,
    checked: Checked,
    job: Job,
    *,
    worker_id: int,
    observer: Observer,
    wait: bool,
    say: Callable[[str], None],
    watch: Watch | None = None,
) -> Job | None:
    """Finish a registration that died half-way: forget what it had written, and write it anew.

    Returns:
        The job, or None when whoever was registering it has done so.

    Raises:
        JobBusy: whoever registers it is alive, and `wait` is false.
    """
    is_told = False
    while not _is_taken(ledger, job, worker_id, observer):
        busy = f"job {job.task_id!r} is being registered by {read_standing(ledger, job.task_id).performer}"
        if not wait:
            raise JobBusy(busy, hint=f"batchrun status {job.task_id}")
        if not is_told:
            is_told = True
            say(f"{busy}; following it, and taking over if it dies")
        time.sleep(FOLLOW_S)
        with ledger.read() as connection:
            job = job_moves.read_job(connection, job.id)
        if not is_unfinished(job):
            return None
    with ledger.write() as connection:
        job_moves.restart_registration(
            connection,
            job.id,
            total=checked.survey.items + checked.survey.rejected,
            input_digest=checked.survey.sha256,
            params_digest=checked.defaults.digest().hex(),
        )
    # crash point: register-restarted
    forget_items(ledger, job.id)
    # crash point: register-forgotten
    return _fill(ledger, checked, job, now=time.time(), watch=watch)


def _is_taken(ledger: Ledger, job: Job, worker_id: int, observer: Observer) -> bool:
    """Become the holder of a registration that nobody is at work on."""
    if job.holder is not None and not observer.is_dead(job.holder):
        return False
    with ledger.write() as connection:
        return job_moves.take(connection, job.id, worker_id=worker_id, instead_of=job.holder, now=time.time())


def lines(checked: Checked) -> Iterator[Line]:
    """Turn the input into what the ledger takes."""
    price, order = checked.spec.dearest, checked.spec.order
    for item in read_items(checked.input, checked.defaults, checked.survey):
        if isinstance(item, RejectedLine):
            yield Line(item.position, item.line_no, item.custom_id, None, None, item.message, None, None, None)
            continue
        request = item.request
        worst = most_pusd(
            price,
            body=request.body,
            max_output_tokens=request.max_output_tokens,
            max_prompt_tokens=checked.spec.max_prompt_tokens,
        )
        yield Line(
            item.position,
            item.line_no,
            item.custom_id,
            request.digest,
            request.model,
            request.note,
            request.path,
            request.body,
            worst,
            rank_of(order, body=request.body, max_output_tokens=request.max_output_tokens),
        )


def refuse_shared_output(connection: Any, checked: Checked) -> None:
    """Refuse a job that would write into another job's files.

    Raises:
        BadInput: naming the other job.
    """
    for other in job_moves.list_jobs(connection):
        if other.task_id == checked.spec.task_id or other.state is JobState.FAILED:
            continue
        theirs = [Path(other.spec[name]) for name in ("output_file", "error_file")]
        for key, mine in (("output_file", checked.output), ("error_file", checked.errors)):
            if any(is_same_file(mine, one) for one in theirs):
                what = f"{key!r} {str(mine)!r} is job {other.task_id!r}'s output"
                raise BadInput([Fault("spec", what, f"name another {key}")])


def without_identity(job: Job, spec: dict[str, Any]) -> dict[str, Any]:
    """Return the job's spec with everything of a spec submitted again that is no part of its identity.

    The trial's items were chosen when the job was registered: what chose them stands.
    """
    chosen = {name: job.spec["trial"][name] for name in ("size", "sample", "seed")}
    return {**spec, "on_unknown": job.spec["on_unknown"], "trial": {**spec["trial"], **chosen}}


def is_same(job: Job, checked: Checked) -> bool:
    """Say whether the ledger's job has this input and these request parameters."""
    same_input = job.input_digest == checked.survey.sha256
    return same_input and job.params_digest == checked.defaults.digest().hex()


def explain_changes(ledger: Ledger, checked: Checked, job: Job) -> Changes:
    """Compare a changed input with the job's items.

    Raises:
        IllegalMove: the job is purged.
    """
    refuse_purged(job, CHANGE)
    stage(ledger, job.id, lines(checked))
    with ledger.read() as connection:
        return compare(connection, job.id)


def refuse_changes(ledger: Ledger, changes: Changes, job: Job, *, command: str, otherwise: str) -> SpecChanged:
    """Forget the staged lines and make the error that explains what changed and what to type to go on.

    Args:
        command: accepts the changes when `--accept-changes` is added to it.
        otherwise: what the user can do instead of accepting the changes.
    """
    unstage(ledger, job.id)
    again = (
        f"; {changes.answered:,} of the changed ones have answers, and would be paid again" if changes.answered else ""
    )
    return SpecChanged(
        f"job {job.task_id!r} stands in the ledger with another input or other parameters: {changes.unchanged:,} items "
        f"unchanged, {changes.changed:,} changed, {changes.new:,} new, {changes.removed:,} removed{again}",
        hint=f"{command} --accept-changes (unchanged items are kept and not paid again), or {otherwise}",
    )


def accept_changes(ledger: Ledger, checked: Checked, job: Job, *, spec: dict[str, Any]) -> tuple[Job, Changes]:
    """Make the new input the job's; the job is open again.

    Raises:
        IllegalMove: a changed or removed item is running or in doubt.
    """
    now = time.time()
    reprice(ledger, job, spec)  # those that are kept; the others are priced, and ranked, as they are staged
    rerank(ledger, job, spec)
    try:
        changes = accept(
            ledger,
            job.id,
            input_digest=checked.survey.sha256,
            params_digest=checked.defaults.digest().hex(),
            spec=json.dumps(spec),
            trial=frozenset(),
            now=now,
        )
    except IllegalMove:
        unstage(ledger, job.id)
        raise
    # crash point: changes-accepted
    with ledger.read() as connection:
        return job_moves.read_job(connection, job.id), changes
