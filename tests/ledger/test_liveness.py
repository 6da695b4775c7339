"""Who is alive: a lock that no death outlives, and elsewhere a counter that only an awake observer may judge."""

import fcntl
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select, update

from batchrun.errors import LedgerFault
from batchrun.ledger.ledger import Ledger
from batchrun.ledger.liveness import Observer, Worker, beat, enter, holds_lock, lock_path
from batchrun.ledger.reports import heartbeat
from batchrun.ledger.rescue import rescue
from batchrun.ledger.schema import workers
from batchrun.ledger.sweeps import buried_with_files, bury, incarnations, jobs_of
from tests.ledger.desk import ANSWERED, NOW, UNKNOWN, Desk, forks, hire

ROOM = 4_096


def work(ledger: Ledger) -> Worker:
    return enter(ledger, name="w", now=NOW, room_bytes=ROOM)


def ended_at(ledger: Ledger, worker_id: int) -> float | None:
    with ledger.read() as connection:
        return connection.execute(select(workers.c.ended_at).where(workers.c.id == worker_id)).scalar_one()


def files(ledger: Ledger, worker: Worker) -> set[str]:
    return {path.name.removeprefix(worker.incarnation) for path in worker.folder.glob(f"{worker.incarnation}*")}


# -- the lock ----------------------------------------------------------------------------------------------------------


@contextmanager
def locked(folder: Path, words: bytes = b"me") -> Iterator[int]:
    fd = os.open(lock_path(folder, "me"), os.O_CREAT | os.O_RDWR)
    os.write(fd, words)
    fcntl.flock(fd, fcntl.LOCK_EX)
    try:
        yield fd
    finally:
        os.close(fd)


def test_a_lock_is_held_until_its_descriptor_is_closed(tmp_path: Path) -> None:
    with locked(tmp_path):
        assert holds_lock(tmp_path, "me") is True
        assert holds_lock(tmp_path, "me") is True, "to look takes nothing away"
    assert holds_lock(tmp_path, "me") is False


def test_to_look_for_a_lock_creates_none(tmp_path: Path) -> None:
    assert holds_lock(tmp_path, "me") is None
    assert holds_lock(tmp_path / "not" / "there", "me") is None
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("words", [b"", b"m", b"me too", b"another"])
def test_a_file_of_the_same_name_that_is_another_workers_proves_nothing(tmp_path: Path, words: bytes) -> None:
    with locked(tmp_path, words):
        assert holds_lock(tmp_path, "me") is None
    assert holds_lock(tmp_path, "me") is None


def test_a_free_lock_on_a_network_file_system_proves_nothing(tmp_path: Path) -> None:
    mounts = tmp_path / "mounts"
    mounts.write_text(f"server:/x {tmp_path} nfs4 rw 0 0\n")
    with locked(tmp_path):
        assert holds_lock(tmp_path, "me", mounts=mounts) is None
    assert holds_lock(tmp_path, "me", mounts=mounts) is None


# -- processes ---------------------------------------------------------------------------------------------------------


def _be_a_worker(path: str, said: Any, then: str) -> None:
    """Enter the ledger, say who it is, and live until killed; perhaps with a child that outlives it."""
    ledger = Ledger(path, folder=Path(path).parent)
    worker = work(ledger)
    child = 0
    if then == "fork":
        child = os.fork()
        if not child:
            said.send("forked")
            signal.pause()
    elif then == "exec":
        child = subprocess.Popen(["sleep", "60"], close_fds=False).pid
        said.send("forked")
    elif then == "fork and wait":
        child = os.fork()
        if not child:
            os._exit(0)
        os.waitpid(child, 0)
    said.send([str(worker.folder), worker.incarnation, worker.id, child])
    signal.pause()


@dataclass
class Life:
    """A worker process, seen from outside."""

    process: Any
    folder: Path
    incarnation: str
    worker_id: int
    child: int

    @property
    def holds(self) -> bool | None:
        return holds_lock(self.folder, self.incarnation)

    def kill(self) -> None:
        self.process.kill()
        self.process.join(60)


