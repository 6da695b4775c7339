"""What the ledger says of a job is the same on every back end, and adds up."""

from dataclasses import replace

import pytest
from sqlalchemy import text, update

from batchrun.core.outcome import Timing
from batchrun.core.states import ItemState
from batchrun.errors import LedgerFault
from batchrun.ledger.bulk import insert_many
from batchrun.ledger.events import read_events, record_event
from batchrun.ledger.ledger import Ledger
from batchrun.ledger.reports import LATENCY_SAMPLE, causes, count_items, item_history, recent_latencies, warnings
from batchrun.ledger.results import results_of, stream_results
from batchrun.ledger.schema import attempts, items, workers
from tests.ledger.desk import (
    ANSWERED,
    ANSWERED_BLIND,
    NOT_SENT,
    NOW,
    REFUSED,
    UNKNOWN,
    UNUSABLE,
    Came,
    Desk,
    line,
    on_postgres,
)


def test_every_state_is_counted_and_the_sum_is_the_input(ledger: Ledger) -> None:
    desk = Desk.open(ledger, [*(line(number) for number in range(7)), line(7, is_rejected=True)])
    for claimed, what in zip(desk.claim(0, 1, 2, 3), (ANSWERED, REFUSED, UNKNOWN, NOT_SENT), strict=True):
        desk.settle(claimed, what)
    desk.claim(4)
    with ledger.write() as connection:
        connection.execute(update(items).where(items.c.id == desk.item_ids[5]).values(state="cancelled"))
        counts = count_items(connection, desk.job_id)
    assert counts == {
        ItemState.PENDING: 2,
        ItemState.RUNNING: 1,
        ItemState.COMPLETED: 1,
        ItemState.FAILED: 1,
        ItemState.IN_DOUBT: 1,
        ItemState.REJECTED: 1,
        ItemState.CANCELLED: 1,
    }


def test_a_job_is_reported_without_its_neighbours(ledger: Ledger) -> None:
    desk, other = Desk.open(ledger, 2), Desk.open(ledger, 3)
    for claimed in other.claim():
        other.settle(claimed, UNUSABLE)
    with ledger.read() as connection:
        assert causes(connection, desk.job_id) == []
        assert warnings(connection, desk.job_id) == {}
        assert recent_latencies(connection, desk.job_id) == []
        assert item_history(connection, desk.job_id, "q-2") is None
        assert results_of(connection, desk.job_id, other.item_ids) == []
    assert [row.custom_id for row in stream_results(ledger, desk.job_id)] == ["q-0", "q-1"]


def test_causes_are_grouped_with_the_largest_first_and_an_example_of_each(ledger: Ledger) -> None:
    desk = Desk.open(ledger, [*(line(number) for number in range(6)), line(6, is_rejected=True)])
    kinds = (UNKNOWN, REFUSED, REFUSED, UNUSABLE, REFUSED, ANSWERED)
    for claimed, what in zip(desk.claim(), kinds, strict=True):
        desk.settle(claimed, what)
    with ledger.read() as connection:
        found = causes(connection, desk.job_id)
    assert [(one.state, one.cause, one.count, one.sample_custom_id, one.sample_message) for one in found] == [
        ("failed", "bad_request", 3, "q-1", "it was bad_request"),
        ("failed", "html", 1, "q-3", "it was html"),
        ("rejected", "rejected", 1, "q-6", "not an object"),
        ("in_doubt", "timeout", 1, "q-0", "it was timeout"),
    ]


def test_answers_that_are_worth_a_look_are_counted_by_their_warning(ledger: Ledger) -> None:
    desk = Desk.open(ledger, 4)
    for claimed, warning in zip(desk.claim(), ("length", "length", "empty", None), strict=True):
        desk.settle(claimed, Came(replace(ANSWERED.evidence, warning=warning), 300))
    with ledger.read() as connection:
        assert warnings(connection, desk.job_id) == {"length": 2, "empty": 1}


def test_latencies_are_those_of_the_latest_answers(ledger: Ledger) -> None:
    desk = Desk.open(ledger, 5)
    for number, claimed in enumerate(desk.claim()):
        what = REFUSED if number == 2 else ANSWERED
        timing = Timing(NOW, None, NOW + number, float(number))
        desk.settle(claimed, Came(replace(what.evidence, timing=timing), what.cost_pusd))
    with ledger.write() as connection:
        connection.execute(update(attempts).where(attempts.c.duration_s == 1.0).values(duration_s=None))
        assert sorted(recent_latencies(connection, desk.job_id)) == [0.0, 3.0, 4.0]
    assert LATENCY_SAMPLE >= 1_000


