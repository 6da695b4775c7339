"""What `--json` prints, held against the schemas that `batchrun schema KIND` prints."""

import json
from functools import cache
from typing import Any

from jsonschema import Draft202012Validator, FormatChecker

from batchrun.cli.schemas import kinds, output_schema

KINDS = frozenset(kinds())


@cache
def validator_of(kind: str) -> Draft202012Validator:
    """Return the validator of one kind."""
    return Draft202012Validator(output_schema(kind), format_checker=FormatChecker())


def kind_of(value: dict[str, Any]) -> str:
    """Return which schema an object claims to follow."""
    kind: str = value.get("kind", "error")
    return kind


def faults_of(value: dict[str, Any]) -> list[str]:
    """Return in what an object differs from its kind's schema."""
    kind = kind_of(value)
    if kind not in KINDS:
        return [f"kind {kind!r} has no schema: write batchrun/cli/json_schemas/{kind}.json"]
    return [f"{kind}: {error.json_path}: {error.message}" for error in validator_of(kind).iter_errors(value)]


def read_stream(printed: str) -> list[dict[str, Any]]:
    """Return the objects that a command printed with `--json`, one a line; each must fit its schema."""
    objects = [json.loads(line) for line in printed.splitlines()]
    faults = [fault for value in objects for fault in faults_of(value)]
    assert faults == [], "\n".join(faults)
    return objects
