"""`batchrun` with a ledger that does not wait for its disk: for the price of durable writes, and nothing else."""

from typing import Any

from batchrun.__main__ import main
from batchrun.ledger import engines

_set_pragmas = engines._set_pragmas


def _set_and_let_go(connection: Any, mode: str, patience_s: float) -> None:
    _set_pragmas(connection, mode, patience_s)
    connection.execute("PRAGMA synchronous=OFF")


if __name__ == "__main__":
    engines._set_pragmas = _set_and_let_go
    main()
