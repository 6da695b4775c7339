"""A LiteLLM proxy's spend log: one row for each request that was paid for, found by the id of the call."""

import json
from datetime import UTC, datetime
from typing import Any
from urllib.parse import parse_qsl

from batchrun.mock.plan import Arrival, Plan
from batchrun.mock.request import Request

PATH = "/spend/logs"
CALL_ID = b"x-litellm-call-id"
USD_PER_TOKEN = 1e-6


class SpendLog:
    """The log, and the marks by which a client sees that there is a gateway."""

    def __init__(self, *, with_answers: bool) -> None:
        self._with_answers = with_answers
        self._rows: list[dict[str, Any]] = []

    def mark(self, arrival: Arrival) -> bytes:
        """Render the header lines of an answer: the call's id is the client's own, where it gives one."""
        return b"x-litellm-call-id: %b\r\nx-litellm-version: mock\r\n" % _call_id(arrival)

    def keep(self, arrival: Arrival, plan: Plan) -> None:
        """Write down what was paid for; the answer itself only where the log is to hold answers."""
        assert plan.work is not None
        answer = json.loads(plan.kept)
        prompt_tokens, completion_tokens = plan.work.prompt_tokens, plan.work.completion_tokens
        now = datetime.now(UTC).isoformat()
        row = {
            "request_id": answer.get("id") or _call_id(arrival).decode(),
            "litellm_call_id": _call_id(arrival).decode(),
            "call_type": "acompletion",
            "status": "success",
            "model": answer.get("model"),
            "prompt_tokens": prompt_tokens,
            "completion_tokens": completion_tokens,
            "total_tokens": prompt_tokens + completion_tokens,
            "spend": (prompt_tokens + completion_tokens) * USD_PER_TOKEN,
            "startTime": now,
            "endTime": now,
            "metadata": {},
            "messages": {},
            "response": answer if self._with_answers else {},
        }
        self._rows.append(row)

    def look_up(self, request: Request) -> Plan | None:
        """List the rows, or those with the `request_id` that is asked for; None where this is no such question."""
        if request.path != PATH:
            return None
        wanted = dict(parse_qsl(request.query)).get("request_id")
        found = [row for row in self._rows if wanted in (None, row["request_id"], row["litellm_call_id"])]
        return Plan(200, json.dumps(found).encode())


def _call_id(arrival: Arrival) -> bytes:
    return arrival.request.headers.get(CALL_ID) or b"call-%d" % arrival.no