@pytest.fixture
def live(tmp_path: Path) -> Iterator[Callable[[str], Life]]:
    """Return a function that starts a worker process; all of them are gone after the test."""
    begun: list[Life] = []

    def start(then: str = "") -> Life:
        said, says = forks.Pipe(duplex=False)
        process = forks.Process(target=_be_a_worker, args=(str(tmp_path / "ledger.db"), says, then))
        process.start()
        says.close()
        words = None
        for _ in range(2 if then in ("fork", "exec") else 1):
            assert said.poll(20)
            heard = said.recv()
            words = heard if heard != "forked" else words
        assert words is not None
        begun.append(Life(process, Path(words[0]), *words[1:]))
        return begun[-1]

    try:
        yield start
    finally:
        for life in begun:
            life.process.kill()
            if life.child:
                with suppress(ProcessLookupError):
                    os.kill(life.child, signal.SIGKILL)
            life.process.join(60)


@pytest.mark.process
def test_a_worker_that_is_killed_is_dead_at_once(live: Callable[..., Life], tmp_path: Path) -> None:
    life = live()
    ledger = Ledger(str(tmp_path / "ledger.db"), folder=tmp_path)
    observer = Observer(ledger)
    assert (life.holds, observer.is_dead(life.worker_id)) == (True, False)
    life.kill()
    assert (life.holds, observer.is_dead(life.worker_id)) == (False, True)
    ledger.close()


@pytest.mark.process
def test_the_exit_of_a_forked_child_does_not_free_its_parents_lock(live: Callable[..., Life]) -> None:
    assert live("fork and wait").holds is True


@pytest.mark.process
@pytest.mark.parametrize("how", ["fork", "exec"])
def test_a_child_that_outlives_a_worker_does_not_keep_its_lock(live: Callable[..., Life], how: str) -> None:
    life = live(how)
    assert life.holds is True
    life.kill()
    os.kill(life.child, 0)  # it lives
    assert life.holds is False


# -- entering and leaving ----------------------------------------------------------------------------------------------


def test_a_worker_enters_with_its_files_and_leaves_without_them(ledger: Ledger) -> None:
    worker = work(ledger)
    assert files(ledger, worker) == {".lock", ".marks", ".spool.a", ".spool.b"}
    assert holds_lock(worker.folder, worker.incarnation) is True
    assert not Observer(ledger).is_dead(worker.id)
    worker.leave(ledger, now=NOW + 5)
    assert files(ledger, worker) == set()
    assert ended_at(ledger, worker.id) == NOW + 5
    assert Observer(ledger).is_dead(worker.id)


def test_a_worker_whose_answers_the_ledger_lacks_leaves_them_to_the_next_sweep(ledger: Ledger) -> None:
    worker = work(ledger)
    worker.spool.append(17, {}, b"paid for")
    worker.leave(ledger, now=NOW)
    assert files(ledger, worker) == {".lock", ".marks", ".spool.a", ".spool.b"}
    assert ended_at(ledger, worker.id) is None
    assert holds_lock(worker.folder, worker.incarnation) is False
    assert Observer(ledger).is_dead(worker.id)
    with ledger.read() as connection:
        assert [one.worker_id for one in incarnations(connection, except_worker=0)] == [worker.id]


def test_a_worker_with_an_open_attempt_leaves_it_to_the_next_sweep(ledger: Ledger) -> None:
    desk, worker = Desk.open(ledger), work(ledger)
    claimed = desk.claim(worker=worker.id)[0]
    worker.leave(ledger, now=NOW)
    assert ended_at(ledger, worker.id) is None
    assert ".spool.a" in files(ledger, worker)
    assert Observer(ledger).is_dead(worker.id)
    assert desk.rescue(worker.id) == [claimed.key]


