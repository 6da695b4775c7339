"""`batchrun purge`."""

import re
from typing import TYPE_CHECKING, Any

import click

from batchrun.cli.context import JOB, Context
from batchrun.cli.context import command as make_command
from batchrun.cli.say import ask_to_delete, emit, next_lines, put, rfc3339, say
from batchrun.cli.standing import short
from batchrun.errors import UsageFault

if TYPE_CHECKING:
    from batchrun.runner.purge import Purged, PurgeReport

_AGE = re.compile(r"(\d+(?:\.\d+)?)\s*([smhdw])\Z")
_UNITS_S = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}


class Age(click.ParamType[float]):
    """A length of time such as 30d or 12h, in seconds."""

    name = "age"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        if isinstance(value, int | float):
            return float(value)
        found = _AGE.match(str(value).strip().lower())
        if found is None:
            self.fail(f"{value!r} is no age: write a number and s, m, h, d or w, such as 30d or 12h", param, ctx)
        return float(found[1]) * _UNITS_S[found[2]]


@make_command("batchrun purge batch-001 --dry-run")
@click.argument("job", type=JOB, required=False)
@click.option("--older-than", type=Age(), metavar="AGE", help="Jobs that ended before that, such as 30d or 12h.")
@click.option("--dry-run", is_flag=True, help="Say what would be deleted.")
def command(context: Context, job: str | None, older_than: float | None, dry_run: bool) -> int:
    """Delete a job's prompts and answers from the ledger; keep its counts, attempts, times and money.

    Without JOB, --older-than takes every job that ended before that. There is no way back: nothing of a purged job can
    be sent again or exported. Its output files are yours, and are left alone. It asks first; without a terminal to ask
    on, it needs -y.

    Exit code 9: a process still has the job, or the ledger's file; 5: no disk space to write that file anew.
    """
    from batchrun.runner.purge import jobs_to_purge, plan_purge, purge_jobs

    if job is None and older_than is None:
        what = "name a job, or an age: purge deletes, so it takes nothing that was not named"
        raise UsageFault(what, hint="batchrun purge JOB, or batchrun purge --older-than 30d")
    with context.ledger() as ledger:
        names = jobs_to_purge(ledger, job, older_than_s=older_than)
        plan = plan_purge(ledger, names)
        if dry_run or not names:
            return _show(context, plan, dry_run=dry_run)
    if not _is_wanted(context, plan, job, older_than):
        say(context, "nothing was deleted")
        return 0
    with context.house() as house:
        say(context, f"purging {names[0] if len(names) == 1 else f'{len(names):,} jobs'} ...")
        report = purge_jobs(house.ledger, house.gear(), names, is_named=job is not None)
    return _show(context, report)


def _is_wanted(context: Context, plan: "PurgeReport", job: str | None, older_than_s: float | None) -> bool:
    """Say what will be deleted, and what can then no longer be settled, and ask.

    Raises:
        UsageFault: nobody is there to ask.
    """
    fresh = [one for one in plan.purged if not one.was_purged]
    if context.yes or not fresh:  # nothing is left to delete then but traces in the ledger's file
        return True
    for one in fresh:
        for line in _purged_lines(one, dry_run=True):
            say(context, line)
    age = [] if older_than_s is None else [f"--older-than {older_than_s:g}s"]
    command = " ".join(["batchrun purge", *([job] if job else []), *age])
    what = fresh[0].job.task_id if len(fresh) == 1 else f"{len(fresh):,} jobs"
    return ask_to_delete(context, f"delete the prompts and answers of {what} for good?", command=command)


def _show(context: Context, report: "PurgeReport", *, dry_run: bool = False) -> int:
    if context.json:
        emit("purge", _json(report, dry_run=dry_run))
        return _exit_code(report)
    for one in report.purged:
        for line in _purged_lines(one, dry_run=dry_run):
            put(line)
    for name, error in report.left:
        put(f"{name} not purged: {error.message}")
    if not report.purged and not report.left:
        put("nothing to purge: no job ended before that, or those that did are purged")
        return 0
    for line in _file_lines(report, dry_run=dry_run):
        put(line)
    return _exit_code(report)


