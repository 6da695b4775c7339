"""A ledger moves whole, from wherever its jobs are; and however a move dies, there are never two open ledgers."""

import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, Engine, event, func, select, update

from batchrun.core.measuring.trace import Trace
from batchrun.core.states import ItemState
from batchrun.errors import JobNotFound, LedgerFault, LedgerMoved, UsageFault
from batchrun.ledger import transfer
from batchrun.ledger.cache import Accounts, Asking, copy_answers, look_up
from batchrun.ledger.changes import stage
from batchrun.ledger.claims import claim
from batchrun.ledger.engines import open_engine, parse_url
from batchrun.ledger.inspection import inspect_ledger, upgrade_ledger
from batchrun.ledger.ledger import Ledger
from batchrun.ledger.liveness import enter
from batchrun.ledger.move import Moved, Progress, is_sealed, move
from batchrun.ledger.schema import answers, events, items, jobs, ledgers, metadata, requests, workers
from tests.ledger.desk import (
    ANSWERED,
    ENDPOINT,
    NOW,
    REFUSED,
    UNKNOWN,
    UNUSABLE_PAID,
    Came,
    Desk,
    came,
    check_books,
    forks,
    line,
    on_postgres,
    register,
    snapshot,
)

BYTES = bytes(range(256)) * 3
TOKEN_COLUMNS = ("moved_to", "move_token", "move_began_at", "move_ended_at")


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A SQLite ledger with jobs in the middle of everything, and nobody at work."""
    path = tmp_path_factory.mktemp("template") / "ledger.db"
    ledger = Ledger(str(path), folder=path.parent)
    desk = Desk.open(ledger, [line(number, is_rejected=number == 9) for number in range(14)], trial=[0, 1])
    odd = came(ANSWERED.outcome, None, ANSWERED.evidence.charge, cost_pusd=2**53 + 1, raw=BYTES)
    for number, what in enumerate((_traced(ANSWERED), odd, REFUSED, UNKNOWN, UNKNOWN, UNUSABLE_PAID)):
        desk.settle(desk.claim_one(number), what)
    desk.consent(desk.shown(ItemState.IN_DOUBT, 3))
    desk.settle(desk.claim_one(3), ANSWERED)
    desk.release(*desk.claim(6))
    desk.force_item(7, message="ünïcode \U0001f40d \u2028 and all", throttled_s=0.1 + 0.2, not_before_at=NOW + 1 / 3)
    half = register(ledger, 5, holder=desk.worker)  # its registration has died
    stage(ledger, half.id, [line(number) for number in range(4)])
    cancelled = Desk.open(ledger, 3, max_cost_pusd=2**60)
    cancelled.settle(cancelled.claim_one(0), ANSWERED)
    cancelled.cancel()
    cancelled.end()
    _share_an_answer(ledger)
    with ledger.write() as connection:
        connection.execute(update(workers).values(ended_at=NOW + 5))
    check_books(ledger)
    ledger.close()
    return path


def _traced(came: Came) -> Came:
    """The same, of a measured job: when its pieces came is known."""
    timing = came.evidence.timing
    assert timing is not None
    trace = Trace(1.0, 0.1, 0.2, (0.05, 0.05))
    return replace(came, evidence=replace(came.evidence, timing=replace(timing, trace=trace)))


def _share_an_answer(ledger: Ledger) -> None:
    """Leave a job with a cache: one item has asked, the other has its answer."""
    desk = Desk.open(ledger, 2)
    for number in range(2):
        desk.force_item(number, request_digest=b"the same request")
    ours = Accounts.of([(ENDPOINT, "ours")])
    with ledger.write() as connection:
        where = {"job_id": desk.job_id, "worker_id": desk.worker, "endpoint": ENDPOINT, "now": NOW}
        (claimed,) = claim(connection, item_ids=desk.item_ids, asking=Asking(ours), **where)
    desk.settle(claimed, ANSWERED)
    with ledger.write() as connection:
        found = look_up(connection, desk.item_ids, ours)
        assert copy_answers(connection, desk.job_id, found, worker_id=desk.worker, now=NOW) == desk.item_ids[1:]


@pytest.fixture
def make_source(template: Path, tmp_path: Path) -> Callable[[], str]:
    """Return a function that makes one more copy of that ledger and returns its address."""
    made: list[Path] = []

    def make() -> str:
        folder = tmp_path / f"source-{len(made)}"
        shutil.copytree(template.parent, folder)
        made.append(folder)
        return str(folder / template.name)

    return make


@pytest.fixture
def source(make_source: Callable[[], str]) -> str:
    """The address of such a ledger."""
    return make_source()


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many steps for few rows."""
    monkeypatch.setattr(transfer, "CHUNK_ROWS", 10)
    monkeypatch.setattr(transfer, "CHUNK_BYTES", 900)


