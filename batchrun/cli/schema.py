"""`batchrun schema`."""

import json
from typing import Any

import click

from batchrun.cli.context import Context
from batchrun.cli.context import command as make_command
from batchrun.cli.say import emit, put
from batchrun.errors import UsageFault

SPEC = "spec"


def _complete(context: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    return [kind for kind in _known() if kind.startswith(incomplete)]


@make_command("batchrun schema job_status")
@click.argument("kind", default=SPEC, shell_complete=_complete)
@click.option("--list", "list_kinds", is_flag=True, help="List the kinds.")
def command(context: Context, kind: str, list_kinds: bool) -> int:
    """Print a JSON Schema: of the job spec, or with a KIND of an object that --json prints.

    For an editor: save it as jobs/job.schema.json, and write "$schema": "./job.schema.json" into jobs/job.json.
    """
    if list_kinds:
        return _list(context)
    if kind not in _known():
        import difflib

        close = difflib.get_close_matches(kind, _known(), n=1)
        hint = f"did you mean `batchrun schema {close[0]}`?" if close else "batchrun schema --list"
        raise UsageFault(f"there is no kind {kind!r}", hint=hint)
    click.echo(json.dumps(_schema(kind), indent=2, ensure_ascii=False))
    return 0


def _known() -> list[str]:
    from batchrun.cli.schemas import kinds

    return [SPEC, *kinds()]


def _schema(kind: str) -> dict[str, Any]:
    if kind == SPEC:
        from batchrun.core.spec_schema import spec_schema

        return spec_schema()
    from batchrun.cli.schemas import output_schema

    return output_schema(kind)


def _list(context: Context) -> int:
    listed = [{"name": kind, "about": _schema(kind)["description"]} for kind in _known()]
    if context.json:
        emit("schema_list", {"kinds": listed})
        return 0
    width = max(len(one["name"]) for one in listed)
    for one in listed:
        put(f"{one['name']:<{width}}  {one['about']}")
    return 0
