"""A project's first files: folders, a job, an input, and what git should not keep. Nothing that is there is touched."""

import json
import os
import re
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

from batchrun.endpoint.address import normalise_base_url
from batchrun.errors import UsageFault
from batchrun.files.paths import input_faults
from batchrun.runner.columns import Look, look_at

FOLDERS = ("jobs", "inputs", "outputs")
JOB = "jobs/job.json"
INPUT = "inputs/batch_input.jsonl"
IGNORED = (".batchrun/", ".env", "outputs/")
MODEL = "my-model"  # a placeholder
BASE_URL = "http://127.0.0.1:8000/v1"
_NO_NAME = re.compile(r"[^A-Za-z0-9._-]+")
_PACKED = re.compile(r"(\.jsonl|\.ndjson|\.json|\.csv|\.tsv|\.parquet)?(\.gz)?\Z", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a person says of the project to be made."""

    folder: Path
    source: Path | None = None  # the data it is for
    model: str | None = None
    base_url: str | None = None
    is_self_hosted: bool = False

    @property
    def asks_for_more(self) -> bool:
        """Say whether the job is to be another than that of the bare command."""
        return self.is_self_hosted or any(given is not None for given in (self.source, self.model, self.base_url))


@dataclass
class Project:
    """What was made, and what was there before; paths are relative to the folder."""

    folder: Path
    spec: dict[str, Any]
    look: Look | None
    job: str = JOB  # where the spec stands, or would
    made: list[str] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)
    not_ignored: list[str] = field(default_factory=list)  # what a .gitignore that was there does not name

    @property
    def has_placeholder(self) -> bool:
        """Say whether the job that was made names no real model."""
        return self.job in self.made and self.spec["model"] == MODEL


def make_project(wanted: Wanted) -> Project:
    """Make the files of a project that are not there yet.

    Raises:
        BadInput: the data cannot be read, or nothing can be asked of it. Nothing was written.
        EndpointFault: the address is none. Nothing was written.
        UsageFault: a folder or file cannot be made.
    """
    base_url = None if wanted.base_url is None else normalise_base_url(wanted.base_url)
    look = _look(wanted.source)
    job, spec = _free_job(wanted, base_url, look)
    project = Project(wanted.folder, spec, look, job)
    for folder in ("", *FOLDERS):
        _make_folder(wanted.folder / folder)
    texts: dict[str, str] = {}
    if wanted.source is None and not os.path.lexists(wanted.folder / JOB):
        texts[INPUT] = _sample()  # before the job that names it
    texts[job] = json.dumps(project.spec, indent=2, ensure_ascii=False) + "\n"
    texts[".env.example"] = _ENVIRONMENT.format(base_url=base_url or BASE_URL)
    texts[".gitignore"] = "".join(f"{entry}\n" for entry in IGNORED)
    for name, text in texts.items():
        (project.made if _write_new(wanted.folder / name, text) else project.kept).append(name)
    if ".gitignore" in project.kept:
        project.not_ignored = _not_ignored(wanted.folder / ".gitignore")
    return project


def _look(source: Path | None) -> Look | None:
    if source is None:
        return None
    if faults := input_faults(source):
        raise UsageFault(f"'{source}' {faults[0].what}", hint=faults[0].hint)
    return look_at(source)


def _free_job(wanted: Wanted, base_url: str | None, look: Look | None) -> tuple[str, dict[str, Any]]:
    """Return where a job goes, and its spec: data gets a job of its own, under a name that no other job here has."""
    if wanted.source is None:
        return JOB, _spec(wanted, base_url, look, task_id="batch-001")
    there = _specs_in(wanted.folder)
    names = {spec.get("task_id") for spec in there.values() if isinstance(spec, dict)}
    first = _name_of(wanted.source)
    for number in count(1):
        name = first if number == 1 else f"{first}-{number}"
        spec = _spec(wanted, base_url, look, task_id=name)
        job = f"jobs/{name}.json" if os.path.lexists(wanted.folder / JOB) else JOB
        same = next((path for path, one in there.items() if one == spec), None)  # the same command again
        if same is not None:
            return same, spec
        if name not in names and not os.path.lexists(wanted.folder / job):
            return job, spec
    raise AssertionError("numbers do not end")


def _specs_in(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for path in sorted((folder / "jobs").glob("*.json")):
        try:
            found[f"jobs/{path.name}"] = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError):
            continue
    return found


def _spec(wanted: Wanted, base_url: str | None, look: Look | None, *, task_id: str) -> dict[str, Any]:
    source, output = f"./{INPUT}", "./outputs/batch_output.jsonl"
    if wanted.source is not None:
        source, output = _seen_from(wanted.folder, wanted.source), f"./outputs/{task_id}_output.jsonl"
    spec: dict[str, Any] = {
        "task_id": task_id,
        "model": wanted.model or (look and look.model) or MODEL,
        "input_file": source,
        "output_file": output,
        "max_tokens": 256,
        "concurrency": 8,
        "retry_times": 3,
    }
    if base_url is not None:
        spec["base_url"] = base_url
    if look is not None and look.endpoint != "/v1/chat/completions":
        spec["endpoint"] = look.endpoint
    if look is not None and look.prompt_template is not None:
        spec["prompt_template"] = look.prompt_template
    if wanted.is_self_hosted:
        spec["on_unknown"] = "retry"
    return spec


def _name_of(source: Path) -> str:
    """Return a job's name made of a file's."""
    return _NO_NAME.sub("-", _PACKED.sub("", source.name)).strip("-._")[:80].rstrip("-._") or "batch-001"


def _seen_from(folder: Path, source: Path) -> str:
    """Return a path as it is written in a job that is run in `folder`; what lies outside is named from the root."""
    real, base = source.absolute(), folder.absolute()
    for path, root in ((real, base), (Path(os.path.realpath(real)), Path(os.path.realpath(base)))):
        if path.is_relative_to(root):
            return f"./{path.relative_to(root)}"
    return str(Path(os.path.normpath(real)) if ".." not in real.parts else Path(os.path.realpath(real)))


def _make_folder(path: Path) -> None:
    try:
        path.mkdir(parents=True, exist_ok=True)
    except FileExistsError:
        raise UsageFault(f"'{path}' is no folder", hint="move it away, or name another folder") from None
    except OSError as error:
        raise UsageFault(f"'{path}' cannot be made: {error.strerror}", hint="name another folder") from None


def _write_new(path: Path, text: str) -> bool:
    """Write a file that is not there yet, whole or not at all; false where something is there."""
    try:
        with path.open("x", encoding="utf-8") as file:
            try:
                file.write(text)
                file.flush()
            except OSError:
                path.unlink(missing_ok=True)
                raise
    except FileExistsError:
        return False
    except OSError as error:
        raise UsageFault(f"'{path}' cannot be written: {error.strerror}", hint="name another folder") from None
    return True


def _not_ignored(path: Path) -> list[str]:
    """Return what a .gitignore that was there lets git keep, as far as its plain entries tell."""
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    named = {line.strip().strip("/*") for line in lines}
    return [entry for entry in IGNORED if entry.strip("/") not in named]


def _sample() -> str:
    """Return three requests as OpenAI's Batch API takes them; the job adds the model and the token limit."""
    questions = {
        "capital": "What is the capital of Ghana? One word.",
        "rivers": "Name three rivers in South America, one a line.",
        "translate": "Translate into French: The library opens at nine.",
    }
    lines = [
        {
            "custom_id": custom_id,
            "method": "POST",
            "url": "/v1/chat/completions",
            "body": {"messages": [{"role": "user", "content": question}]},
        }
        for custom_id, question in questions.items()
    ]
    return "".join(json.dumps(line) + "\n" for line in lines)


_ENVIRONMENT = """\
# Copy to .env, which git ignores, and fill in. What is set in the environment wins over .env.

# The endpoint, any OpenAI-compatible one. A job's own base_url wins.
OPENAI_BASE_URL={base_url}
# Its key. A server of your own on a loopback or private address needs none. A key never belongs in a job.
OPENAI_API_KEY=

# What to do when nobody can know whether a request was billed: hold (you decide), or retry (where requests are free).
# A job's own on_unknown wins.
#BATCHRUN_ON_UNKNOWN=hold

# The ledger, where it is not .batchrun/ledger.db
#BATCHRUN_DB=sqlite:///.batchrun/ledger.db
"""
