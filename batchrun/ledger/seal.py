"""Whether a ledger is closed: it has moved to another database, or is still on its way here. Its one row says so."""

from dataclasses import dataclass
from datetime import UTC, datetime

from sqlalchemy import Connection, select

from batchrun.errors import LedgerFault, LedgerMoved
from batchrun.ledger.schema import ledgers

# For every transaction on a SQLite ledger; whoever has had it open since before the move must stop as well.
_CLOSED = "SELECT 1 FROM ledgers WHERE moved_to IS NOT NULL OR move_token IS NOT NULL AND move_ended_at IS NULL"


@dataclass(frozen=True, slots=True)
class Seal:
    """What a ledger's row says of its identity and of its last move."""

    ledger_id: str
    moved_to: str | None
    token: str | None
    began_at: float | None
    ended_at: float | None

    @property
    def is_arriving(self) -> bool:
        """True where a move to here is not finished."""
        return self.moved_to is None and self.token is not None and self.ended_at is None

    @property
    def is_closed(self) -> bool:
        return self.moved_to is not None or self.is_arriving


def read_seal(connection: Connection, *, lock: bool = False) -> Seal | None:
    """Return what the ledger's row says; None where there is no row yet.

    Args:
        lock: nobody else may change it, or enter as a worker, until the transaction ends.
    """
    query = select(
        ledgers.c.ledger_id, ledgers.c.moved_to, ledgers.c.move_token, ledgers.c.move_began_at, ledgers.c.move_ended_at
    )
    row = connection.execute(query.with_for_update() if lock else query).one_or_none()
    return None if row is None else Seal(*row)


def refuse_closed(seal: Seal, where: str) -> None:
    """Refuse a closed ledger.

    Raises:
        LedgerMoved: it is; the words say where its jobs are now, or how the move is finished.
    """
    if seal.is_arriving:
        raise LedgerMoved(
            f"{where} is being filled by a move that is not finished: nothing runs here before it is",
            hint="finish it from the old ledger: batchrun --db OLD db move --to NEW",
        )
    if seal.moved_to is None:
        return
    if seal.ended_at is None:
        raise LedgerMoved(
            f"{where} is being moved to {seal.moved_to}, and the move is not finished: nothing runs here any more",
            hint=f"batchrun db move --to {seal.moved_to}{_password(seal)} finishes it",
        )
    when = datetime.fromtimestamp(seal.ended_at, UTC).strftime("on %Y-%m-%d at %H:%M:%S UTC")
    raise LedgerMoved(
        f"{where} was moved to {seal.moved_to} {when}: nothing runs here any more",
        hint=f"export BATCHRUN_DB={seal.moved_to}{_password(seal)}",
    )


def _password(seal: Seal) -> str:
    """Remind of the password that an address is shown without."""
    return " (with its password)" if "***" in (seal.moved_to or "") else ""


def closed_why(connection: Connection, where: str) -> str | None:
    """Say in words why nothing runs on a ledger; None where it is open, or not made yet."""
    seal = read_seal(connection)
    try:
        if seal is not None:
            refuse_closed(seal, where)
    except LedgerMoved as closed:
        return closed.message
    return None


def refuse_if_closed(connection: Connection, where: str) -> None:
    """The same within a transaction on a SQLite ledger; what has not changed costs a few microseconds."""
    if connection.exec_driver_sql(_CLOSED).first() is not None and (seal := read_seal(connection)) is not None:
        refuse_closed(seal, where)


def stay_the_same(connection: Connection, ledger_id: str, where: str) -> None:
    """Keep the ledger what it was when it was opened until the transaction ends: an unused one may be moved into.

    Raises:
        LedgerFault: it has become another one in the meantime.
    """
    query = select(ledgers.c.ledger_id).with_for_update(read=True, key_share=True)
    if connection.execute(query).scalar() != ledger_id:
        raise LedgerFault(
            f"{where} has become another ledger since this process opened it: one was moved here",
            hint="start the command again",
        )
