"""The JSON Schemas of what `--json` prints: one file a kind in `json_schemas/`, what several share in `shared.json`."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).with_name("json_schemas")
_SHARED = "urn:batchrun:1:shared#"


def kinds() -> list[str]:
    """Return the kinds of objects there are, in alphabetical order."""
    return sorted(path.stem for path in FOLDER.glob("*.json") if path.stem != "shared")


def output_schema(kind: str) -> dict[str, Any]:
    """Return the schema of one kind, whole in itself: the shared parts that it refers to stand in its `$defs`."""
    schema = _read(kind)
    shared = _read("shared")["$defs"]
    needed: dict[str, Any] = {}
    wanted = list(_references(schema))
    while wanted:
        name = wanted.pop()
        if name not in needed:
            needed[name] = shared[name]
            wanted += _references(shared[name])
    if needed:
        schema["$defs"] = {name: needed[name] for name in sorted(needed)}
    whole: dict[str, Any] = json.loads(json.dumps(schema).replace(_SHARED, "#"))
    return whole


def _read(name: str) -> dict[str, Any]:
    schema: dict[str, Any] = json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))
    return schema


def _references(part: Any) -> Iterator[str]:
    """Yield the names of the shared parts that a part of a schema refers to."""
    if isinstance(part, dict):
        reference = part.get("$ref")
        if isinstance(reference, str) and reference.startswith(_SHARED):
            yield reference.rpartition("/")[2]
        part = list(part.values())
    if isinstance(part, list):
        for inner in part:
            yield from _references(inner)
