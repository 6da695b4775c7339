"""What the tests of whole processes do again and again: wait for an instant, look from outside, judge at the end."""

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from batchrun.core.states import ItemState, JobState
from batchrun.errors import BatchrunError
from batchrun.ledger.engines import sqlite_module
from batchrun.ledger.spool import read_frames
from batchrun.ledger.sweeps import open_attempt
from batchrun.runner.standing import Standing
from tests.lab import Lab, Run, assert_accounts_agree
from tests.process.limits import stop_after_a_chunk

Seen = TypeVar("Seen")
TASK = "batch-001"
PATIENCE_S = 60.0  # for what takes a second or two where nothing else runs


def ids(count: int, prefix: str = "a") -> list[str]:
    """Return the ids that `Lab.write_input` gives."""
    return [f"{prefix}{number:05d}" for number in range(count)]


def until(look: Callable[[], Seen], what: str, *, timeout_s: float = PATIENCE_S) -> Seen:
    """Look again and again until something is to be seen, and return it."""
    deadline = time.monotonic() + timeout_s
    while not (seen := look()):
        assert time.monotonic() < deadline, f"waited {timeout_s} s in vain until {what}"
        time.sleep(0.005)
    return seen


def standing_or_none(lab: Lab, task_id: str = TASK) -> Standing | None:
    """Read where a job stands; None while there is no such job, or no ledger yet."""
    if lab.db is None and not (lab.folder / ".batchrun" / "ledger.db").exists():
        return None
    try:
        return lab.standing(task_id)
    except BatchrunError:
        return None


def until_standing(
    lab: Lab, holds: Callable[[Standing], bool], what: str, *, timeout_s: float = PATIENCE_S
) -> Standing:
    """Wait until the ledger says something of the job."""

    def look() -> Standing | None:
        standing = standing_or_none(lab)
        return standing if standing is not None and holds(standing) else None

    return until(look, what, timeout_s=timeout_s)


def until_said(run: Run, words: str, *, timeout_s: float = PATIENCE_S) -> None:
    """Wait until a process has said something on stderr; one that ends without it fails the test."""

    def look() -> bool:
        is_over = not run.process.is_alive()
        if words in run.err:
            return True
        assert not is_over, f"{run.arguments} ended without {words!r}\n{run.err}{run.out}"
        return False

    until(look, f"{run.arguments} said {words!r}", timeout_s=timeout_s)


def kill_with_answers_in_hand(lab: Lab, run: Run, count: int) -> int:
    """Kill a process when it has received answers that the ledger, held by us, has not taken yet.

    Returns:
        How many they are: `count`, or some more that came before it was dead, to what it had claimed ahead.
    """
    ledger = lab.ledger()
    try:
        with ledger.write() as connection:
            until(lambda: _answers_in_hand(lab, connection) >= count, f"{count} answers lie in the spool alone")
            run.kill()
            run.process.join()
            return _answers_in_hand(lab, connection)
    finally:
        ledger.close()


def _answers_in_hand(lab: Lab, connection: Any) -> int:
    folder = lab.folder / ".batchrun" / "workers"
    frames = [frame for lock in folder.glob("*.lock") for frame in read_frames(folder, lock.stem)]
    return sum(open_attempt(connection, frame.key) is not None for frame in frames)


def start_and_stop_while_registering(lab: Lab, *command: str) -> Run:
    """Start a process that stops (SIGSTOP) when a part of a job's items is registered, and does not lock the ledger."""
    run = lab.start(*command, before=stop_after_a_chunk)
    until(lambda: process_state(run.process.pid) == "T", "it has stopped in the middle")
    standing = lab.standing()
    assert standing.job.state is JobState.VALIDATING
    assert 0 < sum(standing.counts.values()) < standing.job.total
    return run


def stop_between_writes(lab: Lab, run: Run) -> None:
    """Stop a process (SIGSTOP) at a moment when it does not lock the ledger."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        run.kill(signal.SIGSTOP)
        until(lambda: process_state(run.process.pid) == "T", "it has stopped")
        if not is_locked(lab):
            break
        run.kill(signal.SIGCONT)
        assert time.monotonic() < deadline
        run.process.join(0.003)


def process_state(pid: int) -> str:
    """Return the state letter of a process: T is a stopped one."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def is_locked(lab: Lab) -> bool:
    """Say whether a process is writing to the ledger, or in Postgres in any transaction."""
    if lab.db is not None and lab.db.startswith("postgresql"):
        return _is_in_transaction(lab.db)
    module = sqlite_module()
    connection = module.connect(lab.folder / ".batchrun" / "ledger.db", timeout=0, isolation_level=None)
    try:
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("ROLLBACK")
    except module.OperationalError:
        return True
    finally:
        connection.close()
    return False


