"""When each request could first have been sent: by its schedule, or since an answer before it had set a slot free."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from batchrun.core.measuring.timings import Measured


def closed_dues(requests: Sequence[Measured], *, concurrency: int) -> tuple[Measured, ...]:
    """Return the requests of a closed loop, in order of send, each with the moment in which its slot was free.

    The first `concurrency` are due when the run begins, the next one with the first end, and so on.
    """
    ends = sorted(one.ended_s for one in requests)
    ordered = sorted(requests, key=lambda one: one.ended_s if one.sent_s is None else one.sent_s)
    return tuple(
        replace(one, due_s=0.0 if number < concurrency else ends[number - concurrency])
        for number, one in enumerate(ordered)
    )


def scheduled_dues(requests: Sequence[Measured], due_s: Mapping[str, float]) -> tuple[Measured, ...]:
    """Return the requests with their times by the schedule, by name; one that is made again is due no second time."""
    left = dict(due_s)
    return tuple(replace(one, due_s=left.pop(one.name, None)) for one in requests)
