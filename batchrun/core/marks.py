"""The mark by which a request can be asked about later: its attempt's id, kept with what the endpoint stores of it."""

from typing import Any

from pydantic_core import from_json, to_json

from batchrun.core.line import CHAT

METADATA_KEY = "batchrun_attempt"
MOST_METADATA = 16  # pairs that OpenAI takes


def stored_under(path: str, body: bytes, attempt_id: str) -> bytes:
    """Return the request with the wish that its completion is stored under the attempt's id.

    Only chat completions are stored so. The line's own word holds: where it says `"store": false`, or where its
    metadata leaves no room, the request stays as it is, and cannot be asked about.
    """
    if path != CHAT:
        return body
    mark = {METADATA_KEY: attempt_id}
    if b'"store"' not in body and b'"metadata"' not in body:  # compact JSON: so the fields are not there
        return body[:-1] + b"," + to_json({"store": True, "metadata": mark})[1:]
    fields: dict[str, Any] = from_json(body)
    metadata = {} if fields.get("metadata") is None else fields["metadata"]
    if fields.get("store") not in (None, True) or not isinstance(metadata, dict) or len(metadata) >= MOST_METADATA:
        return body
    return to_json({**fields, "store": True, "metadata": {**metadata, **mark}})
