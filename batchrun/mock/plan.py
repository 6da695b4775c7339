"""What will happen to one request: decided on arrival, as a value, before anything is sent."""

from collections.abc import Iterator
from dataclasses import dataclass

from batchrun.mock.faults import Fault
from batchrun.mock.request import Request
from batchrun.mock.response import JSON_TYPE, render_error
from batchrun.mock.timing import Pace


@dataclass(slots=True)
class Arrival:
    """A request that has just come, with what identifies it."""

    no: int  # the request's number, from 1; 0 is a control request, which is not counted
    request: Request
    digest: bytes  # SHA-256 of the body
    item: str | None  # the first [[key]] of the body


@dataclass(slots=True)
class Stream:
    """A body that is sent piece by piece."""

    pieces: Iterator[bytes]  # as they go over the wire; rendered when asked for
    count: int  # how many of them are sent


@dataclass(slots=True)
class Work:
    """What it takes to serve a request; a plan without work is answered at once and needs no slot."""

    pace: Pace
    prompt_tokens: int
    completion_tokens: int
    step_count: int  # tokens that follow each other; less than all tokens if n > 1
    finish_reason: str  # for the metrics

    @property
    def duration_s(self) -> float:
        """Time from the slot to the last token."""
        return self.pace.compute_e2el_s(self.step_count)


@dataclass(slots=True)
class Plan:
    """The answer to one request and the way it takes."""

    status: int
    body: bytes = b""
    content_type: bytes = JSON_TYPE
    extra_head: bytes = b""  # whole header lines
    work: Work | None = None
    stream: Stream | None = None  # instead of the body
    fault: Fault | None = None
    kept: bytes = b""  # the whole answer, where something of it is kept

    @property
    def billed(self) -> bool:
        """Whether a provider would charge it: the work is done, even if the answer does not get through."""
        return self.work is not None


def refuse(status: int, message: str, *, code: str | None = None, extra_head: bytes = b"") -> Plan:
    """Make the plan of a request that is refused at once, in OpenAI's shape; nothing is done for it."""
    return Plan(status, render_error(message, "invalid_request_error", code=code), extra_head=extra_head)