def contents(address: str) -> dict[str, list[Any]]:
    """Every row of an open ledger, but for what is said of moves."""
    ledger = Ledger(address, folder=Path("/nowhere"))
    try:
        rows = snapshot(ledger, without=("ledgers",))
        with ledger.read() as connection:
            known = [column for column in ledgers.c if column.name not in TOKEN_COLUMNS]
            rows["ledgers"] = [tuple(connection.execute(select(*known)).one())]
        return rows
    finally:
        ledger.close()


def is_open(address: str) -> bool:
    """Say whether commands would use a ledger at this address; one that is not there is made by no test here."""
    try:
        Ledger(address, folder=Path("/nowhere")).close()
    except LedgerMoved:
        return False
    return True


def assert_moved(moved: Moved, source: str, target: str, before: dict[str, list[Any]]) -> None:
    assert contents(target) == before
    assert {table: len(rows) for table, rows in before.items() if table != "ledgers"} == moved.rows
    assert is_sealed(source)
    assert not is_open(source)


# -- what arrives ------------------------------------------------------------------------------------------------------


def test_the_ledger_that_is_moved_here_has_rows_in_every_table(source: str) -> None:
    assert {name for name, rows in contents(source).items() if not rows} == {"leases"}  # of the living alone


def test_everything_arrives_as_it_was_in_the_middle_of_its_jobs(source: str, address: str, small_chunks: None) -> None:
    before = contents(source)
    steps: list[Progress] = []
    moved = move(source, address, watch=steps.append)
    assert moved.was_applied
    assert_moved(moved, source, address, before)
    copied = [step.rows for step in steps if step.step == "copying"]
    assert len(copied) >= 10
    assert copied[-1] == steps[-3].rows == sum(moved.rows.values()) == steps[-3].total
    assert [step.step for step in steps if step.step not in ("copying", "comparing")] == [
        "ready",
        "sealed",
        "opened",
        "done",
    ]


def test_a_moved_ledger_goes_on_with_new_ids_and_the_old_attempt_ids(source: str, address: str) -> None:
    old = Ledger(source, folder=Path("/nowhere"))
    with old.read() as connection:
        last_item = connection.execute(select(func.max(items.c.id))).scalar_one()
        key = connection.execute(select(answers.c.key).limit(1)).scalar_one()
        last = {
            table: connection.execute(select(func.max(table.c.id))).scalar_one() for table in (jobs, events, workers)
        }
    attempt_id = old.attempt_id(key)
    old.close()
    move(source, address)
    ledger = Ledger(address, folder=Path("/nowhere"))
    assert ledger.attempt_id(key) == attempt_id
    desk = Desk.open(ledger, 2)
    assert desk.item_ids == [last_item + 1, last_item + 2]
    assert desk.job_id > last[jobs]
    assert desk.worker > last[workers]
    assert desk.settle(desk.claim_one(0), ANSWERED).value == "moved"
    with ledger.read() as connection:
        assert connection.execute(select(func.max(events.c.id))).scalar_one() > last[events]
        raws = set(connection.execute(select(answers.c.raw)).scalars())
    assert BYTES in raws
    check_books(ledger)
    ledger.close()


