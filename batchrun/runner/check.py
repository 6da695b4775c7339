"""Checking a spec together with its whole input: no network, nothing written, every fault named at once."""

import difflib
import hashlib
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from batchrun.core.bounds import beyond_text
from batchrun.core.request import Defaults
from batchrun.core.spec import COMPLETIONS_PATH, ENDPOINT_PATHS, JobSpec
from batchrun.core.spec_check import check_spec, place
from batchrun.core.variables import example_variable
from batchrun.core.wording import clipped
from batchrun.errors import BadInput, Fault, SpecNotFound, UsageFault
from batchrun.files.inputs import Survey, Watch, survey
from batchrun.files.literals import literal_warnings
from batchrun.files.paths import check_paths, default_error_file
from batchrun.files.template import Template, TemplateFault
from batchrun.ledger.jobs import Job
from batchrun.runner.response_schema import read_schema


@dataclass(frozen=True, slots=True)
class Checked:
    """A spec and an input without faults."""

    spec: JobSpec
    defaults: Defaults
    survey: Survey
    input: Path
    output: Path
    errors: Path
    schema: Any = None  # of the answers, wherever it was read; None: none
    warnings: tuple[Fault, ...] = ()  # what is allowed, and hardly meant


def read_spec_text(path: Path) -> str:
    """Read a spec file.

    Raises:
        UsageFault: it is not there, is a folder, or is no text.
    """
    if os.path.exists(path) and not (os.path.isfile(path) or os.path.isdir(path)):
        raise UsageFault(f"{str(path)!r} is no regular file", hint="save the spec as a file")
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise SpecNotFound(f"{str(path)!r} does not exist", path, hint=_near(path)) from None
    except IsADirectoryError:
        raise UsageFault(f"{str(path)!r} is a folder", hint="name the job.json in it") from None
    except UnicodeDecodeError:
        raise UsageFault(f"{str(path)!r} is not UTF-8 text", hint="save it as UTF-8") from None
    except OSError as error:
        raise UsageFault(f"{str(path)!r} cannot be read: {error.strerror}", hint="make it readable") from None


def _near(path: Path) -> str:
    """Say which spec beside it, or in `jobs/`, may be meant."""
    around = [*path.parent.glob("*.json*"), *Path("jobs").glob("*.json*")]
    named = {str(one) for one in around if one.is_file()}
    close = difflib.get_close_matches(str(path), named, n=1) or [one for one in named if Path(one).stem == path.stem]
    if close:
        return f"did you mean {close[0]!r}?"
    return "name a job's spec, such as jobs/job.json; `batchrun init` makes one"


def check(path: Path, *, max_faults: int = 20, skip_invalid: bool = False) -> Checked:
    """Check a spec and its whole input. No network, nothing written.

    Raises:
        BadInput: with all faults of both, the input's up to `max_faults`, and their total.
        UsageFault: the spec file cannot be read.
    """
    return check_text(
        read_spec_text(path),
        where=str(path),
        hint=None,
        max_faults=max_faults,
        skip_invalid=skip_invalid,
    )


def check_again(job: Job) -> Checked:
    """Check the spec that stands in the ledger with the input as it is now.

    Raises:
        BadInput: with all faults.
    """
    text = json.dumps({name: job.spec[name] for name in JobSpec.model_fields if name in job.spec})
    return check_text(text, where=f"spec of {job.task_id}", hint="mend the input, then resume again; or --keep-input")


def has_other_input(job: Job) -> bool:
    """Say whether the input file is there and holds something else than what was registered."""
    try:
        with Path(job.spec["input_file"]).open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest() != job.input_digest
    except OSError:
        return False  # it is not needed any more


