"""The wish for an answer in pieces, put into a ready request body when it is sent."""

from typing import Any

from pydantic_core import from_json, to_json

from batchrun.core.line import CHAT, COMPLETIONS, RESPONSES

STREAMED_PATHS = (CHAT, COMPLETIONS, RESPONSES)
_WISH = {"stream": True, "stream_options": {"include_usage": True}}
_COMPACT = to_json(_WISH)[1:]
_COMPACT_ALONE = b'"stream":true}'  # /v1/responses says its usage at the end in any case, and knows no such option


def is_streamed(path: str) -> bool:
    """Say whether answers of this path come token by token, in chunks of the form that we can put together."""
    return path in STREAMED_PATHS


def in_pieces(path: str, body: bytes) -> bytes:
    """Return the request with the wish that its answer is streamed, with its usage at the end."""
    if not is_streamed(path):
        return body
    if b'"stream' not in body and len(body) > 2:  # compact JSON: so the fields are not there
        return body[:-1] + b"," + (_COMPACT_ALONE if path == RESPONSES else _COMPACT)
    fields: dict[str, Any] = from_json(body)
    if path == RESPONSES:
        return to_json({**fields, "stream": True})
    options = fields.get("stream_options")
    kept = options if isinstance(options, dict) else {}
    return to_json({**fields, "stream": True, "stream_options": {**kept, "include_usage": True}})
