"""Taking a changed input for the job's: what it comes to, what it may not touch, and what comes back."""

from dataclasses import asdict

import pytest
from sqlalchemy import func, select, update

from batchrun.core.states import JobState
from batchrun.errors import IllegalMove
from batchrun.ledger import changes as changes_room
from batchrun.ledger import register
from batchrun.ledger.changes import Changes, accept, compare, stage, unstage
from batchrun.ledger.ledger import Ledger
from batchrun.ledger.register import Line
from batchrun.ledger.reports import item_history
from batchrun.ledger.results import stream_results
from batchrun.ledger.schema import incoming, items
from tests.ledger.desk import (
    ANSWERED,
    NOW,
    REFUSED,
    UNKNOWN,
    Desk,
    line,
    snapshot,
)


def count(ledger: Ledger, table: object) -> int:
    with ledger.read() as connection:
        number: int = connection.execute(select(func.count()).select_from(table)).scalar_one()  # type: ignore[arg-type]
        return number


def take_in(desk: Desk, *lines: Line) -> Changes:
    """Take these lines for the job's input."""
    stage(desk.ledger, desk.job_id, lines)
    return accept(
        desk.ledger, desk.job_id, input_digest="new", params_digest="newer", spec='{"a": 1}', trial=(), now=NOW
    )


def said(**counts: int) -> Changes:
    """Return what a comparison comes to; what is not named is none."""
    return Changes(**{**dict.fromkeys(Changes.__dataclass_fields__, 0), **counts})


def rows(desk: Desk) -> list[tuple[object, ...]]:
    """Return (custom id, revision, current, position, line, state) of every item that ever was, in order of its id."""
    columns = (
        items.c.custom_id,
        items.c.revision,
        items.c.is_current,
        items.c.position,
        items.c.line_no,
        items.c.state,
    )
    with desk.ledger.read() as connection:
        query = select(*columns).where(items.c.job_id == desk.job_id).order_by(items.c.id)
        return [tuple(row) for row in connection.execute(query)]


def test_the_same_input_changes_nothing(ledger: Ledger) -> None:
    desk = Desk.open(ledger, [line(0), line(1), line(2, is_rejected=True)])
    before = rows(desk)
    changes = take_in(desk, line(0), line(1), line(2, is_rejected=True))
    assert changes == said(unchanged=3)
    assert changes.is_none
    assert rows(desk) == before
    assert (desk.job.input_digest, desk.job.params_digest, dict(desk.job.spec)) == ("new", "newer", {"a": 1})


def test_every_kind_of_change_is_counted_and_made(ledger: Ledger) -> None:
    desk = Desk.open(ledger, 5)
    desk.settle(desk.claim_one(0), ANSWERED)
    new = [line(7), line(0), line(2, text="edited"), line(9, is_rejected=True), line(4)]
    placed = [Line(place, place + 10, *_rest(one)) for place, one in enumerate(new)]
    changes = take_in(desk, *placed)
    assert changes == said(unchanged=2, changed=1, new=2, removed=2)
    assert rows(desk) == [
        ("q-0", 1, True, 1, 11, "completed"),
        ("q-1", 1, False, 1, 2, "pending"),
        ("q-2", 1, False, 2, 3, "pending"),
        ("q-3", 1, False, 3, 4, "pending"),
        ("q-4", 1, True, 4, 14, "pending"),
        ("q-7", 1, True, 0, 10, "pending"),
        ("q-2", 2, True, 2, 12, "pending"),
        ("q-9", 1, True, 3, 13, "rejected"),
    ]
    assert desk.job.total == 5
    assert desk.counts() == {"completed": 1, "pending": 3, "rejected": 1}
    assert [one.custom_id for one in stream_results(ledger, desk.job_id)] == ["q-7", "q-0", "q-2", "q-9", "q-4"]
    assert [event["detail"] for event in desk.events("changes_accepted")] == [asdict(changes)]
    assert count(ledger, incoming) == 0


def _rest(one: Line) -> tuple[object, ...]:
    return tuple(getattr(one, name) for name in Line._fields[2:])


def test_a_new_revision_sends_the_new_request(ledger: Ledger) -> None:
    desk = Desk.open(ledger)
    take_in(desk, line(0, text="edited"))
    with ledger.read() as connection:
        current = select(items.c.id).where(items.c.job_id == desk.job_id, items.c.is_current)
        desk.item_ids.append(connection.execute(current).scalar_one())
    assert desk.claim(0) == []
    assert desk.claim_one(1).body == line(0, text="edited").body


