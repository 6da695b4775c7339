"""What is printed when doubts are settled by evidence from elsewhere."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from batchrun.cli.context import Context
from batchrun.cli.say import emit, next_lines, put
from batchrun.core.printable import one_line
from batchrun.core.states import FINAL_JOB_STATES, ItemState
from batchrun.core.wording import several

if TYPE_CHECKING:
    from batchrun.runner.imports import Import
    from batchrun.runner.lookup import Looked
    from batchrun.runner.replay import Again
    from batchrun.runner.standing import Standing

LISTED = 20
ASKED = {"openai": "stored completions", "litellm": "its spend log"}
MEANS = {
    "adopted": "answered: the answer is taken, and nothing was paid again",
    "useless": "answered, and of no use: failed",
    "charged": "billed for certain, without an answer: still in doubt",
    "not_found": "no trace, which proves nothing: still in doubt",
    "not_asked": "could not be asked about: still in doubt",
    "known": "settled by somebody else in the meantime",
}
NEWS = ("adopted", "useless", "charged")
REPLAYED = {
    "completed": "answered under the same key: with the first request that is one bill",
    "failed": "answered under the same key, and of no use: failed",
    "in_doubt": "asked for again without an answer: still in doubt",
    "no_key": "not asked for, since its key is not good here (any more): still in doubt",
    "left": "not asked for, since the endpoint refuses: still in doubt",
}
UNSENT = ("no_key", "left")


def show_lookup(context: Context, looked: "Sequence[Looked]", standing: "Standing", *, means: str, is_dry: bool) -> int:
    """Print what a look-up came to and return the exit code."""
    job, left = standing.job.task_id, standing.counts[ItemState.IN_DOUBT]
    code = 0 if is_dry else settled_code(standing)
    if context.json:
        asked = [
            {"custom_id": one.custom_id, "attempt_id": one.attempt_id, "result": one.result.value, "note": one.note}
            for one in looked
        ]
        applied = not is_dry and any(one.result in NEWS for one in looked)
        values = {"job_id": job, "means": means, "asked": asked, "in_doubt": left, "applied": applied}
        emit("lookup", values | {"dry_run": is_dry, "exit_code": code})
        return code
    if not looked:
        put(f"{job}: nothing is in doubt")
        return code
    would = "; dry run: nothing is changed" if is_dry else ""
    put(f"asked about {several(len(looked), 'request')} ({ASKED[means]}); no request was sent that costs{would}")
    for result, words in MEANS.items():
        group = [one for one in looked if one.result == result]
        if group:
            put(f"  {len(group):,} {words}")
            for line in _lines(group):
                put(line)
    _put_next(job, left)
    return code


def show_import(context: Context, brought: "Import", standing: "Standing", *, path: Path, is_dry: bool) -> int:
    """Print what an import came to and return the exit code."""
    job, left = standing.job.task_id, standing.counts[ItemState.IN_DOUBT]
    code = 0 if is_dry else settled_code(standing)
    if context.json:
        taken = [
            {
                "line": one.line_no,
                "custom_id": one.custom_id,
                "attempt_id": one.attempt_id,
                "billed": "yes" if one.is_certain else "perhaps",
            }
            for one in brought.taken
        ]
        values = {"job_id": job, "file": str(path), "lines": brought.lines, "taken": taken}
        values |= {"not_needed": brought.not_needed, "without_answer": brought.without_answer, "in_doubt": left}
        emit("import", values | {"applied": bool(taken) and not is_dry, "dry_run": is_dry, "exit_code": code})
        return code
    verb = "would be taken" if is_dry else "taken"
    put(f"{several(brought.lines, 'line')} of {path}: {several(len(brought.taken), 'answer')} {verb}")
    for one in brought.taken[:LISTED]:
        put(f"    {one_line(one.custom_id)}  {one.attempt_id}" + ("" if one.is_certain else "  by its item alone"))
    if brought.taken[LISTED:]:
        put(f"    ... and {len(brought.taken) - LISTED:,} more (--json lists all)")
    if brought.without_answer:
        put(f"  {brought.without_answer:,} without an answer, which proves nothing: still in doubt")
    if brought.not_needed:
        put(f"  {brought.not_needed:,} of requests that are not in doubt here")
    _put_next(job, left)
    return code


def show_replay(context: Context, again: "Sequence[Again]", standing: "Standing", *, is_dry: bool) -> int:
    """Print what asking again under the same keys came to and return the exit code."""
    job, left = standing.job.task_id, standing.counts[ItemState.IN_DOUBT]
    code = 0 if is_dry else settled_code(standing)
    if context.json:
        asked = [
            {"custom_id": one.custom_id, "attempt_id": one.attempt_id, "result": one.result.value, "note": one.note}
            for one in again
        ]
        applied = not is_dry and any(one.result not in UNSENT for one in again)
        values = {"job_id": job, "asked": asked, "in_doubt": left, "applied": applied}
        emit("replay", values | {"dry_run": is_dry, "exit_code": code})
        return code
    if not again:
        put(f"{job}: nothing is in doubt")
        return code
    for result, words in REPLAYED.items():
        group = [one for one in again if one.result == result]
        if group:
            would = "would be asked for again under its key" if is_dry and result == "in_doubt" else words
            put(f"{len(group):,} {would}")
            for line in _lines(group):
                put(line)
    _put_next(job, left)
    return code


def _put_next(job: str, left: int) -> None:
    following = [f"batchrun reconcile {job}"] if left else [f"batchrun export {job} -o FILE"]
    for line in next_lines(following):
        put(line)


def _lines(group: "Sequence[Looked | Again]") -> list[str]:
    lines = [
        f"    {one_line(one.custom_id)}  {one.attempt_id}" + (f"  {one_line(one.note)}" if one.note else "")
        for one in group[:LISTED]
    ]
    return lines + ([f"    ... and {len(group) - LISTED:,} more (--json lists all)"] if group[LISTED:] else [])


def settled_code(standing: "Standing") -> int:
    """Return the exit code of settling doubts: the job's, once it has ended; before that, 6 while doubts are left."""
    if standing.job.state in FINAL_JOB_STATES:
        return standing.exit_code
    return 6 if standing.counts[ItemState.IN_DOUBT] else 0
