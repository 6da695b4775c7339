"""Group commit: what gathers is one transaction, a bad row undoes no other, and no write is lost or made twice."""

import asyncio
import resource
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, event, text, update

from batchrun.errors import LedgerFault, LedgerFull
from batchrun.ledger.claims import Claim
from batchrun.ledger.commit import ClaimOrder, GroupCommit
from batchrun.ledger.engines import sqlite_module
from batchrun.ledger.ledger import Ledger
from batchrun.ledger.schema import attempts, items
from batchrun.ledger.settle import Settled
from tests.ledger.desk import (
    ANSWERED,
    ANSWERED_BLIND,
    ENDPOINT,
    NOT_SENT,
    NOW,
    REFUSED,
    SERVER_ERROR,
    UNKNOWN,
    UNUSABLE,
    WORST_PUSD,
    Came,
    Desk,
    check_books,
    forks,
    on_postgres,
    on_sqlite,
    snapshot,
)

PATIENCE_S = 60.0


class Watched:
    """A ledger whose writes can be held up, and can fail before or after their commit; it says when they did."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self.gate = threading.Event()
        self.gate.set()
        self.is_at_the_gate = threading.Event()
        self.has_failed = threading.Event()
        self.fail_before = 0
        self.fail_after = 0
        self.writes = 0

    @contextmanager
    def write(self) -> Iterator[Connection]:
        self.is_at_the_gate.set()
        assert self.gate.wait(PATIENCE_S)
        try:
            with self._ledger.write() as connection:
                yield connection
                if self.fail_before:
                    self.fail_before -= 1
                    raise LedgerFault("the ledger is away")
            self.writes += 1
            if self.fail_after:
                self.fail_after -= 1
                raise LedgerFault("the connection was lost after the commit")
        except LedgerFault:
            self.has_failed.set()
            raise


def write(ledger: Any, worker: int, play: Callable[[GroupCommit], Awaitable[Any]], *, within_s: float = 5.0) -> Any:
    """Play something with a writer, on a loop of its own, and stop the writer."""

    async def run() -> Any:
        commit = GroupCommit(ledger, worker)
        commit.start()
        try:
            return await play(commit)
        finally:
            await commit.stop(within_s=within_s)

    return asyncio.run(asyncio.wait_for(run(), PATIENCE_S))


def order(desk: Desk, *numbers: int) -> ClaimOrder:
    ids = [desk.item_ids[number] for number in numbers] or desk.item_ids
    return ClaimOrder(desk.job_id, ids, ENDPOINT, NOW)


async def together(watched: Watched, first: Callable[[], Any], *rest: Callable[[], Any]) -> list[Any]:
    """Let `rest` gather into one group while the write of `first` is held up; return what came of all."""
    watched.gate.clear()
    watched.is_at_the_gate.clear()
    futures = [first()]
    assert await asyncio.to_thread(watched.is_at_the_gate.wait, PATIENCE_S)
    futures += [step() for step in rest]
    watched.gate.set()
    return await asyncio.gather(*futures, return_exceptions=True)


# -- groups ------------------------------------------------------------------------------------------------------------


def test_what_gathers_while_a_commit_runs_is_the_next_commit(ledger: Ledger) -> None:
    desk, watched = Desk.open(ledger, 101), Watched(ledger)

    async def play(commit: GroupCommit) -> list[list[Claim]]:
        orders = [order(desk, number) for number in range(101)]
        return await together(watched, *(lambda one=one: commit.claim(one) for one in orders))

    found = write(watched, desk.worker, play)
    assert [one.item_id for claims in found for one in claims] == desk.item_ids
    assert watched.writes == 2


def test_claims_settlements_and_releases_go_together(ledger: Ledger) -> None:
    desk, watched = Desk.open(ledger, 6, max_cost_pusd=4 * WORST_PUSD), Watched(ledger)
    first, second, third, fourth = desk.claim()

    async def play(commit: GroupCommit) -> list[Any]:
        return await together(
            watched,
            lambda: commit.release([fourth]),
            lambda: commit.settle(desk.settlement(first, ANSWERED)),
            lambda: commit.settle(desk.settlement(second, UNKNOWN)),
            lambda: commit.release([third]),
            lambda: commit.claim(order(desk, 4, 5)),
        )

    released, answered, unknown, released_too, claims = write(watched, desk.worker, play)
    assert (released, answered, unknown, released_too) == (None, Settled.MOVED, Settled.MOVED, None)
    assert [one.custom_id for one in claims] == ["q-4", "q-5"], "the money that came back is there for the claims"
    assert desk.states() == ["completed", "in_doubt", "pending", "pending", "running", "running"]
    assert watched.writes == 2


def test_many_at_once_are_all_written_in_few_commits(ledger: Ledger) -> None:
    desk = Desk.open(ledger, 300)
    outcomes = (ANSWERED, ANSWERED_BLIND, REFUSED, UNKNOWN, NOT_SENT)

    async def one_item(commit: GroupCommit, number: int) -> Settled | None:
        (claimed,) = await commit.claim(order(desk, number))
        if number % 6 == 5:
            return await commit.release([claimed])
        return await commit.settle(desk.settlement(claimed, outcomes[number % 6]))

    async def play(commit: GroupCommit) -> tuple[list[Any], int, int]:
        done = await asyncio.gather(*(one_item(commit, number) for number in range(300)))
        return done, commit.commits, commit.rows

    done, commits, rows = write(ledger, desk.worker, play)
    assert done.count(None) == 50
    assert done.count(Settled.MOVED) == 250
    assert desk.counts() == {"completed": 100, "failed": 50, "in_doubt": 50, "pending": 100}
    assert rows == 600
    assert commits < 100


def test_two_orders_of_one_group_never_get_the_same_item(ledger: Ledger) -> None:
    desk, watched = Desk.open(ledger, 3), Watched(ledger)

    async def play(commit: GroupCommit) -> list[list[Claim]]:
        return await together(watched, *[lambda: commit.claim(order(desk))] * 3)

    found = write(watched, desk.worker, play)
    assert sorted(one.item_id for claims in found for one in claims) == desk.item_ids


# -- one bad row -------------------------------------------------------------------------------------------------------


def test_a_bad_row_of_a_group_undoes_no_other(ledger: Ledger) -> None:
    desk, watched = Desk.open(ledger, 6), Watched(ledger)
    first, good, bad, slow, back = desk.claim(0, 1, 2, 3, 4)
    stranger = replace(desk.settlement(bad, REFUSED), key=bad.key + 7)

    async def play(commit: GroupCommit) -> list[Any]:
        return await together(
            watched,
            lambda: commit.settle(desk.settlement(first, ANSWERED)),
            lambda: commit.settle(desk.settlement(good, ANSWERED)),
            lambda: commit.settle(stranger),
            lambda: commit.settle(desk.settlement(slow, SERVER_ERROR)),
            lambda: commit.release([back]),
            lambda: commit.claim(order(desk, 5)),
        )

    done = write(watched, desk.worker, play)
    assert isinstance(done[2], LookupError)
    assert (done[:2], done[3:5]) == ([Settled.MOVED] * 2, [Settled.MOVED, None])
    assert [one.custom_id for one in done[5]] == ["q-5"]
    assert desk.states() == ["completed", "completed", "running", "pending", "pending", "running"]


def test_a_late_answer_in_a_group_is_adopted_and_the_others_complete(ledger: Ledger) -> None:
    desk, watched = Desk.open(ledger, 3), Watched(ledger)
    first, late, good = desk.claim()
    with ledger.write() as connection:
        connection.execute(
            update(items).where(items.c.id == late.item_id).values(state="in_doubt", fence=2, worker_id=None)
        )
        connection.execute(update(attempts).where(attempts.c.key == late.key).values(state="unknown"))

    async def play(commit: GroupCommit) -> list[Any]:
        steps = [desk.settlement(one, ANSWERED) for one in (first, late, good)]
        return await together(watched, *(lambda one=one: commit.settle(one) for one in steps))

    assert write(watched, desk.worker, play) == [Settled.MOVED, Settled.ADOPTED, Settled.MOVED]
    assert desk.states() == ["completed"] * 3


def test_one_outcome_told_twice_in_a_group_is_written_once(ledger: Ledger) -> None:
    desk, watched = Desk.open(ledger, 2), Watched(ledger)
    first, twice = desk.claim()

    async def play(commit: GroupCommit) -> list[Any]:
        steps = [desk.settlement(first, ANSWERED), *[desk.settlement(twice, ANSWERED)] * 2]
        return await together(watched, *(lambda one=one: commit.settle(one) for one in steps))

    assert write(watched, desk.worker, play) == [Settled.MOVED, Settled.MOVED, Settled.REPEATED]
    assert desk.money == (600, 0)


# -- a commit of unknown outcome ---------------------------------------------------------------------------------------

KINDS: list[Came] = [ANSWERED, ANSWERED_BLIND, REFUSED, SERVER_ERROR, UNUSABLE, UNKNOWN, NOT_SENT]


@pytest.mark.parametrize("what", KINDS, ids=lambda what: what.evidence.cause or f"answered {what.cost_pusd}")
@pytest.mark.parametrize("when", ["fail_before", "fail_after"])
def test_a_settlement_whose_commit_seemed_to_fail_is_made_once(ledger: Ledger, what: Came, when: str) -> None:
    desk, undisturbed, watched = Desk.open(ledger), Desk.open(ledger), Watched(ledger)
    undisturbed.settle(undisturbed.claim_one(), what)
    setattr(watched, when, 1)
    one = desk.settlement(desk.claim_one(), what)

    async def play(commit: GroupCommit) -> Settled:
        return await commit.settle(one)

    assert write(watched, desk.worker, play) is Settled.MOVED
    assert watched.has_failed.is_set()
    assert (desk.state(), desk.item()["tries"]) == (undisturbed.state(), undisturbed.item()["tries"])
    assert (desk.outcomes(), desk.money) == (undisturbed.outcomes(), undisturbed.money)


@pytest.mark.parametrize("when", ["fail_before", "fail_after"])
def test_claims_whose_commit_seemed_to_fail_are_read_back_and_not_lost(ledger: Ledger, when: str) -> None:
    desk, watched = Desk.open(ledger, 3), Watched(ledger)
    setattr(watched, when, 1)

    async def play(commit: GroupCommit) -> list[Claim]:
        return await commit.claim(order(desk))

    claims = write(watched, desk.worker, play)
    assert [(one.item_id, one.fence, bool(one.body)) for one in claims] == [(id_, 1, True) for id_ in desk.item_ids]
    assert desk.money == (0, 3 * WORST_PUSD)


@pytest.mark.parametrize("when", ["fail_before", "fail_after"])
def test_a_release_whose_commit_seemed_to_fail_gives_the_money_back_once(ledger: Ledger, when: str) -> None:
    desk, watched = Desk.open(ledger, 2), Watched(ledger)
    kept, back = desk.claim()
    setattr(watched, when, 1)

    async def play(commit: GroupCommit) -> None:
        await commit.release([back])

    write(watched, desk.worker, play)
    assert desk.states() == ["running", "pending"]
    assert desk.money == (0, WORST_PUSD)
    desk.settle(kept, ANSWERED)


@pytest.mark.parametrize("with_bad_row", [False, True], ids=["a good group", "a group with a bad row"])
@pytest.mark.parametrize("failures", [1, 2, 3])
def test_a_whole_group_whose_commits_seemed_to_fail_is_made_once(
    ledger: Ledger, failures: int, with_bad_row: bool
) -> None:
    desk, watched = Desk.open(ledger, 7), Watched(ledger)
    first, fast, slow, back, bad = desk.claim(0, 1, 2, 3, 4)
    stranger = replace(desk.settlement(bad, REFUSED), key=bad.key + 7)

    async def play(commit: GroupCommit) -> list[Any]:
        await commit.settle(desk.settlement(first, ANSWERED))
        steps = [
            lambda: commit.settle(desk.settlement(bad, REFUSED)),
            lambda: commit.settle(desk.settlement(fast, ANSWERED)),
            lambda: commit.settle(desk.settlement(slow, SERVER_ERROR)),
            lambda: commit.release([back]),
            lambda: commit.claim(order(desk, 5, 6)),
        ]
        if with_bad_row:
            steps.append(lambda: commit.settle(stranger))
        watched.fail_after = failures
        return await together(watched, *steps)

    done = write(watched, desk.worker, play)
    assert done[:4] == [Settled.MOVED, Settled.MOVED, Settled.MOVED, None]
    assert [one.custom_id for one in done[4]] == ["q-5", "q-6"]
    assert [type(one) for one in done[5:]] == [LookupError] * with_bad_row
    assert desk.states() == ["completed", "completed", "pending", "pending", "failed", "running", "running"]
    assert desk.money == (600, 2 * WORST_PUSD)


def test_an_item_that_is_being_sent_is_not_handed_out_once_more_when_claims_are_read_back(ledger: Ledger) -> None:
    """A hint may come twice. The second finds the item running, owned by this very worker: it is under way."""
    desk, watched = Desk.open(ledger, 2), Watched(ledger)

    async def play(commit: GroupCommit) -> tuple[list[Claim], list[Claim], list[Claim]]:
        under_way = await commit.claim(order(desk, 0))
        watched.fail_after = 1
        again = await commit.claim(order(desk, 0, 1))
        watched.fail_after = 1
        and_again = await commit.claim(order(desk, 0, 1))
        return under_way, again, and_again

    under_way, again, and_again = write(watched, desk.worker, play)
    assert [one.custom_id for one in under_way] == ["q-0"]
    assert [one.custom_id for one in again] == ["q-1"]
    assert and_again == []


def test_two_orders_for_one_item_never_both_get_it_when_claims_are_read_back(ledger: Ledger) -> None:
    desk, watched = Desk.open(ledger, 3), Watched(ledger)

    async def play(commit: GroupCommit) -> list[list[Claim]]:
        steps = [lambda: commit.claim(order(desk, 2)), *[lambda: commit.claim(order(desk, 0, 1))] * 3]
        watched.fail_after = 2
        return await together(watched, *steps)

    found = write(watched, desk.worker, play)
    assert sorted(one.item_id for claims in found for one in claims) == desk.item_ids


def test_an_item_can_be_handed_out_again_after_it_was_released_or_settled(ledger: Ledger) -> None:
    desk, watched = Desk.open(ledger), Watched(ledger)

    async def play(commit: GroupCommit) -> list[int]:
        fences = []
        for step in ("release", "settle", "release", "settle"):
            watched.fail_after = 1
            (one,) = await commit.claim(order(desk))
            fences.append(one.fence)
            watched.fail_after = 1
            if step == "release":
                await commit.release([one])
            else:
                await commit.settle(desk.settlement(one, NOT_SENT))
                desk.force_item(not_before_at=NOW)
        assert not commit._handed_out, "what is done with is forgotten"
        return fences

    assert write(watched, desk.worker, play) == [1, 2, 3, 4]


# -- a ledger that is away for a while ---------------------------------------------------------------------------------


@on_sqlite
def test_a_ledger_that_another_process_has_locked_is_waited_for(own_ledger: Ledger) -> None:
    """SQLite's own wait is cut short here; the writer's goes on."""
    patient = own_ledger
    hasty = Ledger(str(patient.url.database), folder=patient.folder, busy_timeout_s=0.01)
    desk, watched = Desk.open(patient), Watched(hasty)
    one = desk.settlement(desk.claim_one(), ANSWERED)
    # The same SQLite library: another one in this process would not see its locks.
    other = sqlite_module().connect(str(patient.url.database), isolation_level=None, check_same_thread=False)

    async def play(commit: GroupCommit) -> Settled:
        other.execute("BEGIN IMMEDIATE")
        future = commit.settle(one)
        assert await asyncio.to_thread(watched.has_failed.wait, PATIENCE_S)
        while commit.trouble is None:
            await asyncio.sleep(0)
        assert "database is locked" in commit.trouble.message
        assert not isinstance(commit.trouble, LedgerFull)
        assert not future.done()
        other.execute("COMMIT")
        settled = await future
        assert commit.trouble is None
        return settled

    try:
        assert write(watched, desk.worker, play) is Settled.MOVED
    finally:
        other.close()
        hasty.close()
    assert desk.state() == "completed"


@on_postgres
def test_a_connection_that_breaks_in_the_middle_is_made_anew(own_ledger: Ledger) -> None:
    ledger, desk = own_ledger, Desk.open(own_ledger, 2)
    held, pending = desk.claim_one(0), 1

    class Cut(Watched):
        cuts = 1

        @contextmanager
        def write(self) -> Iterator[Connection]:
            with super().write() as connection:
                yield connection
                if self.cuts:
                    self.cuts -= 1
                    mine = connection.execute(text("SELECT pg_backend_pid()")).scalar_one()
                    with ledger.read() as other:
                        other.execute(text(f"SELECT pg_terminate_backend({mine})"))

    cut = Cut(ledger)

    async def play(commit: GroupCommit) -> tuple[Any, ...]:
        return tuple(
            await asyncio.gather(commit.settle(desk.settlement(held, ANSWERED)), commit.claim(order(desk, pending)))
        )

    settled, claims = write(cut, desk.worker, play)
    assert cut.has_failed.is_set()
    assert (settled, len(claims)) == (Settled.MOVED, 1)
    assert desk.states() == ["completed", "running"]


def test_a_writer_that_is_stopped_while_the_ledger_refuses_says_so_to_all_who_wait(ledger: Ledger) -> None:
    desk, watched = Desk.open(ledger, 3), Watched(ledger)
    answered, back = desk.claim(0, 1)
    before = snapshot(ledger)
    watched.fail_before = 10**9

    async def play(commit: GroupCommit) -> list[Any]:
        waiting = [
            commit.settle(desk.settlement(answered, ANSWERED)),
            commit.release([back]),
            commit.claim(order(desk, 2)),
        ]
        assert await asyncio.to_thread(watched.has_failed.wait, PATIENCE_S)
        await commit.stop(within_s=0.1)
        return await asyncio.gather(*waiting, return_exceptions=True)

    done = write(watched, desk.worker, play)
    assert [str(error) for error in done] == ["the ledger is away"] * 3
    assert {type(error) for error in done} == {LedgerFault}
    assert snapshot(ledger) == before


def test_a_writer_that_is_stopped_writes_what_waits(ledger: Ledger) -> None:
    desk, watched = Desk.open(ledger, 2), Watched(ledger)
    first, second = desk.claim()

    async def play(commit: GroupCommit) -> list[Any]:
        watched.gate.clear()
        waiting = [commit.settle(desk.settlement(first, ANSWERED))]
        assert await asyncio.to_thread(watched.is_at_the_gate.wait, PATIENCE_S)
        waiting.append(commit.settle(desk.settlement(second, ANSWERED)))
        stopping = asyncio.ensure_future(commit.stop(within_s=0.0))
        await asyncio.sleep(0)
        watched.gate.set()
        await stopping
        return await asyncio.gather(*waiting)

    assert write(watched, desk.worker, play) == [Settled.MOVED] * 2


def test_a_writer_that_has_ended_takes_nothing_more(desk: Desk) -> None:
    one = desk.settlement(desk.claim_one(), ANSWERED)

    async def play(commit: GroupCommit) -> None:
        await commit.stop(within_s=1.0)
        await commit.stop(within_s=1.0)
        for step in (
            lambda: commit.settle(one),
            lambda: commit.claim(order(desk)),
            lambda: commit.release([]),
        ):
            with pytest.raises(LedgerFault, match="the ledger's writer has ended"):
                step()

    write(desk.ledger, desk.worker, play)
    assert desk.state() == "running"


# -- a full disk -------------------------------------------------------------------------------------------------------


def _grow(desk: Desk, claimed: Claim, size: int) -> Any:
    raw = b"x" * size
    return desk.settlement(claimed, Came(replace(ANSWERED.evidence, raw=raw), 300))


@on_sqlite
def test_a_full_database_is_reported_as_such_and_goes_on_when_there_is_room(own_ledger: Ledger) -> None:
    desk, watched, room = Desk.open(own_ledger, 2), Watched(own_ledger), {"pages": 0}
    first, second = desk.claim()

    @event.listens_for(own_ledger.engine, "checkout")
    def _limit(connection: Any, _record: object, _proxy: object) -> None:
        pages = connection.execute("PRAGMA page_count").fetchone()[0]
        connection.execute(f"PRAGMA max_page_count={room['pages'] or pages}")

    async def play(commit: GroupCommit) -> list[Settled]:
        future = commit.settle(_grow(desk, first, 1 << 20))
        assert await asyncio.to_thread(watched.has_failed.wait, PATIENCE_S)
        while commit.trouble is None:
            await asyncio.sleep(0)
        assert isinstance(commit.trouble, LedgerFull)
        assert (commit.trouble.kind, commit.trouble.exit_code) == ("disk_full", 5)
        assert "database or disk is full" in commit.trouble.message
        assert desk.counts() == {"running": 2}, "what is there can be read"
        room["pages"] = 10**9
        done = [await future, await commit.settle(desk.settlement(second, REFUSED))]
        assert commit.trouble is None
        return done

    assert write(watched, desk.worker, play) == [Settled.MOVED] * 2
    assert desk.counts() == {"completed": 1, "failed": 1}


def _meet_a_full_disk(path: str, said: Any) -> None:
    """Settle with a file-size limit in the way, then without."""
    ledger = Ledger(path, folder=Path(path).parent)
    desk, watched = Desk.open(ledger), Watched(ledger)
    one = _grow(desk, desk.claim_one(), 1 << 20)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 19, hard))

    async def play(commit: GroupCommit) -> tuple[str, str]:
        future = commit.settle(one)
        assert await asyncio.to_thread(watched.has_failed.wait, PATIENCE_S)
        while commit.trouble is None:
            await asyncio.sleep(0)
        kind = commit.trouble.kind
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        return kind, await future

    said.send([*write(watched, desk.worker, play), desk.state()])
    check_books(ledger)
    ledger.close()


def test_a_disk_that_takes_no_more_is_reported_as_full_and_goes_on_when_it_does(tmp_path: Path) -> None:
    """The limit on a file's size stands for the disk's end: SQLite sees a failing write."""
    said, says = forks.Pipe(duplex=False)
    child = forks.Process(target=_meet_a_full_disk, args=(str(tmp_path / "ledger.db"), says))
    child.start()
    says.close()
    try:
        assert said.poll(PATIENCE_S)
        assert said.recv() == ["disk_full", "moved", "completed"]
    finally:
        child.join(PATIENCE_S)
    assert child.exitcode == 0