@pytest.mark.parametrize("state", ["pending", "completed", "failed", "cancelled", "rejected"])
@pytest.mark.parametrize("how", ["changed", "removed"])
def test_a_superseded_item_leaves_the_counts_and_keeps_its_attempts_and_money(
    ledger: Ledger, state: str, how: str
) -> None:
    lines = [line(0, is_rejected=state == "rejected"), line(1)]
    desk = Desk.open(ledger, lines)
    if state in ("completed", "failed"):
        desk.settle(desk.claim_one(), ANSWERED if state == "completed" else REFUSED)
    elif state == "cancelled":
        desk.force_item(state="cancelled")
    assert desk.state() == state
    before, made, money = desk.item(), desk.attempts(), desk.money
    take_in(desk, *([line(0, text="edited"), line(1)] if how == "changed" else [line(1)]))
    after = desk.item()
    assert (after.pop("is_current"), before.pop("is_current")) == (False, True)
    assert after.pop("fence") == before.pop("fence") + 1
    assert after == before
    assert (desk.attempts(), desk.money) == (made, money)
    assert desk.counts() == {"pending": 2 if how == "changed" else 1}
    assert [one.item_id for one in [*desk.shown("failed"), *desk.shown("in_doubt")]] == []


@pytest.mark.parametrize("how", ["changed", "removed"])
@pytest.mark.parametrize("state", ["running", "in_doubt"])
def test_a_change_of_what_is_running_or_in_doubt_is_refused_whole(ledger: Ledger, state: str, how: str) -> None:
    desk = Desk.open(ledger, 3)
    claimed = desk.claim_one()
    if state == "in_doubt":
        desk.settle(claimed, UNKNOWN)
    stage(ledger, desk.job_id, [line(0, text="edited"), line(1)] if how == "changed" else [line(1)])
    before = snapshot(ledger)
    with ledger.read() as connection:
        assert compare(connection, desk.job_id).busy == 1
    with pytest.raises(IllegalMove, match="1 changed or removed items are running or in doubt"):
        accept(ledger, desk.job_id, input_digest="", params_digest="", spec="{}", trial=(), now=NOW)
    assert snapshot(ledger) == before


@pytest.mark.parametrize("state", ["running", "in_doubt"])
def test_what_is_running_or_in_doubt_and_unchanged_stands_in_nobodys_way(ledger: Ledger, state: str) -> None:
    desk = Desk.open(ledger, 2)
    claimed = desk.claim_one()
    if state == "in_doubt":
        desk.settle(claimed, UNKNOWN)
    assert take_in(desk, line(0), line(1, text="edited")).changed == 1
    assert desk.settle(claimed, ANSWERED).value == ("moved" if state == "running" else "adopted")


def history(desk: Desk) -> list[tuple[object, ...]]:
    """Return (custom id, revision, current) of every item that ever was."""
    return [row[:3] for row in rows(desk)]


def test_a_line_that_comes_back_comes_back_with_its_answer(ledger: Ledger) -> None:
    """It was paid for. What the line was in between is superseded in its turn."""
    desk = Desk.open(ledger, 2)
    desk.settle(desk.claim_one(), ANSWERED)
    assert take_in(desk, line(1)) == said(unchanged=1, removed=1)
    assert take_in(desk, line(0), line(1)) == said(unchanged=1, restored=1)
    assert take_in(desk, line(0, text="edited"), line(1)) == said(unchanged=1, changed=1, answered=1)
    assert history(desk) == [("q-0", 1, False), ("q-1", 1, True), ("q-0", 2, True)]
    assert take_in(desk, line(0), line(1)) == said(unchanged=1, restored=1)
    assert history(desk) == [("q-0", 1, True), ("q-1", 1, True), ("q-0", 2, False)]
    assert desk.counts() == {"completed": 1, "pending": 1}
    assert [row.custom_id for row in stream_results(ledger, desk.job_id)] == ["q-0", "q-1"]
    assert desk.money == (300, 0)


def test_of_several_revisions_that_are_alike_the_latest_comes_back(ledger: Ledger) -> None:
    desk = Desk.open(ledger, [line(0)])
    take_in(desk, line(0, text="b"))
    take_in(desk, line(0, text="c"))
    desk.force_item(request_digest=line(0, text="b").request_digest)
    assert take_in(desk, line(0, text="b")) == said(restored=1)
    assert history(desk) == [("q-0", 1, False), ("q-0", 2, True), ("q-0", 3, False)]


