"""Routes: which request is answered by what."""

import json
from hmac import compare_digest

from batchrun.mock.asks import Route
from batchrun.mock.config import MockConfig
from batchrun.mock.faults import Fault
from batchrun.mock.memory import Memory
from batchrun.mock.plan import Arrival, Plan, refuse
from batchrun.mock.planner import Planner
from batchrun.mock.prefix_cache import count_prompt
from batchrun.mock.response import TEXT_TYPE
from batchrun.mock.slots import Slots
from batchrun.mock.stats import Stats, render_metrics, render_stats

GENERATION = {str(route): route for route in Route}
TOKENIZE = "/tokenize"
CONTROL_PREFIX = "/__"
"""Paths that only the mock has; what happens there is neither counted nor logged."""


class Router:
    """Find the plan for any request."""

    def __init__(self, config: MockConfig, stats: Stats, slots: Slots, memory: Memory) -> None:
        self._config = config
        self._stats = stats
        self._slots = slots
        self._memory = memory
        self._planner = Planner(config, stats, keeps_answers=memory.keeps_answers)
        self._bearer = None if config.api_key is None else b"Bearer " + config.api_key.encode()

    def plan(self, arrival: Arrival) -> Plan:
        """Decide what happens to an arrival."""
        method, path = arrival.request.method, arrival.request.path
        if path.startswith(("/v1/", "/spend/")) and not self._is_let_in(arrival):
            return refuse(401, "Incorrect API key provided.", code="invalid_api_key")
        route = GENERATION.get(path)
        if route is not None and method == "POST":
            if self._slots.capacity.refuses(self._stats.in_flight):
                return self._planner.plan_refusal(Fault.RATE_LIMIT)
            return self._memory.note(arrival, self._memory.recall(arrival) or self._planner.plan(route, arrival))
        if self._config.tokenizes and (method, path) == ("POST", TOKENIZE):
            return _plan_count(arrival.request.body)
        plan = self._plan_control(arrival) if path.startswith(CONTROL_PREFIX) else self._plan_get(arrival)
        if plan is not None:
            return plan
        if route is not None:
            return refuse(405, f"Not allowed to {method} on {path} (HINT: POST)")
        return refuse(404, f"Invalid URL ({method} {path})")

    def _is_let_in(self, arrival: Arrival) -> bool:
        return self._bearer is None or compare_digest(arrival.request.headers.get(b"authorization", b""), self._bearer)

    def _plan_get(self, arrival: Arrival) -> Plan | None:
        path = arrival.request.path
        if arrival.request.method not in ("GET", "HEAD"):
            return None
        if path == "/v1/models":
            return Plan(200, _render_models(self._config.models))
        if path == "/health":
            return Plan(200)
        if path == "/metrics":
            return Plan(200, render_metrics(self._stats, self._slots, self._config.models[0]), TEXT_TYPE)
        return self._memory.look_up(arrival.request)

    def _plan_control(self, arrival: Arrival) -> Plan | None:
        """Answer mock-only requests: `GET /__stats` shows the counters, `POST /__reset` sets them to zero.

        A reset also forgets how often each body came, so faults begin anew; the log stays as it is.
        `POST /__capacity` changes what the endpoint can do at once, `GET` shows it.
        """
        method, path = arrival.request.method, arrival.request.path
        if path == "/__capacity" and method in ("GET", "POST"):
            return self._plan_capacity(arrival.request.body if method == "POST" else b"{}")
        if (method, path) == ("GET", "/__stats"):
            return Plan(200, render_stats(self._stats, self._slots))
        if (method, path) == ("POST", "/__reset"):
            self._stats.reset()
            return Plan(200, b"{}")
        return None

    def _plan_capacity(self, told: bytes) -> Plan:
        try:
            self._slots.resize(self._slots.capacity.changed(told))
        except ValueError as error:
            return refuse(400, str(error))
        return Plan(200, self._slots.capacity.render())


def _plan_count(body: bytes) -> Plan:
    """Answer as vLLM's page does: how many tokens a prompt has. Nothing is generated or billed."""
    try:
        fields = json.loads(body)
    except ValueError:
        return refuse(400, "We could not parse the JSON body of your request.")
    if not isinstance(fields, dict) or not (fields.get("messages") or fields.get("prompt")):
        return refuse(400, "Missing required parameter: 'messages' or 'prompt'.")
    return Plan(200, json.dumps({"count": count_prompt(body), "max_model_len": 1_000_000}).encode())


def _render_models(names: tuple[str, ...]) -> bytes:
    models = [{"id": name, "object": "model", "created": 1700000000, "owned_by": "batchrun"} for name in names]
    return json.dumps({"object": "list", "data": models}).encode()