def test_a_result_tells_its_story_by_the_answer_or_else_by_the_last_attempt(ledger: Ledger) -> None:
    desk = Desk.open(ledger, 4)
    late = desk.claim_one(0)
    desk.rescue()
    desk.consent(desk.shown("in_doubt"))
    desk.settle(desk.claim_one(0), REFUSED)
    desk.adopt(late.key, ANSWERED)
    desk.settle(desk.claim_one(1), NOT_SENT)
    desk.settle(desk.claim(1, now=NOW + 60)[0], UNKNOWN)
    desk.settle(desk.claim_one(2), ANSWERED_BLIND)
    rows = list(stream_results(ledger, desk.job_id, chunk=3))
    assert [(row.custom_id, row.state, row.attempt_state, row.attempts_count) for row in rows] == [
        ("q-0", "completed", "answered", 2),
        ("q-1", "in_doubt", "unknown", 1),  # the one that was not sent is no request
        ("q-2", "completed", "answered", 1),
        ("q-3", "pending", None, 0),
    ]
    assert rows[0].key == late.key
    bodies = [None if row.raw is None else bytes(row.raw) for row in rows]
    assert bodies == [ANSWERED.evidence.raw, UNKNOWN.evidence.raw, ANSWERED_BLIND.evidence.raw, None]
    with ledger.read() as connection:
        some = results_of(connection, desk.job_id, [desk.item_ids[2], desk.item_ids[0]])
    assert some == [rows[0], rows[2]]


@pytest.mark.parametrize("chunk", [1, 2, 3, 5, 100])
def test_results_come_in_input_order_however_they_are_read(ledger: Ledger, chunk: int) -> None:
    desk = Desk.open(ledger, 5)
    with ledger.write() as connection:
        connection.execute(update(items).values(position=10 * (desk.item_ids[-1] - items.c.id)))
    for claimed in desk.claim(0, 3):
        desk.settle(claimed, ANSWERED)
    assert [row.custom_id for row in stream_results(ledger, desk.job_id, chunk=chunk)] == [
        "q-4",
        "q-3",
        "q-2",
        "q-1",
        "q-0",
    ]
    completed = stream_results(ledger, desk.job_id, states=[ItemState.COMPLETED], chunk=chunk)
    assert [row.custom_id for row in completed] == ["q-3", "q-0"]


def test_the_history_of_an_item_names_its_workers(ledger: Ledger) -> None:
    desk = Desk.open(ledger)
    desk.settle(desk.claim_one(), UNKNOWN)
    with ledger.write() as connection:
        connection.execute(update(workers).values(name="mine"))
        history = item_history(connection, desk.job_id, "q-0")
    assert history is not None
    assert (history["state"], history["path"]) == ("in_doubt", "/chat/completions")
    (attempt,) = history["attempts"]
    assert (attempt["worker"], attempt["host"], attempt["state"]) == ("mine", "here", "unknown")


def test_events_are_read_back_in_order_and_by_kind(ledger: Ledger) -> None:
    desk = Desk.open(ledger)
    with ledger.write() as connection:
        record_event(
            connection,
            desk.job_id,
            "odd",
            at=NOW,
            item_id=5,
            detail={"text": "half \ud83d \0", "state": ItemState.PENDING},
        )
        record_event(connection, desk.job_id, "bare", at=NOW + 1)
        events = read_events(connection, desk.job_id)
        odd = read_events(connection, desk.job_id, kind="odd")
    assert [event["kind"] for event in events] == ["registered", "open", "odd", "bare"]
    assert odd == [{"at": NOW, "kind": "odd", "item_id": 5, "detail": {"text": "half \ud83d \0", "state": "pending"}}]
    assert events[-1]["detail"] is None


def test_words_that_no_back_end_could_keep_lose_nothing_paid(ledger: Ledger) -> None:
    """An endpoint's own words may hold anything; the answer beside them is kept as it came."""
    desk = Desk.open(ledger)
    odd = "nul \0 and half \ud83d"
    evidence = replace(
        ANSWERED.evidence, message=odd, finish_reason=odd, request_id=odd, response_id=odd, raw=b"\0\xff\xed\xa0\xbd"
    )
    desk.settle(desk.claim_one(), Came(evidence, 300))
    (row,) = stream_results(ledger, desk.job_id)
    assert bytes(row.raw) == b"\0\xff\xed\xa0\xbd"
    assert row.finish_reason == row.request_id == row.response_id == "nul \ufffd and half \ufffd"


def test_an_item_keeps_odd_words_about_its_failure_readable(ledger: Ledger) -> None:
    desk = Desk.open(ledger)
    desk.settle(desk.claim_one(), Came(replace(REFUSED.evidence, message="\0 \udc80"), 0))
    assert desk.item()["message"] == desk.attempts()[0]["message"] == "\ufffd \ufffd"


@on_postgres
def test_a_copy_that_the_server_breaks_off_is_a_fault_of_the_ledger(own_ledger: Ledger) -> None:
    """Rows are copied past SQLAlchemy, so its errors are not made by it."""

    def write() -> None:
        with own_ledger.write() as connection:
            mine = connection.execute(text("SELECT pg_backend_pid()")).scalar_one()
            with own_ledger.read() as other:
                other.execute(text(f"SELECT pg_terminate_backend({mine})"))
            insert_many(connection, workers, ("incarnation",), [("x",)])

    with pytest.raises(LedgerFault, match="cannot be used"):
        write()