class Away:
    """A ledger that does not take anything."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @contextmanager
    def write(self) -> Iterator[None]:
        raise LedgerFault("the disk is full")
        yield


def test_a_worker_that_cannot_say_goodbye_lets_go_of_its_lock_all_the_same(ledger: Ledger) -> None:
    worker = work(ledger)
    worker.leave(Away(ledger.folder), now=NOW)  # type: ignore[arg-type]
    assert holds_lock(worker.folder, worker.incarnation) is False
    assert Observer(ledger).is_dead(worker.id)


def test_a_worker_that_cannot_enter_leaves_no_files(tmp_path: Path) -> None:
    with pytest.raises(LedgerFault):
        enter(Away(tmp_path), name="w", now=NOW)  # type: ignore[arg-type]
    with pytest.raises(OSError, match=r"File too large|No space left|Invalid argument"):
        enter(Away(tmp_path), name="w", now=NOW, room_bytes=1 << 62)  # type: ignore[arg-type]
    assert list(tmp_path.iterdir()) == [tmp_path / "workers"]
    assert list((tmp_path / "workers").iterdir()) == []


def test_workers_of_one_name_are_different_incarnations(ledger: Ledger) -> None:
    first, second = work(ledger), work(ledger)
    assert (first.name, first.id != second.id, first.incarnation != second.incarnation) == ("w", True, True)
    first.leave(ledger, now=NOW)
    assert holds_lock(second.folder, second.incarnation) is True
    second.leave(ledger, now=NOW)


# -- the observer ------------------------------------------------------------------------------------------------------


class Watch:
    """An observer of a worker on another host, with a clock that is told what time it is."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self.now = 1_000.0
        self.observer = Observer(ledger, clock=lambda: self.now, dead_after_s=10.0)
        self.worker = hire(ledger)  # its folder is not to be seen from here

    def look(self, after_s: float, *, beats: bool = False) -> bool:
        self.now += after_s
        if beats:
            with self.ledger.write() as connection:
                beat(connection, self.worker, in_flight=3, items_per_s=1.5, tokens_per_s=None)
        return self.observer.is_dead(self.worker)


@pytest.fixture
def watch(ledger: Ledger) -> Watch:
    return Watch(ledger)


def test_a_counter_that_stands_still_is_a_death_after_the_whole_time_and_no_sooner(watch: Watch) -> None:
    assert [watch.look(0.0 if number == 0 else 1.0) for number in range(11)] == [False] * 10 + [True]
    assert watch.look(1.0)


def test_a_counter_that_moves_is_a_life_however_long_it_takes_between(watch: Watch) -> None:
    for _ in range(10):
        assert not any(watch.look(1.0) for _ in range(9))
        assert not watch.look(1.0, beats=True)


def test_a_beat_begins_the_count_anew(watch: Watch) -> None:
    assert not any(watch.look(1.0) for _ in range(10))
    assert not watch.look(0.5, beats=True)
    assert [watch.look(1.0) for _ in range(10)] == [False] * 9 + [True]


def test_an_observer_that_sleeps_never_declares_a_death(watch: Watch) -> None:
    for nap_s in (2.5, 10.0, 3600.0, 86_400.0) * 3:
        assert not watch.look(nap_s), "it has seen nothing in between"


def test_what_was_counted_before_the_observer_slept_counts_no_more(watch: Watch) -> None:
    """Perhaps both have slept: the worker gets the whole time to move once the observer is awake."""
    assert not any(watch.look(1.0) for _ in range(10))
    assert not watch.look(3600.0)
    assert [watch.look(1.0) for _ in range(10)] == [False] * 9 + [True]


def test_a_reading_that_failed_is_no_reading(watch: Watch) -> None:
    class Broken:
        @contextmanager
        def read(self) -> Iterator[None]:
            raise LedgerFault("not there")
            yield

    assert not any(watch.look(1.0) for _ in range(10))
    ledger, watch.observer.ledger = watch.observer.ledger, Broken()  # type: ignore[assignment]
    for _ in range(3):
        with pytest.raises(LedgerFault):
            watch.look(1.0)
    watch.observer.ledger = ledger
    assert [watch.look(1.0) for _ in range(11)] == [False] * 10 + [True]


def test_workers_are_counted_apart(watch: Watch) -> None:
    other = hire(watch.ledger)
    for _ in range(10):
        watch.look(1.0)
        assert not watch.observer.is_dead(other)
        with watch.ledger.write() as connection:
            beat(connection, other, in_flight=0, items_per_s=None, tokens_per_s=None)
    assert watch.look(1.0)
    assert not watch.observer.is_dead(other)


