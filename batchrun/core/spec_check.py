"""A job spec's text, checked strictly and completely before anything happens: every fault with line and mend."""

import difflib
import json
import re
from collections.abc import Iterator
from functools import lru_cache
from math import isfinite
from typing import Any

from pydantic import BaseModel, ValidationError

from batchrun.core.client_options import CLIENT_OPTIONS_HINT, client_options_among
from batchrun.core.places import Path, Places
from batchrun.core.prices import Price
from batchrun.core.spec import NEVER_IN_PARAMS, NOT_YET, OF_ONE_ENDPOINT, SYSTEM_PATHS, EndpointSpec, JobSpec, TrialSpec
from batchrun.core.surrogates import FLATTEN
from batchrun.core.wording import kind
from batchrun.errors import Fault

_SMALLEST = "see docs/job-spec.md for a smallest complete spec"
_KEYS = "see docs/job-spec.md for every key; body fields go into params"
# Keys that hold an object of known keys, or a list of such objects.
_PARTS: dict[str, type[BaseModel]] = {"trial": TrialSpec, "price": Price, "endpoints": EndpointSpec}
# What stands in a right spec, where there is no default to name.
_EXAMPLES: dict[str, str] = {
    "task_id": '"batch-001"',
    "model": '"my-model"',
    "input_file": '"inputs/batch_input.jsonl"',
    "output_file": '"outputs/batch_output.jsonl"',
    "max_tokens": "256",
    "concurrency": "8",
    "retry_times": "3",
    "price.input_per_1m_usd": "0.15",
    "price.output_per_1m_usd": "0.60",
    "endpoints.base_url": '"http://127.0.0.1:8000/v1"',
}
# What the parser of JSON says -> the mend.
_MENDS = (
    ("Expecting property name", 'write names in double quotes, such as "model"; no comma before a closing bracket'),
    ("Expecting ',' delimiter", 'put a comma between two entries; a quote inside a text is written \\"'),
    ("Expecting ':' delimiter", "put a colon between a name and its value"),
    ("Expecting value", "write a text in double quotes, a number, true, false, null, [...] or {...}"),
    ("Unterminated string", 'close the text with a double quote (")'),
    ("Invalid control character", "write a line break inside a text as \\n, a tab as \\t"),
    ("Invalid \\", "write a backslash inside a text as \\\\"),
    ("Extra data", "one object a file"),
)


def check_spec(text: str, *, where: str) -> tuple[JobSpec | None, list[Fault], dict[str, Any]]:
    """Check one spec; return it (None when faulty), all its faults, and what could be read of it."""
    try:
        raw = json.loads(text.removeprefix("\ufeff"))
    except json.JSONDecodeError as error:
        return None, [_not_json(text, where, error)], {}
    except RecursionError:
        return None, [Fault(where, "is nested too deep", FLATTEN)], {}
    except ValueError as error:  # a number of more digits than Python reads
        return None, [Fault(where, f"is not a valid spec: {error}", "write such a number as a text")], {}
    if not isinstance(raw, dict):
        several = "write several specs into a .jsonl file, one a line: jq -c '.[]' OLD > jobs.jsonl"
        hint = several if isinstance(raw, list) and raw else _SMALLEST
        return None, [Fault(where, f"must hold one JSON object, found {kind(raw)}", hint)], {}
    places = _places_of(text)
    raw.pop("$schema", None)
    faults = [
        Fault(place(where, text, *path), f"{str(path[-1])!r} stands twice", "keep one of the two")
        for path in places.repeated
    ]
    unreal = _unreal(where, text, places)
    faults += unreal.values()
    faults += [_unknown_key(where, text, key) for key in raw if key not in JobSpec.model_fields]
    known = {key: value for key, value in raw.items() if key in JobSpec.model_fields}
    try:
        spec = JobSpec.model_validate(known)
    except ValidationError as error:
        details = [dict(detail) for detail in error.errors() if detail["loc"] not in unreal]
        found = [_fault(where, text, detail) for detail in _without_slips(details, raw)]
        return None, faults + found, raw
    faults += _cross_faults(spec, where, text)
    return (None if faults else spec), faults, raw


