"""The job spec: what a user writes in job.json, checked strictly and completely before anything happens."""

import difflib
import json
import re
from decimal import Decimal
from functools import lru_cache
from math import isfinite
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from batchrun.core.client_options import CLIENT_OPTIONS_HINT, client_options_among
from batchrun.core.places import Path, Places
from batchrun.core.prices import Price, exact_amount
from batchrun.errors import BadInput, Fault

COMPLETIONS_PATH = "/v1/chat/completions"
ENDPOINT_PATHS = ("/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/v1/responses")
SYSTEM_PATHS = ("/v1/chat/completions", "/v1/responses")
# Keys of the contract that a coming release honours. Accepting one now and doing nothing would be a lie.
NOT_YET = ("order", "stream", "endpoints", "response_schema", "cache")
TASK_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}\Z")
ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")


class TrialSpec(BaseModel):
    """How many items are tried first, and when the full run does not follow by itself."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    size: int = Field(default=10, ge=0, le=10_000, description="items tried before the full run; 0 means no trial")
    sample: Literal["mixed", "head", "random"] = Field(default="mixed", description="which items are tried")
    seed: int = Field(default=0, ge=0, description="seed of the random part")
    max_failed_share: float = Field(
        default=0.5, ge=0, le=1, description="the gate stops when more than this share did not complete"
    )


class JobSpec(BaseModel):
    """One job. The seven keys without a default work alone; paths are as written, relative to the current folder."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    task_id: str = Field(description="the job's name: letters, digits, '.', '_' and '-'")
    model: str = Field(min_length=1, max_length=500, description="sent where a line names no model of its own")
    input_file: str = Field(min_length=1, description="JSONL, one request a line; rows: JSONL, CSV, Parquet")
    output_file: str = Field(min_length=1, description="answers in input order; failures go to error_file")
    max_tokens: int = Field(ge=1, le=10_000_000, description="sent where a line sets no limit of its own")
    concurrency: int = Field(ge=1, le=10_000, description="requests in flight at once, at the most")
    retry_times: int = Field(ge=0, le=1_000, description="retries after the first try; 0 means none")

    base_url: str | None = Field(default=None, min_length=1, description="the endpoint; else OPENAI_BASE_URL")
    api_key_env: str | None = Field(default=None, description="name of the variable that holds the key")
    endpoint: str = Field(default=COMPLETIONS_PATH, description="path used where a line names none")
    params: dict[str, Any] = Field(
        default_factory=dict, description="further body fields, sent unless a line sets them"
    )
    prompt_template: str | None = Field(
        default=None, min_length=1, description="Jinja2 text that makes a prompt of each row of data"
    )
    system: str | None = Field(
        default=None, min_length=1, description="system message of chat and responses lines that bring none"
    )
    timeout_s: float = Field(default=600.0, gt=0, le=86_400, description="total time of one attempt")
    on_unknown: Literal["hold", "retry"] | None = Field(
        default=None, description="what to do when a request's fate is unknown"
    )
    unknown_statuses: tuple[Annotated[int, Field(ge=300, le=599)], ...] = Field(
        default=(), description="HTTP statuses of this endpoint that do not prove that nothing was billed"
    )
    refused_statuses: tuple[Annotated[int, Field(ge=300, le=599)], ...] = Field(
        default=(), description="HTTP statuses of this endpoint that prove that nothing was billed"
    )
    trial: TrialSpec = Field(default_factory=TrialSpec, description="the trial: size, sample, seed, max_failed_share")
    rpm: int | None = Field(default=None, ge=1, le=10_000_000, description="requests sent in any minute, at the most")
    tpm: int | None = Field(
        default=None,
        ge=1,
        le=100_000_000_000,
        description="tokens used in any minute, prompts and answers, at the most",
    )
    price: Price | None = Field(default=None, description="USD per million tokens")
    max_cost_usd: Decimal | None = Field(
        default=None, gt=0, le=1_000_000, description="no send that could take the job above this"
    )
    error_file: str | None = Field(default=None, min_length=1, description="default: <output>.errors.jsonl")
    fail_on_error: float | None = Field(
        default=None, gt=0, description="stop at this share (below 1) or count of failed items"
    )
    endpoint_down_limit_s: float = Field(
        default=1800.0, gt=0, description="how long to wait for an endpoint that went away"
    )
    metadata: dict[str, str] = Field(default_factory=dict, description="yours; kept with the job")

    @field_validator("params", "metadata", mode="before")
    @classmethod
    def _object(cls, value: object) -> object:
        if not isinstance(value, dict):
            raise ValueError("must be an object")
        return value

    @field_validator("unknown_statuses", "refused_statuses", mode="before")
    @classmethod
    def _statuses(cls, value: object) -> object:
        return tuple(value) if isinstance(value, list) else value

    @field_validator("max_cost_usd", mode="before")
    @classmethod
    def _money(cls, value: object) -> object:
        return exact_amount(value)

    @field_validator("task_id")
    @classmethod
    def _name(cls, value: str) -> str:
        if not TASK_ID.match(value):
            raise ValueError("must be 1 to 100 letters, digits, '.', '_' or '-', beginning with a letter or digit")
        return value

    @field_validator("api_key_env")
    @classmethod
    def _variable(cls, value: str | None) -> str | None:
        if value is not None and not ENV_NAME.match(value):
            # The value itself is not repeated: people paste the key here.
            raise ValueError("must be the NAME of an environment variable, such as OPENAI_API_KEY, not a key")
        return value

    @field_validator("endpoint")
    @classmethod
    def _path(cls, value: str) -> str:
        if value not in ENDPOINT_PATHS:
            raise ValueError(f"must be one of {', '.join(ENDPOINT_PATHS)}")
        return value


