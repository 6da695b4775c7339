"""One model under two names: the job's, which its requests carry in the ledger, and an endpoint's own for it."""

from typing import Any

from pydantic_core import from_json, to_json


def asking_for(body: bytes, model: str, own: str) -> bytes:
    """Return a request for the job's model as its endpoint wants it; one for another model stays as it is.

    Args:
        body: compact JSON, as `core.request` writes it: every value comes out as it went in.
    """
    fields: dict[str, Any] = from_json(body)
    return to_json({**fields, "model": own}) if fields.get("model") == model else body
