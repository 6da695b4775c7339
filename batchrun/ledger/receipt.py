"""What a job's requests cost, as its attempts say, added up by what they came to. Reading only.

It goes through all attempts of the job: for whoever asks, and not for a display that asks again and again.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import ColumnElement, Connection, case, func, select

from batchrun.core.outcome import Charge
from batchrun.core.states import AttemptState
from batchrun.ledger.reports import HALF, sum_of_money
from batchrun.ledger.schema import attempts


@dataclass(frozen=True, slots=True)
class Bill:
    """Requests that belong together, and what they cost: `certain_pusd`, and at most `possible_pusd` on top."""

    requests: int  # that left, or may have; those under way among them
    certain_requests: int  # that were billed
    possible_requests: int  # that may have been
    certain_pusd: int
    possible_pusd: int
    unbounded: int  # billed, or possibly, at a price that was not known: neither sum holds them
    without_usage: int  # billed, and the endpoint did not say for how many tokens
    reported_requests: int  # whose cost the endpoint itself has told
    reported_pusd: int  # the sum of that
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int  # of the prompts'
    reasoning_tokens: int


@dataclass(frozen=True, slots=True)
class BillLine:
    """The bill of the requests to one endpoint that came to the same."""

    endpoint: str
    outcome: AttemptState
    cause: str | None
    bill: Bill


def read_bills(connection: Connection, job_id: int) -> list[BillLine]:
    """Add up all attempts of a job that were sent or may have been, superseded items' attempts included."""
    is_billed = attempts.c.charge != Charge.NONE.value
    is_unknown = is_billed & attempts.c.cost_pusd.is_(None)
    has_no_usage = attempts.c.prompt_tokens.is_(None) | attempts.c.completion_tokens.is_(None)
    of_one = (attempts.c.endpoint, attempts.c.state, attempts.c.cause)
    rows = connection.execute(
        select(
            *of_one,
            func.count(),
            _count(attempts.c.charge == Charge.CERTAIN.value),
            _count(attempts.c.charge == Charge.POSSIBLE.value),
            _count(is_unknown & (attempts.c.reserved_pusd == 0)),
            _count((attempts.c.charge == Charge.CERTAIN.value) & has_no_usage),
            func.count(attempts.c.reported_pusd),
            *(func.coalesce(func.sum(column), 0) for column in _TOKENS),
            *sum_of_money(case((attempts.c.charge == Charge.CERTAIN.value, attempts.c.cost_pusd), else_=0)),
            *sum_of_money(case((attempts.c.charge == Charge.POSSIBLE.value, attempts.c.cost_pusd), else_=0)),
            *sum_of_money(attempts.c.reserved_pusd),
            *sum_of_money(attempts.c.reported_pusd),
        )
        .where(attempts.c.job_id == job_id, attempts.c.state != AttemptState.NOT_SENT.value)
        .group_by(*of_one)
    )
    return [_line(*row) for row in rows]


_TOKENS = (
    attempts.c.prompt_tokens,
    attempts.c.completion_tokens,
    attempts.c.cached_tokens,
    attempts.c.reasoning_tokens,
)


def _count(condition: ColumnElement[bool]) -> ColumnElement[int]:
    return func.coalesce(func.sum(case((condition, 1), else_=0)), 0)


def _line(endpoint: str, state: str, cause: str | None, *figures: int) -> BillLine:
    requests, certain, possible, unbounded, blind, reported, prompt, completion, cached, reasoning = map(
        int, figures[:10]
    )
    paid, perhaps, kept, told = (_whole(figures[at : at + 2]) for at in range(10, 18, 2))
    bill = Bill(
        requests=requests,
        certain_requests=certain,
        possible_requests=possible,
        certain_pusd=paid,
        possible_pusd=perhaps + kept,
        unbounded=unbounded,
        without_usage=blind,
        reported_requests=reported,
        reported_pusd=told,
        prompt_tokens=prompt,
        completion_tokens=completion,
        cached_tokens=cached,
        reasoning_tokens=reasoning,
    )
    return BillLine(endpoint, AttemptState(state), cause, bill)


def _whole(parts: Sequence[int]) -> int:
    high, low = parts
    return int(high) * HALF + int(low)