def parse_spec(text: str, *, where: str) -> JobSpec:
    """Read one spec.

    Args:
        text: the JSON text of one object.
        where: what to call it in messages, such as "jobs/job.json".

    Raises:
        BadInput: with every fault of the spec, each with its line where the key can be found.
    """
    spec, faults, _ = check_spec(text, where=where)
    if spec is None:
        raise BadInput(faults)
    return spec


def check_spec(text: str, *, where: str) -> tuple[JobSpec | None, list[Fault], dict[str, Any]]:
    """Check one spec; return it (None when faulty), all its faults, and what could be read of it."""
    try:
        raw = json.loads(text.removeprefix("\ufeff"))
    except json.JSONDecodeError as error:
        return None, [_not_json(text, where, error)], {}
    except (ValueError, RecursionError) as error:
        return None, [Fault(where, f"is not a valid spec: {error}")], {}
    if not isinstance(raw, dict):
        return None, [Fault(where, f"must hold one JSON object, found {_kind(raw)}")], {}
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
        found = [detail for detail in error.errors() if detail["loc"] not in unreal]
        return None, faults + [_fault(where, text, dict(detail)) for detail in found], raw
    faults += _cross_faults(spec, where, text)
    return (None if faults else spec), faults, raw


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
    hint = None
    if not text.strip():
        return Fault(where, "is empty", "see docs/job-spec.md for a smallest complete spec")
    before = text[: error.pos].rstrip()
    if before.endswith(",") and text[error.pos : error.pos + 1] in "}]":
        hint = "take out the comma before the closing bracket"
    elif "\u201c" in text or "\u201d" in text:
        hint = 'replace the curly quotes by plain ones (")'
    elif re.search(r"(^|[{,\s])//|^\s*#", text, re.MULTILINE):
        hint = "JSON has no comments: take them out"
    elif error.msg.startswith("Extra data"):
        hint = "one object a file"
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
    close = difflib.get_close_matches(key.lower(), JobSpec.model_fields, n=1, cutoff=0.6)
    hint = f"did you mean {close[0]!r}?" if close else "see docs/job-spec.md for every key; body fields go into params"
    return Fault(at, f"unknown key {key!r}", hint)


def _fault(where: str, text: str, detail: dict[str, Any]) -> Fault:
    path = [str(part) for part in detail["loc"]]
    key = path[0] if path else ""
    name = ".".join(path)
    at = place(where, text, *detail["loc"])
    if detail["type"] == "missing":
        return Fault(at, f"{name!r} is missing", f'add "{path[-1]}"')
    if detail["type"] == "extra_forbidden":
        return Fault(at, f"unknown key {name!r}")
    if detail["type"] == "string_unicode":
        return Fault(at, f"{name!r} holds half of a surrogate pair", "take the escape \\ud... out")
    message = str(detail["msg"]).removeprefix("Value error, ")
    message = message.replace("Input should be", "must be").replace("Input must be", "must be")
    seen = "" if key == "api_key_env" else f", found {_show(detail['input'])}"
    hint = None
    if key == "concurrency" and detail["input"] == "auto":
        hint = "adaptive concurrency is not available in this release: give a number"
    elif isinstance(detail["input"], str) and detail["input"].strip().isdecimal() and "integer" in message:
        hint = f"write {detail['input'].strip()} without quotes"
    return Fault(at, f"{name!r} {message}{seen}", hint)


def _cross_faults(spec: JobSpec, where: str, text: str) -> list[Fault]:
    faults = []
    if both := set(spec.unknown_statuses) & set(spec.refused_statuses):
        faults.append(
            Fault(
                place(where, text, "refused_statuses"),
                f"{min(both)} stands in unknown_statuses and in refused_statuses",
            )
        )
    if spec.max_cost_usd is not None and spec.price is None:
        faults.append(Fault(place(where, text, "max_cost_usd"), "'max_cost_usd' needs a 'price'", "add price"))
    if spec.system is not None and spec.endpoint not in SYSTEM_PATHS:
        what = f"'system' is of chat and responses, the job's endpoint is {spec.endpoint}"
        faults.append(Fault(place(where, text, "system"), what, "put it into the prompts, or take it out"))
    for key in ("messages", "prompt", "input", "stream"):
        if key in spec.params:
            what = f"'params.{key}' belongs into the input lines, not into the spec"
            faults.append(Fault(place(where, text, "params", key), what))
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


def _kind(value: object) -> str:
    names = {list: "an array", str: "a string", bool: "true or false", int: "a number", float: "a number"}
    return names.get(type(value), "null")


def _show(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str).encode("utf-8", "replace").decode()
    return text if len(text) <= 60 else text[:57] + "..."
