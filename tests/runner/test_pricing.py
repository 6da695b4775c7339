"""Prices that are told after the job was registered hold for all that is not sent yet, and so does a limit."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from batchrun.core.prices import PUSD
from batchrun.core.request import most_output_tokens
from batchrun.ledger.ledger import Ledger
from batchrun.runner.resume import change_of_mind
from tests.ledger.desk import ANSWERED, Desk, line
from tests.runner.jobs import a_job

CHAT = "/v1/chat/completions"


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    opened = Ledger(f"sqlite:///{tmp_path}/ledger.db", folder=tmp_path)
    yield opened
    opened.close()


@pytest.mark.parametrize(
    ("path", "body", "tokens"),
    [
        (CHAT, {"max_tokens": 7}, 7),
        (CHAT, {"max_tokens": 7, "max_completion_tokens": 9, "n": 3}, 27),
        (CHAT, {"max_tokens": 7, "n": None}, 7),
        ("/v1/completions", {"max_tokens": 7, "prompt": ["a", "b"], "n": 2, "best_of": 5}, 70),
        ("/v1/responses", {"max_output_tokens": 11, "input": "a"}, 11),
        ("/v1/embeddings", {"input": "a", "max_tokens": 11}, 0),
    ],
)
def test_the_longest_answer_is_read_from_the_request_itself(path: str, body: dict[str, object], tokens: int) -> None:
    assert most_output_tokens(path, json.dumps(body).encode()) == tokens


def test_a_limit_that_comes_with_the_prices_stops_before_the_send_that_could_exceed_it(ledger: Ledger) -> None:
    """One of five items is answered, then prices come with a limit that two more fit under, and no third."""
    body = json.dumps({"model": "m", "messages": [], "max_tokens": 100}).encode()
    lines = [line(number, worst_pusd=None)._replace(path=CHAT, body=body) for number in range(5)]
    desk = Desk.open(ledger, lines)
    desk.force_job(spec=json.dumps(a_job().spec))
    desk.settle(desk.claim_one(0), ANSWERED)
    spent = desk.money[0]
    price = {"input_per_1m_usd": "1", "output_per_1m_usd": "2"}
    worst = (len(body) * 1 + 100 * 2) * PUSD // 10**6
    step = change_of_mind(
        ledger,
        max_cost_pusd=spent + 2 * worst,
        spec_of=lambda job: {**job.spec, "price": price},
    )
    step(desk.job)
    assert desk.job.spec["price"] == price
    assert [desk.item(number)["worst_pusd"] for number in range(5)] == [None, *[worst] * 4]
    assert len(desk.claim(1, 2, 3, 4)) == 2
    assert desk.money == (spent, 2 * worst)
