"""The processes that work on a ledger: which are alive, and do they all run one release?"""

from collections.abc import Sequence

from batchrun import __version__
from batchrun.errors import BatchrunError
from batchrun.ledger.inspection import missing_ledger
from batchrun.ledger.sight import Process, watch_processes
from batchrun.runner.doctor.finding import Check, Notes

WATCH_S = 2.5  # longer than a heartbeat, and within a check's limit
MOST_NAMED = 4
MEND = "mend the ledger first"


def workers_check(address: str, *, has_broker: bool) -> Check:
    """Return the look at the processes that the ledger knows."""

    def look(notes: Notes) -> None:
        try:
            seen = [] if missing_ledger(address) else watch_processes(address, watch_s=WATCH_S)
        except (BatchrunError, OSError):
            notes.warn("online", "not known: the ledger knows the workers, and cannot be read", MEND)
            return
        alive = [one for one in seen if one.is_alive]
        _note_alive(notes, alive, has_broker=has_broker)
        _note_others(notes, [one for one in alive if one.version != __version__])
        _note_dead(notes, [one for one in seen if one.is_alive is False])
        _note_silent(notes, [one for one in seen if one.is_alive is None])

    return Check("workers", None, look, silence=MEND)


def _note_alive(notes: Notes, alive: Sequence[Process], *, has_broker: bool) -> None:
    if alive:
        in_flight = sum(one.in_flight for one in alive)
        notes.ok("online", f"{len(alive)}, with {in_flight} requests in flight: {_named(alive)}")
    elif has_broker:
        notes.warn("online", "none, so nothing works on what is submitted", "batchrun worker -c 32")
    else:
        notes.ok("online", "none; without a broker a job runs in the process that submits it")


def _note_others(notes: Notes, others: Sequence[Process]) -> None:
    for one in others[:MOST_NAMED]:
        said = f"{_name(one)} runs batchrun {one.version}, this is {__version__}"
        notes.warn("version", said, "restart it with this release: the one ledger should have one")


def _note_dead(notes: Notes, dead: Sequence[Process]) -> None:
    if dead:
        said = f"{len(dead)} dead without a goodbye, still to be cleared up after: {_named(dead)}"
        notes.warn("dead", said, "batchrun resume JOB, or any worker, does it and keeps their answers")


def _note_silent(notes: Notes, silent: Sequence[Process]) -> None:
    if silent:
        said = f"{len(silent)} on other hosts did not beat within {WATCH_S:g} s: {_named(silent)}"
        notes.warn("silent", said, "look there: is it stopped or dead? if dead, `batchrun resume JOB` goes on")


def _named(some: Sequence[Process]) -> str:
    more = f" and {len(some) - MOST_NAMED} more" if len(some) > MOST_NAMED else ""
    return ", ".join(map(_name, some[:MOST_NAMED])) + more


def _name(one: Process) -> str:
    return f"{one.name} ({one.host}, pid {one.pid})"
