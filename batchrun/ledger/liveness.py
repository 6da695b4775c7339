"""Who is alive: a worker is one process incarnation that holds a file lock, and elsewhere beats a counter.

Dead on this host means that its lock is free. Dead elsewhere means that its counter has not moved for `DEAD_AFTER_S`
on the observer's own monotonic clock. Wall-clock age never counts.
"""

import fcntl
import os
import secrets
import socket
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from sqlalchemy import Connection, insert, select, update

from batchrun import __version__
from batchrun.errors import LedgerFault
from batchrun.ledger.engines import MOUNTS, network_file_system
from batchrun.ledger.intact import WORKERS
from batchrun.ledger.ledger import Ledger
from batchrun.ledger.schema import heartbeats, workers
from batchrun.ledger.seal import stay_the_same
from batchrun.ledger.send_marks import SendMarks, boot_id
from batchrun.ledger.spool import Spool
from batchrun.ledger.sweeps import end_leases, jobs_of

HEARTBEAT_S = 2.0
DEAD_AFTER_S = 10.0

_held: set[int] = set()  # the descriptors of this process' locks


def _forget_locks() -> None:
    """Close a forked child's copies of its parent's locks: they would hold them after the parent's death."""
    for fd in _held:
        os.close(fd)
    _held.clear()


os.register_at_fork(after_in_child=_forget_locks)


@dataclass
class Worker:
    """This process as the ledger knows it. Its lock is taken after the last fork and is never inherited."""

    id: int
    incarnation: str
    name: str
    folder: Path
    lock_fd: int
    spool: Spool
    marks: SendMarks

    def leave(self, ledger: Ledger, *, now: float) -> None:
        """Let go of the lock, and say goodbye where nothing is left: every attempt has its outcome in the ledger.

        Otherwise the files stay, and the next sweep finds a dead worker with answers to adopt or items to rescue.
        """
        is_done = self.spool.is_settled and self._say_goodbye(ledger, now)
        if is_done:
            # crash point: leave-said
            self.spool.remove()
            self.marks.remove()
            # crash point: leave-cleared
            lock_path(self.folder, self.incarnation).unlink(missing_ok=True)
        else:
            self.spool.close()
            self.marks.close()
        _held.discard(self.lock_fd)
        os.close(self.lock_fd)

    def _say_goodbye(self, ledger: Ledger, now: float) -> bool:
        has_left = update(workers).where(workers.c.id == self.id).values(ended_at=now)
        try:
            with ledger.write() as connection:
                if jobs_of(connection, self.id):
                    return False
                end_leases(connection, self.id)
                connection.execute(has_left)
        except LedgerFault:
            return False  # the lock goes free without a word: that says enough
        return True


def lock_path(folder: Path, incarnation: str) -> Path:
    """Return where a worker's lock lies."""
    return folder / f"{incarnation}.lock"


def enter(ledger: Ledger, *, name: str, now: float, room_bytes: int = 1 << 20) -> Worker:
    """Register this process as a worker: files first, then the row that names them.

    Args:
        room_bytes: space that the spool keeps preallocated for answers.

    Raises:
        OSError: no space for the files. Nothing is left of them.
        LedgerFault: the ledger does not take the row.
    """
    folder = ledger.folder / WORKERS
    folder.mkdir(parents=True, exist_ok=True)
    incarnation = secrets.token_hex(8)
    with ExitStack() as undo:
        fd = _take_lock(folder, incarnation, undo)
        spool = Spool.create(folder, incarnation, room_bytes=room_bytes)
        undo.callback(spool.remove)
        marks = SendMarks.create(folder, incarnation)
        undo.callback(marks.remove)
        # crash point: enter-files
        values = {
            "incarnation": incarnation,
            "name": name,
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "folder": str(folder),
            "version": __version__,
            "started_at": now,
            "boot_id": boot_id(),
        }
        with ledger.write() as connection:
            stay_the_same(connection, ledger.ledger_id, ledger.where)
            worker_id = connection.execute(insert(workers).values(values).returning(workers.c.id)).scalar_one()
            connection.execute(insert(heartbeats).values(worker_id=worker_id, beat=0, in_flight=0))
        undo.pop_all()
    # crash point: enter-known
    _held.add(fd)
    return Worker(worker_id, incarnation, name, folder, fd, spool, marks)


