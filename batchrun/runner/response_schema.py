"""The schema of a job's answers as its spec gives it, written out or as a file: read and checked before any request."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from batchrun.core.answer_check import AnswerCheck, SchemaFault
from batchrun.core.line import EMBEDDINGS
from batchrun.core.spec_check import place
from batchrun.errors import Fault

MOST_BYTES = 4_000_000
_KEY = "response_schema"


def read_schema(spec: Mapping[str, Any], where: str, text: str) -> tuple[Any, list[Fault]]:
    """Return the schema that a spec gives (None: none), and what is wrong with it.

    Args:
        spec: what could be read of it.
        where, text: the spec as it is written, for the place of a fault.
    """
    given = spec.get(_KEY)
    if spec.get("reask") and given is None:
        what = "'reask' needs a 'response_schema': without one no answer is invalid"
        return None, [Fault(place(where, text, "reask"), what, 'add "response_schema": true for any JSON, say')]
    if not (given is True or isinstance(given, dict | str)) or given == "":
        return None, []  # there is none, or it is the check of the spec's form that says so
    at, subject = place(where, text, _KEY), repr(_KEY)
    if spec.get("endpoint") == EMBEDDINGS:
        return None, [Fault(at, f"{subject} is of answers in words, the job's endpoint is {EMBEDDINGS}", "take it out")]
    try:
        if isinstance(given, str):
            at, subject = f"{given!r}", ""
            given = load_schema(Path(given))
        AnswerCheck.of(given)
    except SchemaFault as fault:
        return None, [Fault(at, f"{subject} {fault}".strip(), fault.hint)]
    return given, []


def load_schema(path: Path) -> Any:
    """Read the JSON of a schema's file; whether it is a schema is not looked at.

    Raises:
        SchemaFault: it cannot be read, or is no JSON.
    """
    if not path.is_file():
        raise SchemaFault("does not exist, or is no file", "name a file that holds a JSON Schema")
    if path.stat().st_size > MOST_BYTES:
        raise SchemaFault(f"has more than {MOST_BYTES:,} bytes", "is it a JSON Schema?")
    try:
        return json.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise SchemaFault(f"cannot be read: {error.strerror}", "make it readable") from None
    except RecursionError:
        raise SchemaFault("is nested too deep", "is it a JSON Schema?") from None
    except ValueError as error:
        words = f"{error.msg} (line {error.lineno})" if isinstance(error, json.JSONDecodeError) else "not UTF-8 text"
        raise SchemaFault(f"is not JSON: {words}", "write a JSON Schema into it") from None
