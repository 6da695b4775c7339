"""The receipt against a provider that knows what it billed: certain <= true <= certain + possible, in every part."""

import random
from collections import Counter
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest
from sqlalchemy import Connection

from batchrun.core.outcome import Break, BreakKind, Evidence, Reply, Usage
from batchrun.core.prices import Price, cost_of, worst_cost_pusd
from batchrun.core.retry import decide
from batchrun.ledger.claims import Claim, claim
from batchrun.ledger.ledger import Ledger
from batchrun.ledger.receipt import Bill, read_bills
from batchrun.ledger.reports import report_attempts
from batchrun.ledger.settle import settle
from batchrun.runner.receipt import add_up
from batchrun.runner.settlement import make_settlement
from tests.endpoint.replies import CHAT, TIMING, chat, error, evidence, reply
from tests.ledger.desk import Desk, line

# What the provider takes; the user may not have been told all of it.
TRUE = Price(
    input_per_1m_usd=Decimal("1.25"),
    output_per_1m_usd=Decimal(10),
    cached_input_per_1m_usd=Decimal("0.125"),
    cache_write_per_1m_usd=Decimal("1.5625"),
)
LONGEST_PROMPT, LONGEST_ANSWER = 2_000, 500
ADDRESSES = ("https://a.example/v1", "https://b.example/v1")
Came = tuple[Reply | Break, int]  # what a request came to, and what the provider billed for it


def told(usage: Usage, **more: Any) -> dict[str, Any]:
    """Write a usage as OpenAI does."""
    return {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "prompt_tokens_details": {
            "cached_tokens": usage.cached_tokens or 0,
            "cache_write_tokens": usage.cache_write_tokens or 0,
        },
        **more,
    }


def a_request(dice: random.Random) -> Came:
    """Let the provider work on one request, and something become of its reply."""
    prompt, answer = dice.randint(1, LONGEST_PROMPT), dice.randint(0, LONGEST_ANSWER)
    read = dice.choice([0, 0, prompt // 2])
    used = Usage(prompt, answer, cached_tokens=read, cache_write_tokens=dice.choice([0, 0, prompt - read]))
    cost = cost_of(TRUE, used)
    assert cost is not None
    billed = cost.certain_pusd
    kinds: list[Callable[[], Came]] = [
        lambda: (reply(200, chat(usage=told(used))), billed),
        lambda: (reply(200, chat(usage=told(used, total_tokens=prompt + answer, cost=0.5))), billed),
        lambda: (reply(200, chat(usage=None)), billed),
        lambda: (reply(200, chat(usage={"total_tokens": prompt + answer})), billed),
        lambda: (reply(200, chat(usage=told(used) | {"completion_tokens": None})), billed),
        lambda: (reply(200, chat(usage=told(used) | {"prompt_tokens": str(prompt)})), billed),
        # Reasoning that is billed, and stands in the total alone; or in the total and is not billed.
        lambda: (
            reply(200, chat(usage=told(used) | {"completion_tokens": 0, "total_tokens": prompt + answer})),
            billed,
        ),
        lambda: (reply(200, chat(usage=told(used) | {"total_tokens": prompt + answer + 77})), billed),
        lambda: (reply(200, {"choices": [], "usage": told(used)}), billed),
        lambda: (reply(200, "<html>"), dice.choice([0, billed])),
        lambda: (reply(400, error("too long", code="context_length_exceeded")), 0),
        lambda: (reply(400, error("no", code="content_filter")), dice.choice([0, billed])),
        lambda: (reply(500, error("boom")), 0),
        lambda: (reply(502, "<html>"), dice.choice([0, billed])),
        lambda: (Break(BreakKind.LOST, "reset", TIMING), dice.choice([0, billed])),
        lambda: (Break(BreakKind.CONNECT, "refused", TIMING), 0),
    ]
    return dice.choice(kinds)()


def take(connection: Connection, desk: Desk, claimed: Claim, came: Reply | Break, *, price: Price | None) -> Evidence:
    """Do what a worker does with what came of its claim."""
    found = evidence(came, path=CHAT)
    one = make_settlement(
        found,
        decide(found, claimed.tries, desk.policy),
        key=claimed.key,
        job_id=desk.job_id,
        worker_id=desk.worker,
        price=price,
        reserved_pusd=claimed.reserved_pusd,
        now=desk.now,
    )
    settle(connection, one)
    return found


@pytest.mark.parametrize("is_told_all", [True, False], ids=["all prices told", "two prices told"])
def test_what_was_billed_lies_between_certain_and_certain_and_possible(ledger: Ledger, is_told_all: bool) -> None:
    dice = random.Random(7)
    price = TRUE if is_told_all else Price(**TRUE.model_dump(include={"input_per_1m_usd", "output_per_1m_usd"}))
    worst = worst_cost_pusd(TRUE, prompt_tokens=LONGEST_PROMPT, max_output_tokens=LONGEST_ANSWER)
    desk = Desk.open(ledger, [line(number, worst_pusd=worst) for number in range(100)])
    true: Counter[object] = Counter()
    with ledger.write() as connection:
        for place, address in enumerate(ADDRESSES):
            for claimed in claim(
                connection,
                job_id=desk.job_id,
                item_ids=desk.item_ids[place :: len(ADDRESSES)],
                worker_id=desk.worker,
                endpoint=address,
                now=desk.now,
            ):
                came, billed = a_request(dice)
                found = take(connection, desk, claimed, came, price=price)
                for part in ("job", address, (address, found.outcome, found.cause)):
                    true[part] += billed
    with ledger.read() as connection:
        lines = read_bills(connection, desk.job_id)
        report = report_attempts(connection, desk.job_id)
    parts: dict[object, list[Bill]] = {}
    for one_line in lines:
        for part in ("job", one_line.endpoint, (one_line.endpoint, one_line.outcome, one_line.cause)):
            parts.setdefault(part, []).append(one_line.bill)
    for part, bills in parts.items():
        bill = add_up(bills)
        assert bill.certain_pusd <= true[part] <= bill.certain_pusd + bill.possible_pusd, part
        assert bill.unbounded == 0
    job = add_up(parts["job"])
    assert (job.certain_pusd, job.certain_pusd + job.possible_pusd) == (desk.money[0], sum(desk.money))
    assert (job.requests, job.certain_requests, job.possible_requests) == (
        report.sent,
        report.certain_requests,
        report.possible_requests,
    )
    assert (job.certain_pusd, job.possible_pusd) == (report.certain_pusd, report.possible_pusd)
    assert job.reported_requests > 0
    assert job.reported_pusd == job.reported_requests * 500_000_000_000


def test_without_a_price_nothing_is_summed_and_everything_is_counted(ledger: Ledger) -> None:
    desk = Desk.open(ledger, [line(number, worst_pusd=None) for number in range(3)])
    cases = [reply(200, chat()), Break(BreakKind.TIMEOUT, "slow", TIMING), reply(429, error("slow down"))]
    claims = desk.claim()
    with ledger.write() as connection:
        for claimed, came in zip(claims, cases, strict=True):
            take(connection, desk, claimed, came, price=None)
    with ledger.read() as connection:
        bill = add_up([one_line.bill for one_line in read_bills(connection, desk.job_id)])
        assert report_attempts(connection, desk.job_id).unbounded == 2
    assert (bill.requests, bill.unbounded, bill.certain_pusd, bill.possible_pusd) == (3, 2, 0, 0)
    assert (bill.prompt_tokens, bill.completion_tokens) == (10, 5)
