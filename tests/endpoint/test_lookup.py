"""Look-ups: what stored completions and spend logs say of a request, and what is no word at all."""

import asyncio
import json
import time
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from batchrun.core.outcome import NO_USAGE, Break, BreakKind, Reply, Timing, Usage
from batchrun.endpoint.lookup import Finding, Found, look_up

NOW = Timing(time.time(), None, time.time(), 0.0)
ID = "br-1-2-3"
CHAT = "/v1/chat/completions"
COMPLETION = {"id": "chatcmpl/7", "choices": [{"message": {"content": "yes"}}], "metadata": {"batchrun_attempt": ID}}
ROW = {"request_id": ID, "status": "success", "prompt_tokens": 3, "completion_tokens": 4, "spend": 0.1, "response": {}}


class Pages:
    """An endpoint that answers by path."""

    def __init__(self, **pages: Any) -> None:
        self.pages = pages
        self.asked: list[str] = []

    async def get(self, path: str, *, limit_s: float) -> Reply | Break:
        self.asked.append(path)
        kind = "spend" if path.startswith("/spend/logs") else "listed" if "?" in path else "whole"
        page = self.pages[kind]
        if isinstance(page, Reply | Break):
            return page
        return Reply(200, {}, page if isinstance(page, bytes) else json.dumps(page).encode(), NOW)


def found(means: Any, ids: Any = (ID,), **pages: Any) -> Finding:
    return asyncio.run(look_up(Pages(**pages), means, ids))


def listed(*completions: Any) -> dict[str, Any]:
    return {"object": "list", "data": list(completions)}


def test_a_stored_completion_is_found_by_its_metadata_and_fetched_as_it_stands() -> None:
    whole = json.dumps(COMPLETION, indent=1).encode()
    pages = Pages(listed=listed({**COMPLETION, "request_id": "req-1"}), whole=whole)
    finding = asyncio.run(look_up(pages, "openai", [ID]))
    assert (finding.what, finding.note) == (Found.ANSWER, None)
    assert finding.reply is not None
    assert (finding.reply.body, finding.reply.headers["x-request-id"]) == (whole, "req-1")
    assert parse_qs(urlsplit(pages.asked[0]).query)["metadata[batchrun_attempt]"] == [ID]
    assert pages.asked[1] == f"{CHAT}/chatcmpl%2F7"


def test_two_completions_of_one_request_are_a_second_bill_and_are_named() -> None:
    twice = listed(COMPLETION, {**COMPLETION, "id": "chatcmpl-8"})
    finding = found("openai", listed=twice, whole=COMPLETION)
    assert (finding.what, finding.note) == (
        Found.ANSWER,
        "it was done more than once under one request: something on the way sends again",
    )


@pytest.mark.parametrize(
    "others",
    [
        [],
        [{"id": "x", "choices": []}],
        [{"id": "x", "metadata": None}],
        [{"id": "x", "metadata": {"batchrun_attempt": "br-1-2-4"}}],
        [{"metadata": {"batchrun_attempt": ID}}],
        ["text"],
    ],
)
def test_what_does_not_carry_the_mark_is_nothing(others: list[Any]) -> None:
    assert found("openai", listed=listed(*others)).what is Found.NOTHING


@pytest.mark.parametrize(
    ("page", "again"),
    [
        (Break(BreakKind.LOST, "the connection was reset", NOW), True),
        (Reply(429, {"retry-after": "7"}, b"", NOW), True),
        (Reply(503, {}, b"", NOW), True),
        (Reply(404, {}, b"", NOW), False),
        (Reply(401, {}, b"", NOW), False),
        (Reply(302, {}, b"", NOW), False),
        (b"<html>", False),
        (b"", False),
        ({"data": {}}, False),
        ([], False),
    ],
)
def test_what_is_no_list_is_no_word(page: Any, again: bool) -> None:
    finding = found("openai", listed=page)
    assert (finding.what, finding.wait_s is not None) == (Found.NO_WORD, again)
    assert finding.note
    if isinstance(page, Reply) and page.status == 429:
        assert finding.wait_s == 7.0


@pytest.mark.parametrize("whole", [Reply(404, {}, b"", NOW), {"id": "another"}, [], b"cut"])
def test_a_completion_that_is_listed_and_cannot_be_had_is_no_answer(whole: Any) -> None:
    assert found("openai", listed=listed(COMPLETION), whole=whole).what is Found.NO_WORD


@pytest.mark.parametrize(
    "row",
    [
        ROW,
        ROW | {"request_id": "c", "litellm_call_id": ID},
        ROW | {"request_id": "c", "metadata": {"litellm_call_id": ID}},
    ],
)
def test_a_spend_log_tells_the_bill_by_any_of_its_ids(row: Any) -> None:
    finding = found("litellm", spend=[{**ROW, "request_id": "another"}, row])
    assert (finding.what, finding.usage) == (Found.CHARGE, Usage(3, 4))


@pytest.mark.parametrize("form", [lambda answer: answer, json.dumps])
def test_a_spend_log_that_keeps_answers_gives_the_answer(form: Any) -> None:
    finding = found("litellm", spend=[ROW | {"response": form(COMPLETION)}])
    assert finding.what is Found.ANSWER
    assert finding.reply is not None
    assert json.loads(finding.reply.body) == COMPLETION


@pytest.mark.parametrize(
    "response",
    [
        {"choices": [{"message": {"content": "begins... (litellm_truncated 900 chars)"}}]},
        {"choices": [{"message": {"content": "redacted-by-litellm"}}]},
        {"text": "redacted by litellm"},
        "no json",
        "{}",
        None,
        [],
    ],
)
def test_an_answer_that_is_not_whole_is_only_a_charge(response: Any) -> None:
    assert found("litellm", spend=[ROW | {"response": response}]).what is Found.CHARGE


@pytest.mark.parametrize(
    ("rows", "note"),
    [
        ([], None),
        ([ROW | {"request_id": "another"}], None),
        ([ROW | {"status": "failure"}], "the gateway's log has it as failed; its provider may have done the work"),
        (
            [ROW | {"prompt_tokens": 0, "completion_tokens": 0, "spend": 0}],
            "the gateway's log has it as failed; its provider may have done the work",
        ),
    ],
)
def test_a_log_without_a_bill_proves_nothing(rows: Any, note: str | None) -> None:
    finding = found("litellm", spend=rows)
    assert (finding.what, finding.note) == (Found.NOTHING, note)


def test_a_bill_without_counts_is_a_bill() -> None:
    finding = found("litellm", spend=[ROW | {"prompt_tokens": None, "completion_tokens": None}])
    assert (finding.what, finding.usage) == (Found.CHARGE, NO_USAGE)


def test_the_id_that_the_gateway_gave_is_asked_for_too() -> None:
    pages = Pages(spend=[ROW | {"request_id": "their-id"}])
    assert asyncio.run(look_up(pages, "litellm", [ID, "their-id"])).what is Found.CHARGE
    assert len(pages.asked) == 2