def test_who_has_left_or_never_was_is_dead(watch: Watch) -> None:
    assert watch.observer.is_dead(10**6)
    with watch.ledger.write() as connection:
        bury(connection, watch.worker, now=NOW)
    assert watch.look(0.0)


def test_a_beat_says_what_the_worker_does(watch: Watch) -> None:
    watch.look(0.0, beats=True)
    with watch.ledger.read() as connection:
        row = heartbeat(connection, watch.worker)
        assert heartbeat(connection, 10**6) is None
    assert row is not None
    assert (row["in_flight"], row["items_per_s"], row["tokens_per_s"]) == (3, 1.5, None)


# -- what a sweeper asks -----------------------------------------------------------------------------------------------


def test_a_sweeper_looks_at_those_who_have_not_left_and_at_nobody_twice(ledger: Ledger) -> None:
    me, gone, dead = (hire(ledger) for _ in range(3))
    with ledger.write() as connection:
        bury(connection, gone, now=NOW)
        assert [one.worker_id for one in incarnations(connection, except_worker=me)] == [dead]
        bury(connection, dead, now=NOW)
        assert incarnations(connection, except_worker=me) == []


def test_whoever_was_buried_with_something_open_is_swept_again(ledger: Ledger) -> None:
    """It was taken for dead and claimed once more before it was buried."""
    desk = Desk.open(ledger)
    desk.claim_one()
    with ledger.write() as connection:
        bury(connection, desk.worker, now=NOW)
        assert [one.worker_id for one in incarnations(connection, except_worker=0)] == [desk.worker]
        assert jobs_of(connection, desk.worker) == [desk.job_id]
        rescue(connection, job_id=desk.job_id, worker_id=desk.worker, now=NOW)
        assert incarnations(connection, except_worker=0) == []
        assert jobs_of(connection, desk.worker) == []


def test_whoever_was_buried_from_elsewhere_is_found_by_its_spool(ledger: Ledger) -> None:
    """The host that declared it dead could not see its answers; this one can."""
    buried, living = work(ledger), work(ledger)
    buried.spool.append(17, {}, b"paid for")
    with ledger.write() as connection:
        bury(connection, buried.id, now=NOW)
        (found,) = buried_with_files(connection, buried.folder)
        assert buried_with_files(connection, buried.folder / "elsewhere") == []
    assert (found.worker_id, found.incarnation, found.folder) == (buried.id, buried.incarnation, buried.folder)
    for worker in (buried, living):
        worker.spool.settled(17)
    lock = lock_path(buried.folder, buried.incarnation)
    buried.leave(ledger, now=NOW)
    lock.touch()  # what a sweeper leaves that dies while it clears up
    with ledger.read() as connection:
        assert [one.worker_id for one in buried_with_files(connection, buried.folder)] == [buried.id]
    lock.unlink()
    living.leave(ledger, now=NOW)
    with ledger.read() as connection:
        assert buried_with_files(connection, buried.folder) == []


def test_every_job_that_a_worker_had_a_hand_in_is_found(ledger: Ledger) -> None:
    desks = [Desk.open(ledger) for _ in range(4)]
    worker = desks[0].worker
    claims = [desk.claim(worker=worker)[0] for desk in desks]
    desks[1].settle(claims[1], ANSWERED, worker=worker)
    desks[2].settle(claims[2], UNKNOWN, worker=worker)
    with ledger.read() as connection:
        assert jobs_of(connection, worker) == [desks[0].job_id, desks[3].job_id]


def test_a_worker_leads_to_its_files_wherever_it_was_started(ledger: Ledger) -> None:
    worker = hire(ledger)
    with ledger.write() as connection:
        connection.execute(update(workers).where(workers.c.id == worker).values(folder="/var/x", host="elsewhere"))
        (one,) = incarnations(connection, except_worker=0)
    assert (one.folder, one.host) == (Path("/var/x"), "elsewhere")