def _take_lock(folder: Path, incarnation: str, undo: ExitStack) -> int:
    path = lock_path(folder, incarnation)
    fd = os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o600)
    undo.callback(os.close, fd)
    undo.callback(path.unlink)
    fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.write(fd, incarnation.encode())
    return fd


def remove_files(folder: Path, incarnation: str) -> None:
    """Delete a dead worker's files, once all its attempts have outcomes; last the lock, which shows that it is dead."""
    for name in ("spool.a", "spool.b", "marks", "lock"):
        (folder / f"{incarnation}.{name}").unlink(missing_ok=True)
        # crash point: grave-cleared


def holds_lock(folder: Path, incarnation: str, *, mounts: Path = MOUNTS) -> bool | None:
    """Say whether a worker's lock is held; None where that cannot be seen from here (another host).

    The file is never created by looking, and must hold the very incarnation: containers share names, not files. A
    network file system may keep locks for each host alone, so there a lock that looks free proves nothing.
    """
    if network_file_system(folder, mounts=mounts):
        return None
    try:
        fd = os.open(lock_path(folder, incarnation), os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        if os.pread(fd, 64, 0) != incarnation.encode():
            return None
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return True
        return False
    finally:
        os.close(fd)


def has_ended(connection: Connection, worker_id: int) -> bool:
    """Say whether a worker has left, or was declared dead: it may not claim any more."""
    query = select(workers.c.ended_at).where(workers.c.id == worker_id)
    return connection.execute(query).scalar() is not None


def beat_of(connection: Connection, worker_id: int) -> int | None:
    """Return a worker's counter; None where it has none."""
    beat: int | None = connection.execute(
        select(heartbeats.c.beat).where(heartbeats.c.worker_id == worker_id)
    ).scalar_one_or_none()
    return beat


@dataclass
class Observer:
    """Judges other workers over time by reading their counters; keeps its own readings, on its own clock."""

    ledger: Ledger
    clock: Callable[[], float] = time.monotonic
    dead_after_s: float = DEAD_AFTER_S
    _seen: dict[int, tuple[int, float, float]] = field(default_factory=dict)  # beat, unmoved since, last read
    _moved: set[int] = field(default_factory=set)

    def is_dead(self, worker_id: int) -> bool:
        """Say whether a worker is certainly dead. Elsewhere than on its host that takes repeated asking."""
        with self.ledger.read() as connection:
            row = connection.execute(
                select(workers, heartbeats.c.beat)
                .join(heartbeats, heartbeats.c.worker_id == workers.c.id)
                .where(workers.c.id == worker_id)
            ).one_or_none()
        if row is None or row.ended_at is not None:
            return True
        held = holds_lock(Path(row.folder), row.incarnation)
        return not held if held is not None else self._has_stopped_beating(worker_id, row.beat)

    def has_moved(self, worker_id: int) -> bool:
        """Say whether a worker's counter was seen to move: it is alive, and no more asking is needed."""
        return worker_id in self._moved

    def _has_stopped_beating(self, worker_id: int, beat: int) -> bool:
        now = self.clock()
        before, since, read_at = self._seen.get(worker_id, (None, now, now))
        # Only dense readings count: an observer that was asleep, or could not read, begins anew.
        if beat != before or now - read_at >= self.dead_after_s / 4:
            since = now
        if before is not None and beat != before:
            self._moved.add(worker_id)
        self._seen[worker_id] = (beat, since, now)
        return now - since >= self.dead_after_s


def beat(
    connection: Connection,
    worker_id: int,
    *,
    in_flight: int,
    items_per_s: float | None,
    tokens_per_s: float | None,
) -> None:
    """Move this worker's counter on."""
    connection.execute(
        update(heartbeats)
        .where(heartbeats.c.worker_id == worker_id)
        .values(beat=heartbeats.c.beat + 1, in_flight=in_flight, items_per_s=items_per_s, tokens_per_s=tokens_per_s)
    )
