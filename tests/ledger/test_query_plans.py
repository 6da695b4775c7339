"""The statements of the hot path at a hundred thousand items: each finds its rows by an index, on both back ends."""

import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest
from sqlalchemy import Connection, event

from batchrun.core.states import ItemState
from batchrun.ledger import purge
from batchrun.ledger.backlog import START, Place, claimable, next_ready_at
from batchrun.ledger.claims import claim, lost_claims, release, within_budget
from batchrun.ledger.consents import Stopped, consent
from batchrun.ledger.jobs import move_job
from batchrun.ledger.ledger import Ledger
from batchrun.ledger.reports import count_items
from batchrun.ledger.rescue import rescue
from batchrun.ledger.results import results_of, stream_results
from batchrun.ledger.settle import settle, settle_answers
from batchrun.ledger.sweeps import incarnations, jobs_of
from batchrun.ledger.watching import last_failure
from tests.ledger.desk import ANSWERED, ENDPOINT, NOW, REFUSED, UNKNOWN, Desk, line, on_sqlite

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]
MANY = 100_000
# Tables that grow with the input. Postgres knows that there are few attempts as yet, and may well read them all.
LARGE = {"sqlite": ("items", "attempts", "requests", "answers"), "postgresql": ("items", "requests")}


@dataclass
class Said:
    """One statement as it went to the driver."""

    text: str
    parameters: Any