def test_a_restored_item_can_be_claimed_and_its_old_consents_are_void(ledger: Ledger) -> None:
    desk = Desk.open(ledger, 2)
    desk.settle(desk.claim_one(), REFUSED)
    shown = desk.shown("failed")
    take_in(desk, line(1))
    take_in(desk, line(0), line(1))
    assert desk.consent(shown) == 0
    assert desk.consent(desk.shown("failed")) == 1
    assert [one.custom_id for one in desk.claim()] == ["q-0", "q-1"]


def test_a_rejected_line_that_comes_back_is_a_new_one(ledger: Ledger) -> None:
    desk = Desk.open(ledger, [line(0, is_rejected=True), line(1)])
    take_in(desk, line(1))
    assert take_in(desk, line(0, is_rejected=True), line(1)) == said(unchanged=1, new=1)
    assert desk.counts() == {"rejected": 1, "pending": 1}


def test_an_answer_that_would_be_paid_again_is_counted(ledger: Ledger) -> None:
    desk = Desk.open(ledger, 3)
    desk.settle(desk.claim_one(0), ANSWERED)
    desk.settle(desk.claim_one(1), REFUSED)
    edited = [line(number, text="edited") for number in range(3)]
    assert take_in(desk, *edited) == said(changed=3, answered=1)


@pytest.mark.parametrize("state", ["busy", "restored"])
def test_what_is_running_stands_in_the_way_of_what_would_come_back(ledger: Ledger, state: str) -> None:
    desk = Desk.open(ledger, 1)
    take_in(desk, line(0, text="edited"))
    with ledger.read() as connection:
        desk.item_ids[0] = connection.execute(select(func.max(items.c.id))).scalar_one()
    if state == "busy":
        desk.claim_one()
        with pytest.raises(IllegalMove):
            take_in(desk, line(0))
    else:
        assert take_in(desk, line(0)) == said(restored=1)


def test_a_job_that_had_ended_is_open_again_for_what_is_new(ledger: Ledger) -> None:
    desk = Desk.open(ledger)
    desk.settle(desk.claim_one(), ANSWERED)
    assert desk.move("finalize")
    assert desk.move("complete")
    take_in(desk, line(0))
    assert desk.job.state is JobState.COMPLETED, "nothing has changed"
    take_in(desk, line(0), line(1))
    assert (desk.job.state, desk.job.phase) == (JobState.IN_PROGRESS, "full")


def test_many_changed_lines_are_taken_a_chunk_at_a_time(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    for room in (register, changes_room):
        monkeypatch.setattr(room, "CHUNK", 7)
    desk = Desk.open(ledger, 50)
    changes = take_in(desk, *(line(number, text="edited" if number % 2 else "hello") for number in range(60)))
    assert changes == said(unchanged=25, changed=25, new=10)
    assert desk.counts() == {"pending": 60}
    assert [row.position for row in stream_results(ledger, desk.job_id, chunk=7)] == list(range(60))


def test_a_comparison_can_be_dropped_and_touches_no_other_job(ledger: Ledger) -> None:
    desk, other = Desk.open(ledger, 2), Desk.open(ledger, 2)
    before = snapshot(ledger)
    stage(ledger, desk.job_id, [line(0)])
    stage(ledger, other.job_id, [line(1)])
    stage(ledger, desk.job_id, [line(0), line(1)])
    with ledger.read() as connection:
        assert compare(connection, desk.job_id) == said(unchanged=2)
        assert compare(connection, other.job_id) == said(unchanged=1, removed=1)
    unstage(ledger, desk.job_id)
    unstage(ledger, other.job_id)
    assert snapshot(ledger) == before


def test_the_history_of_an_item_spans_its_revisions(ledger: Ledger) -> None:
    desk = Desk.open(ledger)
    desk.settle(desk.claim_one(), REFUSED)
    take_in(desk, line(0, text="edited"))
    with ledger.write() as connection:
        newest = select(func.max(items.c.id)).scalar_subquery()
        connection.execute(update(items).where(items.c.id == newest).values(note="second"))
        history = item_history(connection, desk.job_id, "q-0")
        assert item_history(connection, desk.job_id, "q-9") is None
    assert history is not None
    assert (history["revision"], history["note"], bytes(history["body"])) == (2, "second", line(0, text="edited").body)
    assert [attempt["state"] for attempt in history["attempts"]] == ["refused"]
    assert bytes(history["attempts"][0]["raw"]) == REFUSED.evidence.raw
