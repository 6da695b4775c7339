"""Who may ask, who waits and who is answered, where the same request is sent once: on every back end."""

from sqlalchemy import select

from batchrun.ledger.cache import Accounts, Asking, copy_answers, look_up
from batchrun.ledger.claims import Claim, claim
from batchrun.ledger.ledger import Ledger
from batchrun.ledger.schema import copies, items
from tests.ledger.desk import ANSWERED, ENDPOINT, REFUSED, UNKNOWN, Desk, line

MINE = Accounts.of([(ENDPOINT, "mine")])


def twins(ledger: Ledger, *texts: str) -> Desk:
    """Open a job whose items ask the same where their texts are the same."""
    desk = Desk.open(ledger, len(texts))
    for number, text in enumerate(texts):
        desk.force_item(number, request_digest=text.encode().ljust(16, b"\0"))
    return desk


def ask(desk: Desk, *, accounts: Accounts = MINE, misfits: tuple[int, ...] = ()) -> list[Claim]:
    with desk.ledger.write() as connection:
        return claim(
            connection,
            job_id=desk.job_id,
            item_ids=desk.item_ids,
            worker_id=desk.worker,
            endpoint=accounts.places[0][0],
            now=desk.now,
            asking=Asking(accounts, misfits),
        )


def numbers(desk: Desk, claims: list[Claim]) -> list[int]:
    return [desk.item_ids.index(one.item_id) for one in claims]


def serve(desk: Desk, *, accounts: Accounts = MINE) -> list[int]:
    with desk.ledger.write() as connection:
        found = look_up(connection, desk.item_ids, accounts)
        moved = copy_answers(connection, desk.job_id, found, worker_id=desk.worker, now=desk.now)
    return [desk.item_ids.index(item_id) for item_id in moved]


def test_of_those_that_ask_the_same_one_is_claimed_and_the_others_get_its_answer(ledger: Ledger) -> None:
    desk = twins(ledger, "one", "one", "two", "one")
    first, second = ask(desk)
    assert numbers(desk, [first, second]) == [0, 2]
    assert ask(desk) == []
    assert serve(desk) == []
    desk.settle(first, ANSWERED)
    assert ask(desk) == []  # an answer is there: nobody is sent for it again
    assert serve(desk) == [1, 3]
    assert [desk.state(number) for number in range(4)] == ["completed", "completed", "running", "completed"]
    with ledger.read() as connection:
        kept = connection.execute(select(copies.c.raw).order_by(copies.c.item_id)).scalars().all()
        keys = connection.execute(
            select(items.c.answer_key).where(items.c.id.in_([desk.item_ids[1], desk.item_ids[3]]))
        ).scalars()
        assert set(keys) == {first.key}
    assert [bytes(raw) for raw in kept][-2:] == [ANSWERED.evidence.raw] * 2
    assert desk.job.reserved_pusd == second.reserved_pusd


def test_one_that_fails_is_in_doubt_dies_or_is_given_back_keeps_nobody_waiting(ledger: Ledger) -> None:
    for what in (REFUSED, UNKNOWN, None):
        desk = twins(ledger, "same", "same")
        (first,) = ask(desk, accounts=Accounts.of([(ENDPOINT, str(what))]))
        if what is None:
            desk.rescue()
        else:
            desk.settle(first, what)
        assert numbers(desk, ask(desk, accounts=Accounts.of([(ENDPOINT, str(what))]))) == [1]
    desk = twins(ledger, "given", "given")
    (first,) = ask(desk)
    desk.release(first)
    assert numbers(desk, ask(desk)) == [0]


def test_a_late_answer_serves_those_that_have_not_asked_yet(ledger: Ledger) -> None:
    desk = twins(ledger, "late", "late", "late")
    (first,) = ask(desk)
    desk.rescue()
    desk.adopt(first.key, ANSWERED)
    assert serve(desk) == [1, 2]


def test_another_address_another_account_or_an_answer_that_will_not_do_is_asked_anew(ledger: Ledger) -> None:
    desk = twins(ledger, "where", "where", "where", "where")
    (first,) = ask(desk)
    desk.settle(first, ANSWERED)
    assert serve(desk, accounts=Accounts.of([(ENDPOINT, "theirs")])) == []
    assert numbers(desk, ask(desk, accounts=Accounts.of([(ENDPOINT, "theirs")]))) == [1]
    assert numbers(desk, ask(desk, accounts=Accounts.of([("http://127.0.0.1:2/v1", "mine")]))) == [2]
    assert numbers(desk, ask(desk, misfits=(first.key,))) == [3]


def test_an_answer_that_was_purged_serves_nobody_any_more(ledger: Ledger) -> None:
    desk = twins(ledger, "gone")
    (first,) = ask(desk)
    desk.settle(first, ANSWERED)
    desk.end()
    desk.purge()
    other = twins(ledger, "gone", "gone")
    assert serve(other) == []
    assert numbers(other, ask(other)) == [0]


def test_a_paused_job_is_served_nothing_and_a_dead_worker_serves_nobody(ledger: Ledger) -> None:
    desk = twins(ledger, "pause", "pause")
    (first,) = ask(desk)
    desk.settle(first, ANSWERED)
    assert desk.move("pause", reason="paused_by_user")
    assert serve(desk) == []
    assert desk.move("resume")
    assert serve(desk) == [1]


def test_a_line_asks_what_its_request_says() -> None:
    assert MINE.ask(line(1).request_digest or b"") != MINE.ask(line(2).request_digest or b"")
    assert 0 <= MINE.ask(b"x" * 16) < 1 << 63