def test_ids_that_were_given_out_while_the_target_was_made_ready_are_not_given_out_again(
    source: str, address: str
) -> None:
    def register_one_more(progress: Progress) -> None:
        if progress.step == "ready":
            ledger = Ledger(source, folder=Path("/nowhere"))
            desk = Desk.open(ledger, 3)
            with ledger.write() as connection:
                connection.execute(update(workers).where(workers.c.id == desk.worker).values(ended_at=NOW))
            ledger.close()

    move(source, address, watch=register_one_more)
    ledger = Ledger(address, folder=Path("/nowhere"))
    before = {row[0] for row in contents(address)["items"]}
    assert not before & set(Desk.open(ledger, 3).item_ids)
    ledger.close()


def test_a_large_request_makes_a_chunk_of_its_own(tmp_path: Path, small_chunks: None) -> None:
    path = tmp_path / "ledger.db"
    ledger = Ledger(str(path), folder=tmp_path)
    desk = Desk.open(ledger, [line(number, text="x" * (2_000 if number == 3 else 250)) for number in range(8)])
    with ledger.write() as connection:
        connection.execute(update(workers).values(ended_at=NOW))
    sizes = [len(rows) for rows in transfer.chunks(transfer.End(ledger.url, ledger.engine), requests)]
    assert sizes == [3, 1, 3, 1]
    assert sum(sizes) == len(desk.item_ids)
    ledger.close()


# -- a failure at every step -------------------------------------------------------------------------------------------


class Crash(Exception):
    """Something that a move does not know."""


def crash_at(number: int) -> Callable[[Progress], None]:
    left = [number]

    def watch(progress: Progress) -> None:
        left[0] -= 1
        if not left[0]:
            raise Crash(progress.step)

    return watch


def test_a_move_that_fails_after_any_step_is_finished_by_the_same_command(
    make_source: Callable[[], str], make_address: Callable[[], str], small_chunks: None
) -> None:
    before, steps = contents(make_source()), []
    move(make_source(), make_address(), watch=lambda progress: steps.append(progress.step))
    assert len(steps) > 20
    assert set(steps) == {"ready", "sealed", "copying", "comparing", "opened", "done"}
    # The first, the second and the last of each kind; between them lie more chunks of the same.
    numbers = {kind: [number for number, step in enumerate(steps, start=1) if step == kind] for kind in steps}
    for number in sorted({number for found in numbers.values() for number in (*found[:2], found[-1])}):
        source, target = make_source(), make_address()
        with pytest.raises(Crash) as crash:
            move(source, target, watch=crash_at(number))
        step = str(crash.value)
        assert step == steps[number - 1]
        assert [is_open(source), is_open(target)] == [step == "ready", step in ("opened", "done")], step
        moved = move(source, target)
        assert moved.was_applied == (step != "done"), step
        assert_moved(moved, source, target, before)


def _move_and_die(source: str, target: str, commit_no: int) -> None:
    """Move a ledger, and die by kill -9 before a commit, of whichever end."""
    transfer.CHUNK_ROWS = 20
    left = [commit_no]

    @event.listens_for(Engine, "commit")
    def _count(connection: Connection) -> None:
        left[0] -= bool(connection.get_execution_options().get("is_write"))
        if not left[0]:
            os.kill(os.getpid(), 9)

    move(source, target)


@pytest.mark.process
@pytest.mark.timeout(240)
def test_a_move_that_is_killed_before_any_commit_is_finished_by_the_same_command(
    make_source: Callable[[], str], make_address: Callable[[], str]
) -> None:
    before, commit_no, was_sealed = contents(make_source()), 0, set()
    while True:
        commit_no += 1 if commit_no < 6 else 4
        source, target = make_source(), make_address()
        child = forks.Process(target=_move_and_die, args=(source, target, commit_no))
        child.start()
        child.join(60)
        if child.exitcode == 0:
            break
        assert child.exitcode == -9
        was_sealed.add(is_sealed(source))
        assert is_open(source) is not is_sealed(source)
        assert_moved(move(source, target), source, target, before)
    assert was_sealed == {False, True}


def test_a_move_that_is_finished_is_not_made_again(source: str, address: str) -> None:
    move(source, address)
    desk = Desk.open(ledger := Ledger(address, folder=Path("/nowhere")), 1)
    desk.settle(desk.claim_one(), ANSWERED)
    after = contents(address)
    assert not move(source, address).was_applied
    assert contents(address) == after
    ledger.close()


