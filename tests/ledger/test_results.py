"""Items with the attempt that tells their story: in input order, in order of finish, and with what was asked."""

from sqlalchemy import update

from batchrun.core.states import ItemState
from batchrun.ledger.ledger import Ledger
from batchrun.ledger.results import Result, _query, asks_for, in_order_of_finish, results_in_order, stream_results
from batchrun.ledger.schema import attempts, requests
from tests.ledger.desk import ANSWERED, NOW, REFUSED, UNKNOWN, Desk, line

EVERY = tuple(ItemState)


def finished(ledger: Ledger) -> Desk:
    """Return a job of six: four have ended in the order 3, 0, 2, 1; 4 is pending, and 5 was never sent."""
    desk = Desk.open(ledger, [*(line(number) for number in range(5)), line(5, is_rejected=True)])
    for at, (number, what) in enumerate([(3, ANSWERED), (0, REFUSED), (2, UNKNOWN), (1, ANSWERED)]):
        claimed = desk.claim_one(number)
        desk.settle(claimed, what)
        with ledger.write() as connection:
            connection.execute(update(attempts).where(attempts.c.key == claimed.key).values(ended_at=NOW + at))
    return desk


def test_in_order_of_finish_what_ended_first_comes_first_and_what_was_not_sent_last(ledger: Ledger) -> None:
    desk = finished(ledger)
    ids = in_order_of_finish(ledger, desk.job_id, states=EVERY)
    assert [desk.item_ids.index(item_id) for item_id in ids] == [3, 0, 2, 1, 4, 5]
    ended = in_order_of_finish(ledger, desk.job_id, states=(ItemState.COMPLETED,))
    assert [desk.item_ids.index(item_id) for item_id in ended] == [3, 1]


def test_items_are_read_in_the_order_in_which_they_are_asked_for(ledger: Ledger) -> None:
    desk = finished(ledger)
    order = [desk.item_ids[number] for number in (5, 1, 4, 0)]
    for chunk in (1, 2, 100):
        rows = list(results_in_order(ledger, desk.job_id, order, chunk=chunk))
        assert [row.custom_id for row in rows] == ["q-5", "q-1", "q-4", "q-0"]


def test_an_item_comes_with_what_it_asked_where_that_is_wanted(ledger: Ledger) -> None:
    desk = finished(ledger)
    rows = list(stream_results(ledger, desk.job_id, with_requests=True))
    assert [bytes(row.body) for row in rows[:5]] == [line(number).body for number in range(5)]
    assert (rows[5].body, rows[5].path, rows[5].line_no) == (None, None, 6)
    plain = list(stream_results(ledger, desk.job_id))
    assert [row.custom_id for row in plain] == [row.custom_id for row in rows]
    assert (plain[0].path, plain[0].body) == (None, None)


def test_the_fields_of_a_result_are_the_columns_that_are_asked_for() -> None:
    assert [column.name for column in _query(with_requests=True).selected_columns] == list(Result._fields)


def test_whether_any_request_goes_to_a_path(ledger: Ledger) -> None:
    desk, other = finished(ledger), Desk.open(ledger, 2)
    with ledger.write() as connection:
        last = requests.c.item_id == desk.item_ids[4]
        connection.execute(update(requests).where(last).values(path="/v1/embeddings"))
        assert asks_for(connection, desk.job_id, path="/v1/embeddings")
        assert not asks_for(connection, other.job_id, path="/v1/embeddings")