def check_text(
    text: str,
    *,
    where: str,
    hint: str | None = None,
    max_faults: int = 20,
    skip_invalid: bool = False,
    watch: Watch | None = None,
) -> Checked:
    """Check the text of a spec and its whole input.

    Args:
        where: what to call the spec in messages.
        hint: what to do about faults, where there is more to say than of each.
        watch: told now and then how many bytes of the input were read.

    Raises:
        BadInput: with all faults.
    """
    spec, faults, raw = check_spec(text, where=where)
    read = raw if spec is None else spec.model_dump()
    named = {key: Path(read[key]) if isinstance(read.get(key), str) and read[key] else None for key in _FILES}
    source, output = named["input_file"], named["output_file"]
    errors = named["error_file"] or (default_error_file(output) if output else None)
    if source is not None and output is not None and errors is not None:
        faults += check_paths(input_file=source, output_file=output, error_file=errors)
    schema, schema_faults = read_schema(read, where, text)
    faults += schema_faults
    template_fault = _template_fault(read.get("prompt_template"), where, text)
    faults += template_fault
    defaults = Defaults.of(spec) if spec else _stand_in(raw)
    seen = None
    if source is not None and os.path.isfile(source) and not template_fault:
        seen = survey(source, defaults, max_faults=max_faults, skip_invalid=skip_invalid, watch=watch)
        faults += [] if skip_invalid and seen.items else seen.faults
    if spec is not None and seen is not None and spec.max_cost_usd is not None:
        faults += unbounded_faults(spec, seen, where=place(where, text, "max_cost_usd"), what="'max_cost_usd'")
    total = len(faults) + (
        max(0, seen.fault_count - len(seen.faults)) if seen and not (skip_invalid and seen.items) else 0
    )
    if faults:
        is_input_alone = seen is not None and len(faults) == len(seen.faults) and seen.items > 0
        raise BadInput(
            faults, total=total, hint=hint or ("--skip-invalid runs the other lines" if is_input_alone else None)
        )
    assert spec is not None  # a spec without faults names all of its files, and they are there
    assert source is not None
    assert output is not None
    assert errors is not None
    assert seen is not None
    warnings = tuple(_warnings(spec, seen, where, text))
    places = (source.absolute(), output.absolute(), errors.absolute())
    return Checked(spec, defaults, seen, *places, schema=schema, warnings=warnings)


def unbounded_faults(spec: JobSpec, seen: Survey, *, where: str, what: str) -> list[Fault]:
    """Return why the cost of this job cannot be limited, if it cannot: requests that their text does not bound.

    Args:
        what: sets the limit, in words.
    """
    if spec.max_prompt_tokens is not None or (spec.dearest is not None and spec.dearest.is_free):
        return []
    if (added := beyond_text(json.dumps(spec.params, separators=(",", ":")).encode())) is not None:
        asks = f"'params' asks for {added}"
    elif seen.first_unbounded is not None:
        line_no, thing = seen.first_unbounded
        others = f" (and {seen.unbounded - 1:,} more)" if seen.unbounded > 1 else ""
        asks = f"input line {line_no}{others} asks for {thing}"
    else:
        return []
    said = f"{what} cannot be kept: {asks}, and nothing tells how many tokens that may be"
    return [Fault(where, said, "add max_prompt_tokens (the model's context, say): so many are set aside for each")]


_FILES = ("input_file", "output_file", "error_file")


def _template_fault(source: object, where: str, text: str) -> list[Fault]:
    if not isinstance(source, str):
        return []
    try:
        Template.of(source)
    except TemplateFault as error:
        what = f"'prompt_template' is no template: {error}"
        what += f" (its line {error.line_no})" if "\n" in source else ""
        return [Fault(place(where, text, "prompt_template"), what, error.hint)]
    return []


def _warnings(spec: JobSpec, seen: Survey, where: str, text: str) -> Iterator[Fault]:
    """Warn of texts that would reach the model otherwise than they look."""
    at = place(where, text, "prompt_template")
    literals = list(
        literal_warnings(
            seen.names,
            template=spec.prompt_template,
            system=spec.system,
            at_template=at,
            at_system=place(where, text, "system"),
        )
    )
    yield from literals
    if spec.prompt_template is None or not seen.names or any(one.where == at for one in literals):
        return
    if Template.of(spec.prompt_template).names.isdisjoint({"row", *seen.names}):
        found = clipped(", ".join(seen.names))
        what = f"'prompt_template' names no field of the rows (they have: {found}): every prompt is the same"
        yield Fault(at, what, f"write {example_variable(seen.names)} into it, say")


def _stand_in(raw: dict[str, Any]) -> Defaults:
    """Return what the input of a faulty spec is read with, so that its faults are named as well."""
    template = raw.get("prompt_template")
    return Defaults(
        model="?",
        max_tokens=1,
        endpoint=_endpoint(raw),
        params={},
        prompt_template=template if isinstance(template, str) and template else None,
    )


def _endpoint(raw: dict[str, Any]) -> str:
    value = raw.get("endpoint")
    return value if value in ENDPOINT_PATHS else COMPLETIONS_PATH
