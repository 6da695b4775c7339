"""Idempotency keys: the work of one key is done and billed once, and its answer is given again."""

import time
from collections.abc import Callable
from dataclasses import dataclass

from batchrun.mock.plan import Arrival, Plan, refuse

KEY = b"idempotency-key"
REPLAYED = b"Idempotent-Replayed: true\r\n"


@dataclass(slots=True)
class _Work:
    """The work of one key."""

    digest: bytes  # of the request's body
    answer: bytes | None = None  # None: it is under way
    done_at: float = 0.0


class Replays:
    """Give whole answers again for `replay_s`; a stream is served like any other request, whatever its key.

    A refusal is not remembered: nothing was done, so the key is as good as new.
    """

    def __init__(self, replay_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._replay_s = replay_s
        self._clock = clock
        self._works: dict[bytes, _Work] = {}

    def recall(self, arrival: Arrival) -> Plan | None:
        """Return what a known key gets: the same answer, or a refusal; None for a key that is new or forgotten."""
        work = self._works.get(arrival.request.headers.get(KEY, b""))
        if work is None or (work.answer is not None and self._clock() - work.done_at > self._replay_s):
            return None
        if work.digest != arrival.digest:
            return refuse(422, "This idempotency key was used with another request.", code="idempotency_key_reused")
        if work.answer is None:
            message = "A request with this idempotency key is in progress."
            return refuse(409, message, code="idempotency_key_in_use", extra_head=b"Retry-After: 1\r\n")
        return Plan(200, work.answer, extra_head=REPLAYED)

    def begin(self, arrival: Arrival, plan: Plan) -> None:
        """Note that the work of a key is under way."""
        key = arrival.request.headers.get(KEY)
        if key and plan.billed and plan.stream is None:
            self._works[key] = _Work(arrival.digest)

    def end(self, arrival: Arrival, plan: Plan) -> None:
        """Keep the answer of a key's work."""
        if plan.stream is None and (work := self._works.get(arrival.request.headers.get(KEY, b""))) is not None:
            work.answer, work.done_at = plan.kept, self._clock()