def test_a_target_that_was_changed_meanwhile_stays_closed(source: str, address: str) -> None:
    def spoil(progress: Progress) -> None:
        if progress.step == "copying" and progress.rows == progress.total:
            with transfer.open_end(parse_url(address)) as end, end.write() as connection:
                connection.execute(update(answers).values(raw=b"another answer"))

    with pytest.raises(LedgerFault, match="has other answers than"):
        move(source, address, watch=spoil)
    assert not is_open(source)
    assert not is_open(address)


# -- who is refused ----------------------------------------------------------------------------------------------------


def test_a_moved_ledger_says_where_it_went(source: str, address: str) -> None:
    waiting = Ledger(source, folder=Path("/nowhere"))  # a process that had it open all the time
    move(source, address)
    for look in (lambda: Ledger(source, folder=Path("/nowhere")), lambda: waiting.read().__enter__()):
        with pytest.raises(LedgerMoved, match=r"was moved to .* on 20.*nothing runs here any more") as refused:
            look()
        assert refused.value.hint is not None
        assert refused.value.hint.startswith("export BATCHRUN_DB=")
        assert ":secret" not in refused.value.message + refused.value.hint
    with pytest.raises(LedgerMoved), waiting.write():
        pass
    with pytest.raises(LedgerMoved):
        enter(waiting, name="late", now=NOW)
    waiting.close()
    found = inspect_ledger(source)
    assert found.is_current
    assert not found.is_usable
    assert "was moved to" in str(found.closed)


def test_a_ledger_on_its_way_is_closed_at_both_ends(source: str, address: str) -> None:
    with pytest.raises(Crash):
        move(source, address, watch=crash_at(4))
    with pytest.raises(LedgerMoved, match=r"is being moved to .* not finished"):
        Ledger(source, folder=Path("/nowhere"))
    with pytest.raises(LedgerMoved, match="being filled by a move that is not finished"):
        Ledger(address, folder=Path("/nowhere"))
    assert "not finished" in str(inspect_ledger(address).closed)


def test_a_ledger_with_a_worker_is_not_sealed_and_the_target_left_as_it_was(source: str, address: str) -> None:
    ledger = Ledger(source, folder=Path("/nowhere"))
    desk = Desk.open(ledger, 1)
    with pytest.raises(LedgerFault, match=r"is at work: worker-\d+ \(pid 1 on here\)"):
        move(source, address)
    with ledger.write() as connection:
        claimed = desk.item_ids[0]
        connection.execute(update(items).where(items.c.id == claimed).values(state="running"))
        connection.execute(update(workers).values(ended_at=NOW))
    with pytest.raises(LedgerFault, match="requests whose fate is open"):
        move(source, address)
    assert is_open(source)
    with transfer.open_end(parse_url(address)) as end, end.read() as connection:
        assert connection.execute(select(ledgers)).all() == []
    ledger.close()


def test_another_ledger_is_refused_before_the_seal(source: str, address: str) -> None:
    Desk.open(other := Ledger(address, folder=Path("/nowhere")), 1)
    before = contents(address)
    with pytest.raises(LedgerFault, match="holds another ledger, with jobs in it"):
        move(source, address)
    assert is_open(source)
    assert contents(address) == before
    other.close()


def test_a_database_with_other_tables_is_refused_before_the_seal(source: str, address: str) -> None:
    url = parse_url(address)
    if url.get_backend_name() == "sqlite":
        Path(str(url.database)).parent.mkdir(parents=True)
    engine = open_engine(url)
    with engine.begin() as connection:
        connection.exec_driver_sql("CREATE TABLE recipes (id INTEGER)")
    engine.dispose()
    with pytest.raises(LedgerFault, match="holds tables, but no batchrun ledger"):
        move(source, address)
    assert is_open(source)