def _exit_code(report: "PurgeReport") -> int:
    from batchrun.ledger.compaction import Compaction

    if report.compaction is Compaction.NO_SPACE:
        return 5
    return 9 if report.left or report.compaction is Compaction.BUSY else 0


def _purged_lines(one: "Purged", *, dry_run: bool) -> list[str]:
    from batchrun.runner.purged import purged_when

    name, contents = one.job.task_id, one.contents
    if one.was_purged:
        return [f"{name} was purged {purged_when(one.job)}; nothing is left of its prompts and answers"]
    lines = [
        f"{name} {'would be purged' if dry_run else 'purged'}: {_count('request', contents.requests)}, "
        f"{_count('answer', contents.answers)}, {_count('other text', contents.texts)} "
        f"({size(contents.size_bytes)})",
        "  kept      items, attempts, counts, tokens, times and money",
    ]
    if one.files:
        lines.append(f"  yours     {', '.join(map(short, one.files))}: not touched")
    if one.in_doubt:
        noun, verb = _count("item", one.in_doubt), "can then" if dry_run else "can"
        lines.append(
            f"  in doubt  {noun} {verb} no longer be sent again; `batchrun reconcile {name} --fail` still works"
        )
    return lines


def _file_lines(report: "PurgeReport", *, dry_run: bool) -> list[str]:
    from batchrun.ledger.compaction import Compaction

    names = [one.job.task_id for one in report.purged] or [name for name, _ in report.left]
    again = f"batchrun purge {names[0]}"
    if dry_run:
        return next_lines([again])
    traces = "traces of what was deleted may be left in the ledger's file"
    match report.compaction:
        case Compaction.DONE:
            before, after = size(report.before_bytes or 0), size(report.after_bytes or 0)
            return [
                f"  ledger    written anew, {before} before, {after} now",
                *next_lines([f"batchrun status {names[0]}"]),
            ]
        case Compaction.BUSY:
            why = f"{traces}: another process has it open, so it was not written anew"
            return [f"  ledger    {why}", *next_lines([f"{again} (when nothing else runs)"])]
        case Compaction.NO_SPACE:
            why = f"{traces}: the disk has no room to write it anew, about twice {size(report.after_bytes or 0)}"
            return [f"  ledger    {why}", *next_lines([again])]
        case Compaction.NOT_NEEDED:
            return [
                "  ledger    the rows are deleted; their bytes go when Postgres vacuums its tables (docs/operations.md)"
            ]
        case None:
            return next_lines([again])


def _count(noun: str, count: int) -> str:
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def size(size_bytes: int) -> str:
    """Write a size for people."""
    amount = float(size_bytes)
    for unit in ("bytes", "kB", "MB"):
        if amount < 1_000:
            return f"{amount:.0f} {unit}" if unit == "bytes" or amount >= 100 else f"{amount:.1f} {unit}"
        amount /= 1_000
    return f"{amount:,.1f} GB"


def _json(report: "PurgeReport", *, dry_run: bool) -> dict[str, Any]:
    jobs = [
        {
            "job_id": one.job.task_id,
            "state": one.job.state.value,
            "ended_at": rfc3339(one.job.ended_at),
            "purged_at": rfc3339(one.job.purged_at),
            "was_purged": one.was_purged,
            "requests": one.contents.requests,
            "answers": one.contents.answers,
            "texts": one.contents.texts,
            "content_bytes": one.contents.size_bytes,
            "in_doubt": one.in_doubt,
            "files_left": [str(path) for path in one.files],
        }
        for one in report.purged
    ]
    left = [
        {"job_id": name, "kind": error.kind, "message": error.message, "hint": error.hint}
        for name, error in report.left
    ]
    return {
        "dry_run": dry_run,
        "jobs": jobs,
        "left": left,
        "compaction": None if report.compaction is None else report.compaction.value,
        "before_bytes": report.before_bytes,
        "after_bytes": report.after_bytes,
    }
