"""`batchrun config`."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from batchrun.cli.context import HELP, Context, JobName
from batchrun.cli.context import command as make_command
from batchrun.cli.say import emit, put

if TYPE_CHECKING:
    from collections.abc import Sequence

    from batchrun.runner.effective import Around, Value

WIDEST_ORIGIN = 26  # columns; a longer one moves its own value only, and the default ledger stays within 80
# What holds where a value is nobody's word, and no word of its own is there to show.
OTHERWISE = {
    "broker": "none: jobs run right here",
    "base_url": "none",
    "api_key": "none",
    "api_key_env": "OPENAI_API_KEY",
    "on_unknown": "hold",
    "worker_name": "HOST-PID",
    "drain_timeout_s": "the job's timeout_s",
    "rpm": "no limit",
    "tpm": "no limit",
    "max_cost_usd": "no limit",
    "fail_on_error": "no limit",
    "price": "not known",
}
MOST_SHOWN = 200  # characters of a value in the table; --json has them all


class JobOrSpec(JobName):
    """A job's name, or the file of a spec: of the two, different things hold."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Leave the path of a spec as it is."""
        return str(value)


@click.group(context_settings=HELP, help="\b\nExample:\n  batchrun config show\n\nShow the settings.")
def command() -> None:
    """Hold the commands together."""


@make_command("batchrun config show batch-001")
@click.argument("job", type=JobOrSpec(), required=False)
def show(context: Context, job: str | None) -> int:
    """Show every setting with its value and where that came from. A key is never shown, only whether there is one.

    With a JOB, the name of one in the ledger or the file of a spec: what holds for it, too.
    """
    from batchrun.runner.effective import Around

    env_file = Path(context.env_file or ".env")
    around = Around(context.settings(), context.origins())
    jobs = [] if job is None else list(_held_by(context, job, around))
    rows = around.values()
    if context.json:
        listed = [
            {"job_id": held.job_id, "spec": held.where, "values": [_json(value) for value in held.values]}
            for held in jobs
        ]
        file = {"path": str(env_file), "is_read": env_file.is_file()}
        emit("config", {"env_file": file, "settings": [_json(value) for value in rows], "jobs": listed})
        return 0
    for held in jobs:
        _table(f"spec {held.where}" if held.where else f"job {held.job_id}", held.values, env_file)
        put("")
    is_read = f"{env_file} is read" if env_file.is_file() else f"there is no {env_file}"
    _table(f"settings ({is_read})", rows, env_file)
    return 0


class _Held(NamedTuple):
    """What holds for one job: of the ledger, or of the spec that stands at `where`."""

    job_id: str
    where: str | None
    values: "list[Value]"


def _held_by(context: Context, job: str, around: "Around") -> Iterator[_Held]:
    """Yield what holds for a job of the ledger, or for each spec of a file."""
    from batchrun.runner.effective import values_of_job, values_of_spec
    from batchrun.runner.specs import read_specs

    if "/" in job or Path(job).is_file():
        for written in read_specs([Path(job)]):
            values = values_of_spec(written, around)
            yield _Held(next(value.value for value in values if value.name == "task_id"), written.where, values)
        return
    from batchrun.ledger.jobs import find_job

    with context.ledger() as ledger, ledger.read() as connection:
        yield _Held(job, None, values_of_job(find_job(connection, job), around))


def _json(value: "Value") -> dict[str, Any]:
    return {
        "name": value.name,
        "value": value.value,
        "source": value.source,
        "from": value.named,
        "otherwise": _otherwise(value),
    }


def _table(title: str, values: "Sequence[Value]", env_file: Path) -> None:
    """Print names and origins in columns; the value, which may be long, comes last."""
    origins = [_origin(value, env_file) for value in values]
    names_width = max(len(value.name) for value in values)
    width = min(max(map(len, origins)), WIDEST_ORIGIN)
    put(title)
    for value, origin in zip(values, origins, strict=True):
        put(f"  {value.name:<{names_width}}  {origin:<{width}}  {_otherwise(value) or _shown(value.value)}")


def _otherwise(value: "Value") -> str | None:
    """Return what holds in the place of a value that is not there."""
    return OTHERWISE.get(value.name, "none") if value.value is None else None


def _origin(value: "Value", env_file: Path) -> str:
    if value.source == "env_file":
        return f"{env_file.name} {value.named}"
    return value.named or value.source


def _shown(value: Any) -> str:
    import json

    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    text = text.replace("\n", "\\n")
    return text if len(text) <= MOST_SHOWN else text[: MOST_SHOWN - 3] + "..."


command.add_command(show, "show")