def test_a_ledger_that_was_only_opened_may_be_moved_into_and_its_openers_notice(
    source: str, address: str, tmp_path: Path
) -> None:
    before = contents(source)
    opener = Ledger(address, folder=tmp_path)
    worker = enter(opener, name="early", now=NOW)
    with pytest.raises(LedgerFault, match=rf"a worker has .* open: early \(pid {os.getpid()} on "):
        move(source, address)
    assert is_open(source)
    worker.leave(opener, now=NOW)
    assert_moved(move(source, address), source, address, before)
    with pytest.raises(LedgerFault, match="has become another ledger"):
        enter(opener, name="late", now=NOW)
    assert not list((opener.folder / "workers").iterdir())
    opener.close()


def test_tables_without_a_ledger_may_be_moved_into(source: str, address: str) -> None:
    before = contents(source)
    upgrade_ledger(address)
    assert_moved(move(source, address), source, address, before)


def test_a_move_goes_to_one_place_only(source: str, make_address: Callable[[], str]) -> None:
    first, second = make_address(), make_address()
    with pytest.raises(Crash):
        move(source, first, watch=crash_at(2))
    with pytest.raises(LedgerFault, match=r"is being moved to .* holds nothing of that move"):
        move(source, second)
    move(source, first)
    with pytest.raises(LedgerFault, match=r"was moved to .* before"):
        move(source, second)
    assert is_open(first)
    with transfer.open_end(parse_url(second)) as end, end.read() as connection:
        assert connection.execute(select(ledgers)).all() == []


def test_of_two_copies_only_one_arrives(make_source: Callable[[], str], address: str) -> None:
    one, other = make_source(), make_source()
    with pytest.raises(Crash):
        move(one, address, watch=crash_at(3))
    with pytest.raises(LedgerFault, match="being filled by another move"):
        move(other, address)
    move(one, address)
    with pytest.raises(LedgerFault, match="holds another copy of this very ledger"):
        move(other, address)
    assert is_open(other)


def test_of_two_moves_at_once_one_seals_and_the_other_leaves_it_alone(source: str, address: str) -> None:
    before = contents(source)

    def race(progress: Progress) -> None:
        if progress.step == "ready":
            with pytest.raises(Crash):
                move(source, address, watch=crash_at(2))  # it takes the target, and seals

    with pytest.raises(LedgerFault, match="another process moves"):
        move(source, address, watch=race)
    assert_moved(move(source, address), source, address, before)


def test_a_target_that_was_emptied_in_the_middle_is_filled_again(source: str, address: str) -> None:
    before = contents(source)
    with pytest.raises(Crash):
        move(source, address, watch=crash_at(6))
    with transfer.open_end(parse_url(address)) as end, end.write() as connection:
        for table in reversed(metadata.sorted_tables):
            connection.execute(table.delete())
    assert_moved(move(source, address), source, address, before)
    with transfer.open_end(parse_url(address)) as end, end.write() as connection:
        for table in reversed(metadata.sorted_tables):
            connection.execute(table.delete())
    # It was finished, and used perhaps: what is here is behind, and must not come back to life.
    with pytest.raises(LedgerFault, match=r"was moved to .* before"):
        move(source, address)


def test_what_is_no_ledger_to_move_is_refused_in_words(source: str, tmp_path: Path) -> None:
    with pytest.raises(JobNotFound, match="nothing to move"):
        move(str(tmp_path / "none.db"), str(tmp_path / "new.db"))
    with pytest.raises(UsageFault, match="is there already"):
        move(source, f"sqlite:///{source}")
    with pytest.raises(UsageFault, match="in Postgres already"):
        move("postgresql://u@127.0.0.1:1/x", str(tmp_path / "new.db"))
    with pytest.raises(UsageFault, match="cannot be kept in 'mysql'"):
        move(source, "mysql://u@127.0.0.1/x")
    with pytest.raises(LedgerFault, match="cannot be used"):
        move(source, "postgresql://u:secret@127.0.0.1:1/x")
    assert is_open(source)


@on_postgres
def test_a_text_that_postgres_cannot_keep_is_found_before_the_seal(source: str, address: str) -> None:
    ledger = Ledger(source, folder=Path("/nowhere"))
    with ledger.write() as connection:
        connection.execute(update(items).where(items.c.line_no == 5).values(cause="a\0b"))
    ledger.close()
    with pytest.raises(LedgerFault, match=r"has a NUL in items\.cause"):
        move(source, address)
    assert is_open(source)
