"""What of an input is sent to a second endpoint too, and how the spec of a job becomes the specs of the two sides.

Both sides are jobs like any other, of one input: the lines that were drawn, as whole requests. Nothing of the spec that
is true of its own endpoint alone (key, price, statuses, what it can be asked, consent to a second bill) is taken for
true of the other one.
"""

import heapq
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

from pydantic_core import from_json, to_json

LONGEST_NAME = 80  # of the spec's own task_id in the names of the two jobs
_IN_THE_LINES = ("prompt_template", "system")  # each line has them already
_OF_ITS_ENDPOINT = (
    *("endpoints", "api_key_env", "price", "price_from", "max_cost_usd", "lookup", "on_unknown"),
    *("idempotency_header", "idempotency_retention_s", "unknown_statuses", "refused_statuses"),
)
_OF_THE_WHOLE = ("error_file", "trial")  # the share is the trial


@dataclass(frozen=True, slots=True, kw_only=True)
class Shadow:
    """The second endpoint, and how much of the input it gets."""

    base_url: str  # normalised
    model: str | None = None  # None: the spec's
    api_key_env: str | None = None
    price: Mapping[str, Any] | None = None  # as in a spec; None: not known
    share: float  # of the input's items; above 0, at most 1
    seed: int = 0


def drawn(names: Iterable[str], *, count: int, seed: int) -> set[str]:
    """Draw `count` of these names. Who draws more of them with the same seed draws the same ones and others."""
    return set(heapq.nsmallest(count, names, key=lambda name: (_lot(name, seed), name)))


def how_many(items: int, share: float) -> int:
    """Return how many of the items are a share of them: at least one."""
    return max(1, round(items * share))


def shadow_name(task_id: str, *marks: object) -> str:
    """Return what the two jobs are called, but for the side: of the same input, draw and endpoints, the same."""
    digest = blake2b("\n".join(map(str, marks)).encode("utf-8", "surrogatepass"), digest_size=3).hexdigest()
    return f"{task_id[:LONGEST_NAME]}-shadow-{digest}"


def side_specs(
    spec: Mapping[str, Any], shadow: Shadow, *, name: str, input_file: str, folder: str
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Make the specs of the two sides.

    Args:
        spec: the job's, as it is written.
        input_file: with the drawn requests, as whole bodies; without the model where it is the spec's own.
    """
    left_out = {*_IN_THE_LINES, *_OF_THE_WHOLE}
    kept = {key: value for key, value in spec.items() if key not in left_out} | {"input_file": input_file}
    ours = {**kept, "task_id": f"{name}-a", "output_file": f"{folder}/a.jsonl"}
    theirs = {key: value for key, value in kept.items() if key not in _OF_ITS_ENDPOINT} | {
        "task_id": f"{name}-b",
        "output_file": f"{folder}/b.jsonl",
        "base_url": shadow.base_url,
        "model": shadow.model or spec["model"],
    }
    if shadow.api_key_env is not None:
        theirs["api_key_env"] = shadow.api_key_env
    if shadow.price is not None:
        theirs["price"] = dict(shadow.price)
        if spec.get("max_cost_usd") is not None:
            theirs["max_cost_usd"] = spec["max_cost_usd"]
    return ours, theirs


def without_model(body: bytes) -> bytes:
    """Return a request's JSON without the name of its model, so that each side's spec says it."""
    return to_json({key: value for key, value in from_json(body).items() if key != "model"})


def _lot(name: str, seed: int) -> bytes:
    return blake2b(f"{seed}\n{name}".encode("utf-8", "surrogatepass"), digest_size=8).digest()