@pytest.fixture(scope="module")
def large(make_address: Callable[[], str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    """A job of a hundred thousand items of which a few are done; its statistics are as old as the job."""
    ledger = Ledger(make_address(), folder=tmp_path_factory.mktemp("large"))
    desk = Desk.open(ledger, [line(number) for number in range(MANY)], trial=range(10))
    for start in range(0, 2_000, 500):
        claims = desk.claim(*range(start, start + 500))
        with ledger.write() as connection:
            assert settle_answers(connection, [desk.settlement(one, ANSWERED) for one in claims])
    yield desk
    ledger.close()


@contextmanager
def listening(ledger: Ledger) -> Iterator[list[Said]]:
    """Collect the statements that are executed."""
    heard: list[Said] = []

    def hear(_connection: object, _cursor: object, text: str, parameters: Any, _context: object, is_many: bool) -> None:
        heard.append(Said(text, parameters[0] if is_many else parameters))

    event.listen(ledger.engine, "before_cursor_execute", hear)
    try:
        yield heard
    finally:
        event.remove(ledger.engine, "before_cursor_execute", hear)


def plan(connection: Connection, said: Said) -> list[str]:
    """Return the plan of a statement, a line to a step."""
    is_sqlite = connection.dialect.name == "sqlite"
    asked = "EXPLAIN QUERY PLAN " if is_sqlite else "EXPLAIN (FORMAT JSON) "
    rows = connection.exec_driver_sql(asked + said.text, said.parameters).all()
    if is_sqlite:
        return [str(row[-1]) for row in rows]
    return list(_steps(rows[0][0] if not isinstance(rows[0][0], str) else json.loads(rows[0][0])))


def _steps(node: Any) -> Iterator[str]:
    if isinstance(node, list):
        for one in node:
            yield from _steps(one)
    elif isinstance(node, dict):
        if "Node Type" in node:
            index, table = node.get("Index Name", ""), node.get("Relation Name", "")
            yield f"{node['Node Type']} {table} {index} {node.get('Index Cond', '')}"
        for value in node.values():
            if isinstance(value, list | dict):
                yield from _steps(value)


def walks(step: str, back_end: str) -> bool:
    """Say whether a step of a plan goes through a large table, through a whole job, or through all of one state."""
    if re.match(rf"(SCAN|Seq Scan) (TABLE )?({'|'.join(LARGE[back_end])})\b", step):
        return True
    if re.search(r"\((job_id=\?|job_id = [^ ]+)\)+$", step):
        return True
    by_state = re.search(r"ix_items_job_id_state_rank_id|ix_attempts_job_id_state\b", step)
    by_id_too = re.search(r"\bid=\?|\bid = ", step)
    return bool(by_state) and not by_id_too


def claim_some(desk: Desk, connection: Connection) -> None:
    order = {"job_id": desk.job_id, "worker_id": desk.worker, "endpoint": ENDPOINT, "now": NOW}
    assert len(claim(connection, item_ids=desk.item_ids[2_000:2_064], **order)) == 64


def settle_some(desk: Desk, connection: Connection) -> None:
    order = {"job_id": desk.job_id, "worker_id": desk.worker, "endpoint": ENDPOINT, "now": NOW}
    claims = claim(connection, item_ids=desk.item_ids[2_000:2_064], **order)
    assert settle_answers(connection, [desk.settlement(one, ANSWERED) for one in claims[:60]])
    settle(connection, desk.settlement(claims[60], UNKNOWN))
    settle(connection, desk.settlement(claims[61], REFUSED))
    release(connection, claims=claims[62:], worker_id=desk.worker, now=NOW)
    settle(connection, desk.settlement(claims[60], ANSWERED))
    settle(connection, desk.settlement(claims[61], ANSWERED))


def consent_to_some(desk: Desk, connection: Connection) -> None:
    shown = [Stopped(desk.item_ids[9], 1, "q-9", ItemState.FAILED, None, None, None, 1, True)]
    consent(connection, desk.job_id, shown, now=NOW)


def a_batch(desk: Desk) -> purge._Span:
    return purge._Span(desk.job_id, desk.item_ids[500], desk.item_ids[1_000])


# What goes through the ids it is given.
BY_ID: dict[str, Callable[[Desk, Connection], Any]] = {
    "claim": claim_some,
    "settle, release, adopt": settle_some,
    "consent": consent_to_some,
    "read back lost claims": lambda desk, c: lost_claims(c, item_ids=desk.item_ids[:64], worker_id=desk.worker),
    "look at the budget": lambda desk, c: within_budget(c, desk.job_id, desk.item_ids[:64]),
    "forget a batch": lambda desk, c: purge._forget(c, a_batch(desk)),
    "measure a batch": lambda desk, c: (purge._sizes(c, a_batch(desk)), purge._count_texts(c, a_batch(desk))),
    "results of some items": lambda desk, c: results_of(c, desk.job_id, desk.item_ids[:500]),
}
# What goes through the items or attempts of one state. Where nearly all are in that state, Postgres reads them all.
BY_STATE: dict[str, Callable[[Desk, Connection], Any]] = {
    "next claimable items": lambda desk, c: claimable(
        c, desk.job_id, after=START, limit=1_000, trial_only=False, now=NOW
    ),
    "next ready time": lambda desk, c: next_ready_at(c, desk.job_id, trial_only=False),
    "is it finished": lambda desk, c: move_job(c, desk.job_id, "finalize", now=NOW),
    "rescue": lambda desk, c: rescue(c, job_id=desk.job_id, worker_id=desk.worker, now=NOW),
    "last failure": lambda desk, c: last_failure(c, desk.job_id),
    "whom to sweep": lambda desk, c: (incarnations(c, except_worker=0), jobs_of(c, desk.worker)),
}


def plans_of(desk: Desk, do: Callable[[Desk, Connection], Any]) -> dict[str, list[str]]:
    """Do something, take it back, and return the plan of each statement of it."""
    with desk.ledger.write() as connection:
        with listening(desk.ledger) as heard:
            do(desk, connection)
        plans = {
            said.text: plan(connection, said) for said in heard if said.text.startswith(("SELECT", "UPDATE", "DELETE"))
        }
        connection.rollback()
    assert plans
    return plans


@pytest.mark.parametrize("what", list(BY_ID))
def test_what_is_asked_by_id_is_found_by_id(large: Desk, what: str) -> None:
    back_end = large.ledger.url.get_backend_name()
    plans = plans_of(large, BY_ID[what])
    assert not {text: steps for text, steps in plans.items() if any(walks(step, back_end) for step in steps)}


@on_sqlite
@pytest.mark.parametrize("what", list(BY_STATE))
def test_what_is_asked_by_state_is_found_by_state(large: Desk, what: str) -> None:
    plans = plans_of(large, BY_STATE[what])
    assert not {text: steps for text, steps in plans.items() if any(step.startswith("SCAN items") for step in steps)}
    assert not {text: steps for text, steps in plans.items() if any(step.startswith("SCAN att") for step in steps)}


def test_counting_reads_the_index_and_not_the_items(large: Desk) -> None:
    with large.ledger.read() as connection:
        with listening(large.ledger) as heard:
            assert count_items(connection, large.job_id)[ItemState.PENDING] == MANY - 2_000
        steps = plan(connection, heard[0])
    if large.ledger.is_sqlite:
        assert steps == ["SEARCH items USING COVERING INDEX ix_items_job_id_state_rank_id (job_id=?)"]
    else:
        assert not any("Seq Scan attempts" in step for step in steps)


def test_results_are_read_in_order_without_sorting(large: Desk) -> None:
    with listening(large.ledger) as heard:
        rows = iter(stream_results(large.ledger, large.job_id, chunk=100))
        assert [next(rows).custom_id for _ in range(3)] == ["q-0", "q-1", "q-2"]
    with large.ledger.read() as connection:
        steps = plan(connection, heard[-1])
    assert not any("TEMP B-TREE" in step or "Sort" in step for step in steps), steps
    assert any("ix_items_job_id_position" in step for step in steps)
    assert not any(re.match(r"(SCAN|Seq Scan) (attempts|answers|telling)", step) for step in steps), steps


def test_the_next_items_are_read_from_their_place_without_sorting(large: Desk) -> None:
    place = Place(0, large.item_ids[50_000])
    with large.ledger.read() as connection:
        with listening(large.ledger) as heard:
            places = claimable(connection, large.job_id, after=place, limit=3, trial_only=False, now=NOW)
            claimable(connection, large.job_id, after=Place(1, 0), limit=3, trial_only=False, now=NOW)
        of_rank, _, behind = (plan(connection, said) for said in heard)
    assert [place.item_id for place in places] == large.item_ids[50_001:50_004]
    for steps, wanted in ((of_rank, "rank=? AND id>?"), (behind, "rank>?")):
        assert not any(re.search("TEMP B-TREE|Sort|SCAN|Seq Scan", step) for step in steps), steps
        if large.ledger.is_sqlite:  # Postgres may go through the ids behind a place, which are in order too
            assert any("ix_items_job_id_state_rank_id" in step and wanted in step for step in steps), steps


def test_the_trial_is_found_by_its_own_index(large: Desk) -> None:
    with large.ledger.read() as connection:
        with listening(large.ledger) as heard:
            ids = claimable(connection, large.job_id, after=START, limit=1_000, trial_only=True, now=NOW)
        steps = plan(connection, heard[0])
    assert ids == [], "all ten are done, and nobody looked through the other items for more"
    assert any("ix_items_trial" in step for step in steps), steps


def test_claims_are_found_by_id_whatever_the_statistics_say(large: Desk) -> None:
    """With fresh statistics the planners know that nearly everything is pending: they must not be drawn to it."""

    def analyze_and_claim(desk: Desk, connection: Connection) -> None:
        connection.exec_driver_sql("ANALYZE")
        claim_some(desk, connection)

    back_end = large.ledger.url.get_backend_name()
    plans = plans_of(large, analyze_and_claim)
    assert not {text: steps for text, steps in plans.items() if any(walks(step, back_end) for step in steps)}
