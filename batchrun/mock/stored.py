"""Stored chat completions: kept when asked to, listed by metadata, found by id, as OpenAI does it."""

import json
from typing import Any
from urllib.parse import parse_qsl

from batchrun.mock.asks import Route
from batchrun.mock.plan import Plan, refuse
from batchrun.mock.request import Request

DEFAULT_LIMIT = 20
MOST = 100
FILTER = "metadata["


class StoredCompletions:
    """The chat completions that were asked for with `"store": true`, oldest first."""

    def __init__(self) -> None:
        self._completions: dict[str, dict[str, Any]] = {}
        self._messages: dict[str, list[Any]] = {}

    def keep(self, request: Request, plan: Plan) -> None:
        """Keep a completion, if its request asks for that."""
        if request.path != Route.CHAT:
            return
        asked = json.loads(request.body)
        if asked.get("store") is True:
            completion = json.loads(plan.kept)
            self._completions[completion["id"]] = completion | {"metadata": asked.get("metadata") or {}}
            self._messages[completion["id"]] = asked["messages"]

    def look_up(self, request: Request) -> Plan | None:
        """Answer a question about stored completions; None where this is none."""
        if request.path == Route.CHAT:
            return self._list(parse_qsl(request.query))
        if not request.path.startswith(f"{Route.CHAT}/"):
            return None
        name, _, rest = request.path.removeprefix(f"{Route.CHAT}/").partition("/")
        if name not in self._completions or rest not in ("", "messages"):
            return refuse(404, f"Chat completion {name} not found.", code="not_found")
        if not rest:
            return _json(self._completions[name])
        messages = [{"id": f"{name}-{no}", **message} for no, message in enumerate(self._messages[name])]
        return _json(_page(messages, limit=len(messages)))

    def _list(self, query: list[tuple[str, str]]) -> Plan:
        wanted = {
            name.removeprefix(FILTER).removesuffix("]"): value for name, value in query if name.startswith(FILTER)
        }
        options = dict(query)
        limit = options.get("limit", str(DEFAULT_LIMIT))
        if not limit.isdecimal() or not 1 <= int(limit) <= MOST:
            return refuse(400, f"'limit' must be an integer in 1..{MOST}.")
        found = [one for one in self._completions.values() if wanted.items() <= one["metadata"].items()]
        if options.get("order") == "desc":
            found.reverse()
        names = [one["id"] for one in found]
        if (after := options.get("after")) in names:
            found = found[names.index(after) + 1 :]
        return _json(_page(found, limit=int(limit)))


def _page(found: list[dict[str, Any]], *, limit: int) -> dict[str, Any]:
    data = found[:limit]
    ends = {"first_id": data[0]["id"], "last_id": data[-1]["id"]} if data else {"first_id": None, "last_id": None}
    return {"object": "list", "data": data, **ends, "has_more": len(found) > limit}


def _json(value: Any) -> Plan:
    return Plan(200, json.dumps(value).encode())
