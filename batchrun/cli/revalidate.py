"""`batchrun revalidate`."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from batchrun.cli.context import JOB, Context
from batchrun.cli.context import command as make_command
from batchrun.cli.say import emit, next_lines, put
from batchrun.core.wording import several
from batchrun.errors import BadInput, Fault

if TYPE_CHECKING:
    from batchrun.runner.revalidate import Revalidated


@make_command("batchrun revalidate batch-001")
@click.argument("job", type=JOB)
@click.option(
    "--schema",
    "schema_file",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="A JSON Schema; it is the job's from now on.",
)
@click.option(
    "--accept-fenced/--no-accept-fenced", default=None, help="JSON in a code fence counts, from now on, or does not."
)
@click.option("--dry-run", is_flag=True, help="Say what would change.")
def command(context: Context, job: str, schema_file: Path | None, accept_fenced: bool | None, dry_run: bool) -> int:
    """Judge the stored answers of a job anew, by its response_schema or by another one. No request is made.

    An item whose answer is invalid fails, one whose answer is not any more is completed, and the outputs are written
    anew.
    """
    from batchrun.runner.hold import holding, sweep_all, working
    from batchrun.runner.revalidate import judge_anew, try_out, with_schema
    from batchrun.runner.standing import read_standing

    schema = None if schema_file is None else _schema(schema_file)
    with context.house() as house:
        found = read_standing(house.ledger, job).job
        if dry_run:
            spec = with_schema(found.spec, schema=schema, accept_fenced=accept_fenced)
            return _show(context, job, try_out(house.ledger, found, spec), dry_run=True)
        gear = house.gear()
        with working(house.ledger, gear, concurrency=1) as worker, holding(house.ledger, found, worker, gear):
            sweep_all(house.ledger, gear, worker)
            found = read_standing(house.ledger, job).job
            spec = with_schema(found.spec, schema=schema, accept_fenced=accept_fenced)
            done = judge_anew(house.ledger, found, spec, worker=worker)
        return _show(context, job, done, dry_run=False)


def _schema(path: Path) -> object:
    """Read and check the schema.

    Raises:
        BadInput: it cannot be used.
    """
    from batchrun.core.answer_check import AnswerCheck, SchemaFault
    from batchrun.runner.response_schema import load_schema

    try:
        schema = load_schema(path)
        AnswerCheck.of(schema)
    except SchemaFault as fault:
        raise BadInput([Fault(f"{str(path)!r}", str(fault), fault.hint)]) from None
    return schema


def _show(context: Context, job: str, done: "Revalidated", *, dry_run: bool) -> int:
    if context.json:
        values = {"judged": done.judged, "completed": done.completed, "failed": done.failed, "invalid": done.invalid}
        applied = not dry_run and bool(done.completed or done.failed)
        emit("revalidation", {"job_id": job, **values, "applied": applied, "dry_run": dry_run})
        return 0
    would = "would be: " if dry_run else ""
    put(f"{would}{several(done.judged, 'answer')} judged, {done.invalid:,} invalid: no request was made")
    put(f"  completed {done.completed:,} that had failed   failed {done.failed:,} that had completed")
    for line in next_lines([f"batchrun failures {job}" if done.invalid else f"batchrun status {job}"]):
        put(line)
    return 0
