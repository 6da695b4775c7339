"""Input lines for the tests of the core."""

import json
from typing import Any

import pytest

from batchrun.core.request import Defaults, LineFault, build_request

CHAT = "/v1/chat/completions"
DEFAULTS = Defaults(model="job-model", max_tokens=256, endpoint=CHAT, params={})
HELLO = [{"role": "user", "content": "hello"}]


def batch_line(body: Any, **fields: Any) -> dict[str, Any]:
    return {"custom_id": "q-1", "method": "POST", "url": CHAT, "body": body, **fields}


def sent(line: object, defaults: Defaults = DEFAULTS) -> dict[str, Any]:
    """Return the body that is sent for a line."""
    body: dict[str, Any] = json.loads(build_request(line, defaults).body)
    return body


def fault_of(line: object, defaults: Defaults = DEFAULTS) -> LineFault:
    with pytest.raises(LineFault) as caught:
        build_request(line, defaults)
    return caught.value
