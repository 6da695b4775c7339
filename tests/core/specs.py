"""Specs for tests that need one."""

from typing import Any

from batchrun.core.spec import JobSpec
from batchrun.core.spec_check import check_spec
from batchrun.errors import BadInput

# The smallest complete spec.
SEVEN: dict[str, Any] = {
    "task_id": "batch-001",
    "model": "turbo-opt",
    "input_file": "./inputs/batch_input.jsonl",
    "output_file": "./outputs/batch_output.jsonl",
    "max_tokens": 256,
    "concurrency": 8,
    "retry_times": 3,
}


def spec_of(name: str, **changes: Any) -> dict[str, Any]:
    """Return a spec of the job `name` with an input and outputs of its own; None takes a key out."""
    spec: dict[str, Any] = {
        "task_id": name,
        "model": "mock",
        "input_file": f"inputs/{name}.jsonl",
        "output_file": f"outputs/{name}.jsonl",
        "max_tokens": 16,
        "concurrency": 4,
        "retry_times": 0,
    }
    return {key: value for key, value in (spec | changes).items() if value is not None}


def parse_spec(text: str, *, where: str = "job.json") -> JobSpec:
    """Return the spec of this text, or raise all of its faults at once."""
    spec, faults, _ = check_spec(text, where=where)
    if spec is None:
        raise BadInput(faults)
    return spec
