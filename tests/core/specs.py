"""Specs for tests that need one."""

from batchrun.core.spec import JobSpec
from batchrun.core.spec_check import check_spec
from batchrun.errors import BadInput


def parse_spec(text: str, *, where: str = "job.json") -> JobSpec:
    """Return the spec of this text, or raise all of its faults at once."""
    spec, faults, _ = check_spec(text, where=where)
    if spec is None:
        raise BadInput(faults)
    return spec
