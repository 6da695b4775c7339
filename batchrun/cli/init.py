"""`batchrun init`."""

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import click

from batchrun.cli.context import Context
from batchrun.cli.context import command as make_command
from batchrun.cli.say import emit, next_lines, put

if TYPE_CHECKING:
    from batchrun.runner.columns import Look
    from batchrun.runner.skeleton import Project, Wanted


@make_command("batchrun init my-batch --model my-model")
@click.argument("folder", metavar="[DIR]", default=".", type=click.Path(path_type=Path))
@click.option(
    "--from", "source", metavar="FILE", type=click.Path(path_type=Path), help="The data: JSONL, CSV, Parquet, .gz."
)
@click.option("--model", metavar="M", help="The model, as your endpoint calls it.")
@click.option("--base-url", metavar="URL", help="The endpoint (default: OPENAI_BASE_URL when the job runs).")
@click.option("--self-hosted", is_flag=True, help="Requests cost nothing: settle doubts by sending again.")
def command(
    context: Context, folder: Path, source: Path | None, model: str | None, base_url: str | None, self_hosted: bool
) -> int:
    """Make a project: folders, a job, a sample input, .env.example, .gitignore.

    What is there already is left alone. With --from the job reads your file: requests as they are, or rows of data
    with a first prompt_template for the likeliest column. Where there is a job already, it gets one of its own.
    """
    from batchrun.runner.skeleton import Wanted, make_project

    wanted = Wanted(folder, source, model, base_url, self_hosted)
    project = make_project(wanted)
    notes = _notes(project, wanted)
    following = f"batchrun validate {project.job}"
    if folder.resolve() != Path.cwd():
        following = f"cd {shlex.quote(str(folder))} && {following}"
    if context.json:
        values = {"folder": str(folder), "made": project.made, "kept": project.kept}
        emit(
            "init",
            {**values, "job": project.job, "spec": project.spec, "columns": _columns(project.look), "notes": notes},
        )
        return 0
    for word, names in (("made", project.made), ("kept", project.kept)):
        for name in names:
            put(f"{word}  {folder / name}" + (" (it was there)" if word == "kept" else ""))
    for note in notes:
        put(f"note  {note}")
    for line in next_lines([following]):
        put(line)
    return 0


def _columns(look: "Look | None") -> list[str] | None:
    return None if look is None else look.columns


def _notes(project: "Project", wanted: "Wanted") -> list[str]:
    """Return what a person should know about what was made, each in a sentence."""
    notes = []
    if project.job in project.kept and wanted.asks_for_more and wanted.source is None:
        notes.append(f"{project.job} is as it was; it would have been: {_compact(project.spec)}")
    if project.look is not None:
        notes.append(_seen(project.look))
    if project.has_placeholder:
        notes.append(f"the model {project.spec['model']!r} is a placeholder: put in one that your endpoint serves")
    if project.not_ignored:
        notes.append(f".gitignore does not name {', '.join(project.not_ignored)}: add what git should not keep")
    if wanted.is_self_hosted and wanted.base_url is not None and not _is_local(project.spec["base_url"]):
        notes.append("on_unknown is retry: at an endpoint that bills, a request may then be paid twice")
    return notes


def _seen(look: "Look") -> str:
    if look.column is None:
        return f"the lines are requests ({look.endpoint}): they are sent as they are"
    names = ", ".join(look.columns)
    return f"rows of data with the columns {names}: prompt_template asks with {look.column!r}; write there what to ask"


def _compact(spec: dict[str, object]) -> str:
    import json

    return json.dumps(spec, ensure_ascii=False)


def _is_local(base_url: str) -> bool:
    from batchrun.endpoint.address import is_local

    return is_local(base_url)
