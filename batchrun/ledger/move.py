"""Moving a SQLite ledger to another database, with all that it holds, in the middle of its jobs.

There is never a moment at which both ends can be used. The target is made ready and is closed to everybody; the source
is sealed, durably; only then are rows copied, compared and the target opened, by one commit. A move that died before
the seal has left a source that works; after it, the same command finishes the move.
"""

import secrets
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import Connection, delete, exists, insert, or_, select, text, update
from sqlalchemy.engine import URL
from sqlalchemy.exc import IntegrityError

from batchrun.core.states import AttemptState, ItemState
from batchrun.errors import JobNotFound, LedgerFault, UsageFault
from batchrun.ledger.engines import parse_url, shown
from batchrun.ledger.liveness import holds_lock
from batchrun.ledger.schema import attempts, items, jobs, ledgers, workers
from batchrun.ledger.seal import Seal, read_seal
from batchrun.ledger.transfer import (
    TABLES,
    End,
    append,
    chunks,
    count,
    digest,
    find_unstorable,
    last_key,
    open_end,
    settle_down,
)


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a move is."""

    step: str  # ready, sealed, copying, comparing, opened, done
    rows: int = 0
    total: int = 0


@dataclass(frozen=True, slots=True)
class Moved:
    """What a move came to."""

    ledger_id: str
    source: str  # addresses without passwords
    target: str
    rows: dict[str, int]  # by table
    was_applied: bool  # False: it had been moved there before
    took_s: float


Watch = Callable[[Progress], object]
_OF_WORKERS = ("workers", "heartbeats", "leases")  # the tables that mere opening and working may have left rows in


def is_sealed(address: str) -> bool:
    """Say whether a move of the SQLite ledger at `address` has begun, so that only its end is left to do.

    Raises:
        JobNotFound: there is no ledger.
        UsageFault: it is not in SQLite.
        LedgerFault: it cannot be read.
    """
    with open_end(_movable(address)) as source, source.read() as connection:
        seal = read_seal(connection)
        return seal is not None and seal.moved_to is not None


def move(address: str, target: str, *, watch: Watch = lambda progress: None) -> Moved:
    """Move the SQLite ledger at `address` to `target`, or finish a move that has begun.

    Raises:
        JobNotFound: there is no ledger at `address`.
        UsageFault: one of the addresses is none, or both are one.
        LedgerFault: before the seal: a worker is at work, or the target is not fit, and the source works as before.
            After it: the databases cannot be used, or differ; the move is to be repeated.
    """
    began = time.monotonic()
    source_url, target_url = _movable(address), parse_url(target)
    _refuse_same(source_url, target_url)
    with open_end(source_url) as source, open_end(target_url) as goal:
        seal = _seal_of(source)
        was_moved = seal.moved_to is not None and seal.ended_at is not None
        if seal.moved_to is None:
            token = secrets.token_hex(8)
            _refuse_unfit(source, goal)
            _make_ready(source, goal, token)
            # crash point: move-ready
            watch(Progress("ready"))
            try:
                _seal(source, goal, token)
            except LedgerFault:
                _withdraw(goal, token)
                raise
        else:
            token = seal.token or ""
            _make_ready(source, goal, token, seal=seal)
        # crash point: move-sealed
        watch(Progress("sealed"))
        rows = _carry(source, goal, token, watch)
        # crash point: move-opened
        _end(source, token)
        # crash point: move-ended
        watch(Progress("done"))
        return Moved(seal.ledger_id, source.address, goal.address, rows, not was_moved, took_s=time.monotonic() - began)


# -- the two ends -----------------------------------------------------------------------------------------------------


def _movable(address: str) -> URL:
    url = parse_url(address)
    if url.get_backend_name() != "sqlite":
        raise UsageFault(
            f"ledger {shown(url)} is in Postgres already, which has means of its own to be moved (pg_dump)",
            hint="name a SQLite ledger with --db",
        )
    if not Path(str(url.database)).exists():
        raise JobNotFound(f"there is no ledger at {str(url.database)!r}: nothing to move", hint="--db names another")
    return url


def _refuse_same(source: URL, target: URL) -> None:
    is_file = target.get_backend_name() == "sqlite"
    if is_file and Path(str(source.database)).resolve() == Path(str(target.database)).resolve():
        raise UsageFault(f"ledger {shown(source)} is there already", hint="name another database with --to")


def _seal_of(source: End) -> Seal:
    with source.read() as connection:
        seal = read_seal(connection)
    if seal is None:
        raise LedgerFault(f"{source.where} is empty: nothing to move", hint="batchrun submit makes a ledger anywhere")
    if seal.is_arriving:
        raise LedgerFault(
            f"{source.where} is being filled by a move that is not finished",
            hint="finish that one first, from the ledger that it comes from",
        )
    return seal


def _refuse_unfit(source: End, goal: End) -> None:
    """Refuse what would stop the move after the seal, when there is no way back."""
    if not goal.is_postgres:
        return
    with goal.read() as connection:
        encoding = str(connection.execute(text("SELECT current_setting('server_encoding')")).scalar_one())
    if encoding != "UTF8":
        raise LedgerFault(
            f"{goal.where} keeps its texts in {encoding}, which cannot hold every answer",
            hint="createdb --encoding=UTF8 --template=template0 makes one that can",
        )
    with source.read() as connection:
        if place := find_unstorable(connection):
            raise LedgerFault(
                f"{source.where} has a NUL in {place}, which Postgres cannot keep", hint="name a SQLite file with --to"
            )


# -- the target is made ready, and is closed --------------------------------------------------------------------------


def _make_ready(source: End, goal: End, token: str, *, seal: Seal | None = None) -> None:
    """See to it that the target holds nothing but what this move has brought, and is closed until its end.

    Args:
        seal: the source's, where the move has begun before.

    Raises:
        LedgerFault: the target is another ledger, or holds one.
    """
    with source.read() as connection:
        row = connection.execute(select(ledgers)).one()
    with goal.write() as connection:
        there = read_seal(connection, lock=True)
        if there is not None and there.token == token and there.moved_to is None:
            return  # what this move has brought is there
        is_blank = there is not None and _is_blank(connection, there, row.ledger_id)
        if seal is not None and not is_blank and (there is not None or seal.moved_to != goal.address):
            raise _elsewhere(source, goal, seal)
        if seal is not None and seal.ended_at is not None:
            raise _elsewhere(source, goal, seal)
        if there is not None:
            if not is_blank:
                _refuse_used(connection, goal, there, row.ledger_id)
            for table in reversed(TABLES):
                connection.execute(delete(table))
            connection.execute(delete(ledgers))
        values = {**row._mapping, "moved_to": None, "move_token": token, "move_began_at": time.time()}
        try:
            connection.execute(insert(ledgers).values(values | {"move_ended_at": None}))
        except IntegrityError:
            raise LedgerFault(f"{goal.where} was opened by another process just now", hint="try again") from None


def _is_blank(connection: Connection, there: Seal, ledger_id: str) -> bool:
    """Say whether a target was made ready for this very ledger, by a move that brought nothing yet."""
    is_ready = there.is_arriving and there.ledger_id == ledger_id
    return is_ready and not any(count(connection, table) for table in TABLES)


def _elsewhere(source: End, goal: End, seal: Seal) -> LedgerFault:
    if seal.ended_at is not None:
        return LedgerFault(
            f"{source.where} was moved to {seal.moved_to} before, and {goal.where} does not hold it",
            hint="where that one is lost, a backup of it can be restored; this one is behind, and stays closed",
        )
    return LedgerFault(
        f"{source.where} is being moved to {seal.moved_to}, and {goal.where} holds nothing of that move",
        hint=f"batchrun db move --to {seal.moved_to} finishes it",
    )


def _refuse_used(connection: Connection, goal: End, there: Seal, ledger_id: str) -> None:
    """Refuse a target that is a ledger in use; one that was only ever opened may be had."""
    hint = "name an empty database with --to"
    if there.moved_to is not None:
        raise LedgerFault(f"{goal.where} is a ledger that was moved to {there.moved_to}", hint=hint)
    if there.is_arriving:
        raise LedgerFault(f"{goal.where} is being filled by another move", hint=hint)
    if any(count(connection, table) for table in TABLES if table.name not in _OF_WORKERS):
        what = "another copy of this very ledger" if there.ledger_id == ledger_id else "another ledger"
        raise LedgerFault(f"{goal.where} holds {what}, with jobs in it", hint=hint)
    present = connection.execute(select(workers).where(workers.c.ended_at.is_(None))).all()
    for one in present:
        if holds_lock(Path(one.folder), one.incarnation) is not False:
            raise LedgerFault(
                f"a worker has {goal.where} open: {one.name} (pid {one.pid} on {one.host})",
                hint="end it (SIGTERM, or `make down`), then move; start it again after that",
            )


# -- the source is sealed ---------------------------------------------------------------------------------------------


def _seal(source: End, goal: End, token: str) -> None:
    """Close the source for good, in a transaction in which nobody is at work on it."""
    with source.write() as connection:
        refuse_busy(connection, source.where)
        values = {"moved_to": goal.address, "move_token": token, "move_began_at": time.time(), "move_ended_at": None}
        if not connection.execute(update(ledgers).where(ledgers.c.moved_to.is_(None)).values(values)).rowcount:
            raise LedgerFault(f"another process moves {source.where} just now", hint="wait for its end")


def _withdraw(goal: End, token: str) -> None:
    """Leave a target as it was found, where the source could not be sealed."""
    with goal.write() as connection:
        connection.execute(delete(ledgers).where(ledgers.c.move_token == token))


def refuse_busy(connection: Connection, where: str) -> None:
    """Refuse a ledger on which somebody is at work, or whose dead have not been swept up after.

    Raises:
        LedgerFault: naming them.
    """
    is_open = exists().where(attempts.c.job_id.in_(select(jobs.c.id)), attempts.c.state == AttemptState.INTENT)
    at_work = connection.execute(select(workers).where(workers.c.ended_at.is_(None)).order_by(workers.c.id)).all()
    if at_work:
        names = ", ".join(f"{one.name} (pid {one.pid} on {one.host})" for one in at_work[:5])
        raise LedgerFault(
            f"{where} is at work: {names}", hint="stop it (Ctrl-C or SIGTERM; what is in flight finishes), then move"
        )
    runs = exists().where(items.c.is_current, items.c.job_id.in_(select(jobs.c.id)), items.c.state == ItemState.RUNNING)
    if connection.execute(select(or_(is_open, runs))).scalar():
        raise LedgerFault(f"{where} has requests whose fate is open", hint="batchrun resume JOB, then move")


# -- rows are copied and compared, and the target opened --------------------------------------------------------------


def _carry(source: End, goal: End, token: str, watch: Watch) -> dict[str, int]:
    """Copy what is missing, compare all of it, and open the target; return how many rows each table has."""
    with source.read() as connection:
        expected = {table.name: count(connection, table) for table in TABLES}
    with goal.read() as connection:
        there = read_seal(connection)
    if there is not None and not there.is_arriving:
        return expected  # opened before, and in use since: nothing is compared any more
    total = sum(expected.values())
    _copy(source, goal, token, total, watch)
    settle_down(goal)
    _compare(source, goal, total, watch)
    # crash point: move-compared
    with source.read() as connection:
        # It was made ready before the seal: ids may have been given out in between, and must not be given out again.
        identity = connection.execute(select(ledgers.c.ledger_id, ledgers.c.next_item_id, ledgers.c.created_at)).one()
    with goal.write() as connection:
        _refuse_replaced(connection, goal, token)
        connection.execute(update(ledgers).values({**identity._mapping, "move_ended_at": time.time()}))
    watch(Progress("opened"))
    return expected


def _copy(source: End, goal: End, token: str, total: int, watch: Watch) -> None:
    done: Counter[str] = Counter()
    for table in TABLES:
        with goal.read() as connection:
            after, done[table.name] = last_key(connection, table), count(connection, table)
        for rows in chunks(source, table, after=after):
            with goal.write() as connection:
                _refuse_replaced(connection, goal, token)
                if not append(connection, table, rows, after=after):
                    raise LedgerFault(f"another process fills {goal.where} just now", hint="wait for its end")
                after = last_key(connection, table)
            # crash point: move-chunk
            done[table.name] += len(rows)
            watch(Progress("copying", done.total(), total))


def _refuse_replaced(connection: Connection, goal: End, token: str) -> None:
    """Go on only while the target is this move's, and closed; hold it so until the transaction ends."""
    there = read_seal(connection, lock=True)
    if there is None or there.token != token or not there.is_arriving:
        raise LedgerFault(
            f"{goal.where} is no longer being filled by this move: another one has taken it, or finished it",
            hint="batchrun db check looks at each of the two with --db",
        )


def _compare(source: End, goal: End, total: int, watch: Watch) -> None:
    """Read both ends again, row by row.

    Raises:
        LedgerFault: they differ. The target stays closed.
    """
    seen = 0

    def counted(rows: int) -> None:
        nonlocal seen
        seen += rows
        watch(Progress("comparing", seen, total))

    for table in TABLES:
        ours = digest(source, table, counted=counted)
        theirs = digest(goal, table, counted=lambda rows: None)
        if ours != theirs:
            raise LedgerFault(
                f"{goal.where} has other {table.name} than {source.where} ({theirs.rows:,} rows, {ours.rows:,} there): "
                "something else has written to it, or one of the disks is faulty; it stays closed",
                hint="empty the database, then the same command fills it again",
            )


def _end(source: End, token: str) -> None:
    with source.write() as connection:
        mine = (ledgers.c.move_token == token, ledgers.c.move_ended_at.is_(None))
        connection.execute(update(ledgers).where(*mine).values(move_ended_at=time.time()))
