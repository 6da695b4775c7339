"""The mark under which a completion is stored: added to chat requests, unless the line itself says otherwise."""

import json
from typing import Any

import pytest

from batchrun.core.marks import stored_under

CHAT = "/v1/chat/completions"
MARK = {"batchrun_attempt": "br-1"}


def marked(path: str = CHAT, **fields: Any) -> Any:
    body = json.dumps({"model": "m", **fields}, separators=(",", ":")).encode()
    return json.loads(stored_under(path, body, "br-1"))


@pytest.mark.parametrize(
    ("fields", "store", "metadata"),
    [
        ({}, True, MARK),
        ({"messages": [{"content": 'a "store" of metadata'}]}, True, MARK),
        ({"store": True}, True, MARK),
        ({"store": None, "metadata": None}, True, MARK),
        ({"metadata": {"mine": "x"}}, True, {"mine": "x", **MARK}),
    ],
)
def test_a_chat_request_is_stored_under_its_attempt(fields: Any, store: bool, metadata: Any) -> None:
    assert marked(**fields) == {"model": "m", **fields, "store": store, "metadata": metadata}


@pytest.mark.parametrize(
    "fields", [{"store": False}, {"metadata": {str(number): "x" for number in range(16)}}, {"metadata": "text"}]
)
def test_the_lines_own_word_holds(fields: Any) -> None:
    assert marked(**fields) == {"model": "m", **fields}


@pytest.mark.parametrize("path", ["/v1/completions", "/v1/embeddings", "/v1/responses"])
def test_only_chat_completions_are_stored(path: str) -> None:
    assert marked(path) == {"model": "m"}
