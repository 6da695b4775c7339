"""A job's row for tests of what is said about jobs, without a ledger."""

from dataclasses import fields
from typing import Any

from batchrun.core.climb import Climb
from batchrun.core.concurrency import Concurrency
from batchrun.core.spec import JobSpec
from batchrun.core.states import JobState
from batchrun.ledger.jobs import Job

ADDRESS = "http://127.0.0.1:8000/v1"


def a_job(*, spec: dict[str, Any] | None = None, **changes: Any) -> Job:
    """Return a job of a thousand items that is in progress; `spec` and `changes` are laid over it."""
    written = {"task_id": "batch-001", "model": "turbo", "input_file": "in.jsonl", "output_file": "out.jsonl"}
    limits = {"max_tokens": 256, "concurrency": 8, "retry_times": 3}
    plan = JobSpec.model_validate(written | limits | (spec or {})).model_dump(mode="json")
    allowed = Concurrency.of(plan["concurrency"])
    values: dict[str, Any] = dict.fromkeys(field.name for field in fields(Job))
    values |= {
        "id": 1,
        "task_id": "batch-001",
        "state": JobState.IN_PROGRESS,
        "spec": plan | {"resolved_base_url": ADDRESS, "spec_file": "jobs/job.json"},
        "total": 1_000,
        "phase": "full",
        "on_unknown": "hold",
        "concurrency": allowed.first,
        "climb": None if allowed.is_fixed else Climb.within(allowed),
        "retry_times": 3,
        "was_cancelled": False,
        "spent_pusd": 0,
        "reserved_pusd": 0,
        "created_at": 0.0,
        "active_s": 0.0,
    }
    return Job(**values | changes)