def _without_slips(details: list[dict[str, Any]], raw: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Leave out a missing key that stands there, written wrongly: that is told as an unknown one."""
    unknown: dict[tuple[str | int, ...], set[str]] = {(): raw.keys() - JobSpec.model_fields.keys() - set(NOT_YET)}
    for detail in details:
        if detail["type"] == "extra_forbidden":
            unknown.setdefault(detail["loc"][:-1], set()).add(str(detail["loc"][-1]))
    for detail in details:
        model = _model_of(detail["loc"])
        meant = {_close(key.strip(), model) for key in unknown.get(detail["loc"][:-1], ())}
        if detail["type"] != "missing" or detail["loc"][-1] not in meant:
            yield detail


def _model_of(path: Path) -> type[BaseModel]:
    """Return what says which keys there are beside the last one of `path`."""
    above = [str(step) for step in path[:-1] if str(step) in _PARTS]
    return _PARTS[above[-1]] if above else JobSpec


def _unreal(where: str, text: str, places: Places) -> dict[Path, Fault]:
    """Return the faults of numbers that are none: what Python writes and JSON does not have, and what is too large."""
    faults = {}
    for path, spot in places.spots.items():
        if spot.text[0] in "-0123456789NI" and not isfinite(float(spot.text)):
            what = f"{spot.text} is not JSON" if spot.text[-1].isalpha() else "is too large a number"
            name = ".".join(map(str, path))
            faults[path] = Fault(place(where, text, *path), f"{name!r}: {what}", "write a number that is one")
    return faults


def _not_json(text: str, where: str, error: json.JSONDecodeError) -> Fault:
    if not text.strip():
        return Fault(where, "is empty", _SMALLEST)
    hint = next((mend for words, mend in _MENDS if error.msg.startswith(words)), _SMALLEST)
    before = text[: error.pos].rstrip()
    if before.endswith(",") and text[error.pos : error.pos + 1] in "}]":
        hint = "take out the comma before the closing bracket"
    elif "\u201c" in text or "\u201d" in text:
        hint = 'replace the curly quotes by plain ones (")'
    elif re.search(r"(^|[{,\s])//|^\s*#", text, re.MULTILINE):
        hint = "JSON has no comments: take them out"
    return Fault(f"{where} line {error.lineno}", f"is not JSON: {error.msg} (column {error.colno})", hint)


def _unknown_key(where: str, text: str, key: str) -> Fault:
    at = place(where, text, key)
    if key in NOT_YET:
        return Fault(at, f"{key!r} is not available in this release", "take it out")
    if key != key.strip():
        return Fault(at, f"unknown key {key!r}: it has white space around it", f'write "{key.strip()}"')
    for vendor in ("api_key", "key", "token"):
        if key == vendor:
            return Fault(at, f"{key!r} does not belong in a spec: keys are never stored", "set OPENAI_API_KEY instead")
    return Fault(at, f"unknown key {key!r}", _meant(key, JobSpec) or _KEYS)


def _meant(key: str, model: type[BaseModel]) -> str | None:
    close = _close(key, model)
    return f"did you mean {close!r}?" if close else None


def _close(key: str, model: type[BaseModel]) -> str | None:
    return next(iter(difflib.get_close_matches(key.lower(), model.model_fields, n=1, cutoff=0.6)), None)


def _fault(where: str, text: str, detail: dict[str, Any]) -> Fault:
    path = [str(part) for part in detail["loc"]]
    name = ".".join(path)
    at = place(where, text, *detail["loc"])
    if detail["type"] == "missing":
        return Fault(at, f"{name!r} is missing", f'add "{path[-1]}"')
    if detail["type"] == "extra_forbidden":
        part = _model_of(detail["loc"])
        return Fault(at, f"unknown key {name!r}", _meant(path[-1], part) or f"known are {', '.join(part.model_fields)}")
    if detail["type"] == "string_unicode":
        return Fault(at, f"{name!r} holds half of a surrogate pair", "take the escape \\ud... out")
    message = str(detail["msg"]).removeprefix("Value error, ")
    message = message.replace("Input should be", "must be").replace("Input must be", "must be")
    seen = "" if path and path[-1] == "api_key_env" else f", found {_show(detail['input'])}"
    hint = _way_out(path)
    if isinstance(detail["input"], str) and detail["input"].strip().isdecimal() and "integer" in message:
        hint = f"write {detail['input'].strip()} without quotes"
    return Fault(at, f"{name!r} {message}{seen}", hint)


def _way_out(path: list[str]) -> str:
    """Say what can be written where a value is wrong: one that is right, or nothing at all."""
    field = _model_of(tuple(path)).model_fields.get(path[-1])
    name = ".".join(step for step in path if not step.isdigit()).replace("endpoints.price.", "price.")
    if name in _EXAMPLES:
        return f'write "{path[-1]}": {_EXAMPLES[name]}, say'
    if field is None or field.is_required() or not isinstance(field.default, str | int | float):
        return f"see {path[0]!r} in docs/job-spec.md, or take it out"
    return f'take "{path[-1]}" out, and it is {json.dumps(field.default)}'


def _cross_faults(spec: JobSpec, where: str, text: str) -> list[Fault]:
    faults = []
    if both := set(spec.unknown_statuses) & set(spec.refused_statuses):
        faults.append(
            Fault(
                place(where, text, "refused_statuses"),
                f"{min(both)} stands in unknown_statuses and in refused_statuses",
                "keep it in one of the two",
            )
        )
    if spec.max_cost_usd is not None and not spec.is_priced:
        faults.append(Fault(place(where, text, "max_cost_usd"), "'max_cost_usd' needs a 'price'", "add price"))
    for key in OF_ONE_ENDPOINT if spec.endpoints else ():
        if getattr(spec, key) is not None:
            what = f"{key!r} is of one endpoint, and 'endpoints' names several"
            faults.append(Fault(place(where, text, key), what, f"move {key} into each of the endpoints"))
    if spec.system is not None and spec.endpoint not in SYSTEM_PATHS:
        what = f"'system' is of chat and responses, the job's endpoint is {spec.endpoint}"
        faults.append(Fault(place(where, text, "system"), what, "put it into the prompts, or take it out"))
    for key in NEVER_IN_PARAMS:
        if key in spec.params:
            what = f"'params.{key}' belongs into the input lines, not into the spec"
            hint = "take it out: answers come whole" if key == "stream" else "move it to the lines of input_file"
            faults.append(Fault(place(where, text, "params", key), what, hint))
    for key in spec.params:
        if refused := client_options_among({key: None}):
            faults.append(Fault(place(where, text, "params", key), refused, CLIENT_OPTIONS_HINT))
    return faults


def place(where: str, text: str, *path: str | int) -> str:
    """Name the line on which a key stands, as `sed -n` counts; where it is missing, that of what it is missing in."""
    line_no = _places_of(text).line_of(*path)
    return where if line_no is None else f"{where} line {line_no}"


@lru_cache(maxsize=4)  # every fault of a text asks for the same
def _places_of(text: str) -> Places:
    return Places(text)


def _show(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str).encode("utf-8", "replace").decode()
    return text if len(text) <= 60 else text[:57] + "..."