def _is_in_transaction(url: str) -> bool:
    import psycopg

    others = "FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
    with psycopg.connect(url.replace("+psycopg", ""), autocommit=True) as connection:
        found = connection.execute(f"SELECT count(*) {others} AND xact_start IS NOT NULL").fetchone()
    return found is not None and found[0] > 0


def is_reading(run: Run, name: str) -> bool:
    """Say whether a process has a file of this name open."""
    try:
        opened = list(Path(f"/proc/{run.process.pid}/fd").iterdir())
        return any(link.readlink().name == name for link in opened)
    except OSError:  # it has ended, or closed one of them meanwhile
        return False


def until_quiet(lab: Lab, *, for_s: float, run: Run) -> int:
    """Wait until nothing has arrived for a while, and return how many have."""
    count, since = lab.arrivals(), time.monotonic()
    deadline = since + PATIENCE_S
    while time.monotonic() - since < for_s:
        assert time.monotonic() < deadline
        run.process.join(0.01)
        if (now := lab.arrivals()) != count:
            count, since = now, time.monotonic()
    return count


def interrupted(lab: Lab, *, at: int, command: tuple[str, ...] = ("submit", "jobs/job.json", "--no-trial")) -> Run:
    """Start a job and kill it when `at` requests have arrived; more than these are not answered before it is dead."""
    with gated(lab, admits=at):
        run = lab.start(*command)
        lab.await_arrivals(at, run=run)
        run.kill()
        assert run.wait() == -9
    return run


@contextmanager
def gated(lab: Lab, *, admits: int) -> Iterator[None]:
    """Let the lab's mock endpoint, if it has one, serve so many requests since its start while the block lasts.

    No job that needs more is over before the block is, however slow whoever looks at it.
    """
    if lab.mock is not None:
        lab.gate(admits)
    yield
    if lab.mock is not None:
        lab.gate(None)


def performer_among(lab: Lab, runs: list[Run]) -> Run:
    """Wait until one of these processes performs the job, and return it."""

    def look() -> Run | None:
        standing = standing_or_none(lab)
        if standing is None or standing.holder is None:
            return None
        return next((run for run in runs if run.process.pid == standing.holder["pid"]), None)

    return until(look, "one of the processes performs the job")


def replace_endpoint(lab: Lab, **settings: object) -> None:
    """Kill the lab's endpoint and start another at the same address, with the same log and other settings."""
    assert lab.mock is not None
    lab.mock.kill()
    start_endpoint(lab, **settings)


def start_endpoint(lab: Lab, **settings: object) -> None:
    """Start the lab's endpoint again, after it was killed."""
    assert lab.mock is not None
    lab.mock.config = replace(lab.mock.config, port=lab.mock.port, **settings)  # type: ignore[arg-type]
    lab.mock.start()


def assert_never_locked(lab: Lab) -> None:
    """Assert that no process has met a locked ledger, or anything that it did not expect."""
    for run in lab.runs:
        for text in (run.out, run.err):
            assert "database is locked" not in text, text
            assert "unexpected" not in text, text
            assert "Traceback" not in text, text


def assert_sent_once(lab: Lab) -> None:
    """Assert that no item was sent twice: under hold, and with an endpoint that refuses nothing, none ever is."""
    twice = {key: item.arrival_count for key, item in lab.judged().items.items() if item.arrival_count > 1}
    assert twice == {}


def assert_settled(lab: Lab, *, count: int, doubts_at_most: int = 0, concurrency: int | None = None) -> Standing:
    """Assert what holds at the end of every job here: all accounts agree, and all but a few doubts are answered."""
    standing = assert_accounts_agree(lab)
    doubts = standing.counts[ItemState.IN_DOUBT]
    assert standing.counts[ItemState.COMPLETED] + doubts == count, standing.counts
    assert doubts <= doubts_at_most, standing.counts
    if concurrency is not None:
        assert lab.judged().max_in_flight <= concurrency
    assert_never_locked(lab)
    return standing
