"""Names as people type them: a spec where a job is wanted, a job where a spec is wanted, and names nearly right."""

import json
from pathlib import Path

from batchrun.cli.context import Context
from batchrun.errors import BatchrunError, SpecNotFound, UsageFault

SPEC_ENDINGS = (".json", ".jsonl")


def job_named(text: str) -> str:
    """Return the job that is meant: the name itself, or the `task_id` of the spec file that is named instead.

    Raises:
        UsageFault: it is the path of a file that is not there, is no spec, or holds several.
    """
    if "/" not in text and not text.endswith(SPEC_ENDINGS):
        return text
    path = Path(text)
    if not path.is_file():
        if "/" not in text:
            return text  # a job may be called so
        raise UsageFault(f"{text!r} is no job's name, and no spec lies there", hint="batchrun ls lists the jobs")
    found = _task_ids(path)
    if not found:
        raise UsageFault(f"{text!r} is a file, and no spec: it names no task_id", hint="batchrun ls lists the jobs")
    if len(found) > 1:
        names = ", ".join(found[:5])
        raise UsageFault(f"{text!r} holds {len(found)} jobs, and one is wanted here", hint=f"name one of them: {names}")
    return found[0]


def _task_ids(path: Path) -> list[str]:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return []
    found = []
    for part in text.split("\n") if path.suffix == ".jsonl" else [text]:
        try:
            value = json.loads(part)
        except (ValueError, RecursionError):
            continue
        if isinstance(value, dict) and isinstance(value.get("task_id"), str):
            found.append(value["task_id"])
    return list(dict.fromkeys(found))


def explained(context: Context, error: BatchrunError) -> BatchrunError:
    """Return an error for the person who made the slip: a spec that is not there may be a job, or nearly a file."""
    if not isinstance(error, SpecNotFound):
        return error
    name = error.path.name
    try:
        if str(error.path) == name and _is_job(context, name):
            hint = f"batchrun resume {name}"
            return SpecNotFound(f"{name!r} is a job of this ledger, and a spec's file is wanted", error.path, hint=hint)
    except BatchrunError:
        pass  # a ledger that cannot be read is not what went wrong here
    return error


def _is_job(context: Context, name: str) -> bool:
    from batchrun.ledger.jobs import find_job

    with context.ledger() as ledger, ledger.read() as connection:
        return find_job(connection, name) is not None
