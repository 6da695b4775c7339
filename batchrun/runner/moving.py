"""Before a ledger moves: nobody may be at work on it, and what the dead have left is taken into it."""

import time
from collections.abc import Callable

from batchrun.errors import LedgerFault
from batchrun.ledger.ledger import Ledger
from batchrun.ledger.liveness import Observer, holds_lock
from batchrun.ledger.sweeps import Incarnation, incarnations
from batchrun.runner.gear import Gear
from batchrun.runner.sweep import sweep

NOBODY = 0  # no worker has this id


def clear_up(ledger: Ledger, gear: Gear, *, say: Callable[[str], None]) -> None:
    """Sweep up after the dead of this ledger until no worker is left.

    Whether a process of another host is dead takes a while to show.

    Raises:
        LedgerFault: a worker lives, may live, or has left answers that cannot be read here.
    """
    observer = Observer(ledger, dead_after_s=gear.dead_after_s)
    deadline = time.monotonic() + 1.5 * gear.dead_after_s
    is_told = False
    while True:
        sweep(ledger, observer, except_worker=NOBODY, rules_of=gear.rules_of)
        with ledger.read() as connection:
            left = incarnations(connection, except_worker=NOBODY)
        if not left:
            return
        is_locked = [holds_lock(one.folder, one.incarnation) for one in left]
        if any(is_locked):
            raise LedgerFault(
                f"{ledger.where} is at work: {_named(left)}",
                hint="stop it (Ctrl-C or SIGTERM; what is in flight finishes), then move",
            )
        if None not in is_locked:
            raise LedgerFault(
                f"{_named(left)} died and left answers in {str(left[0].folder)!r}, which cannot be read without its "
                "endpoint's key",
                hint="set the key (OPENAI_API_KEY, or what the job's api_key_env names), then move",
            )
        if time.monotonic() > deadline:
            raise LedgerFault(f"{ledger.where} may be at work: {_named(left)}", hint="stop it there, then move")
        if not is_told:
            is_told = True
            say(f"waiting to see whether {_named(left)} still lives")
        time.sleep(gear.dead_after_s / 8)  # an observer counts dense readings only


def _named(some: list[Incarnation]) -> str:
    return ", ".join(f"{one.name} (pid {one.pid} on {one.host})" for one in some[:5])
