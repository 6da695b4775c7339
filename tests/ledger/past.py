"""Ledgers of the past, one of each schema for each back end: python -m tests.ledger.past makes the newest anew.

A ledger of an unreleased schema is made anew whenever that schema changes; once it is released its files stay as they
are for ever, and the next schema gets files of its own. Each holds a job that was killed twice: items answered, failed,
in doubt, pending, and some that a dead process had claimed.
"""

import json
import socket
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from batchrun.core.states import ItemState
from batchrun.ledger.engines import sqlite_module
from batchrun.ledger.schema import SCHEMA_REVISION
from batchrun.mock.config import MockConfig
from batchrun.mock.process import MockProcess
from tests import services
from tests.lab import Lab

FOLDER = Path(__file__).parent / "ledgers_of_the_past"
BACK_ENDS = ("sqlite", "postgres")
PLACE = "/where/it/was"  # stands in a fixture for the folder that the job lay in
HOST = "another-host"  # whose processes nobody here can see
COUNT = 20
NEEDED = {ItemState.COMPLETED, ItemState.FAILED, ItemState.IN_DOUBT, ItemState.PENDING, ItemState.RUNNING}


@dataclass(frozen=True)
class Past:
    """A ledger as it was kept."""

    revision: str
    back_end: str

    @property
    def path(self) -> Path:
        """Its dump: statements of SQL."""
        return FOLDER / f"{self.revision}.{self.back_end}.sql"

    @property
    def items(self) -> dict[str, str]:
        """The state of each item, by its id, as it was when the ledger was kept."""
        found: dict[str, str] = json.loads(self.path.with_suffix(".json").read_text())
        return found

    def restore(self, lab: Lab) -> None:
        """Put it into a lab; on Postgres into the empty database that the lab names."""
        statements = self.path.read_text().replace(PLACE, str(lab.folder))
        if self.back_end == "sqlite":
            path = lab.folder / ".batchrun" / "ledger.db"
            path.parent.mkdir()
            with closing(sqlite_module().connect(str(path), isolation_level=None)) as connection:
                connection.executescript(statements)
            return
        assert lab.db is not None
        _psql("psql", lab.db, "--quiet", "--set=ON_ERROR_STOP=1", "--output=/dev/null", given=statements)


def all_pasts() -> list[Past]:
    """Return every ledger that was kept."""
    return [Past(*path.name.split(".")[:2]) for path in sorted(FOLDER.glob("*.sql"))]


def _psql(program: str, url: str, *arguments: str, given: str | None = None) -> str:
    """Run one of Postgres' own programs on a database."""
    command = [services.find_program(program, package="postgresql"), url.replace("+psycopg", ""), *arguments]
    done = subprocess.run(command, input=given, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


# -- making -----------------------------------------------------------------------------------------------------------


def _play(lab: Lab) -> dict[str, str]:
    """Let a job come to a standstill in which items are in every state; return each item's."""
    lab.write_input(COUNT)
    lab.write_spec(concurrency=4, trial={"size": 4}, price={"input_per_1m_usd": 1, "output_per_1m_usd": 2})
    for command, more in ((("submit", "jobs/job.json"), 10), (("resume", "batch-001"), 4)):
        run = lab.start(*command)
        lab.await_arrivals(lab.arrivals() + more, run=run)
        run.kill()
        run.wait()
    standing = lab.standing()
    seen = {state for state, count in standing.counts.items() if count}
    if not seen >= NEEDED:
        raise RuntimeError(f"items in {sorted(seen)} are not enough: try again")
    ledger = lab.ledger()
    try:
        with ledger.read() as connection:
            rows = connection.exec_driver_sql("SELECT custom_id, state FROM items ORDER BY custom_id").all()
            return {str(row[0]): str(row[1]) for row in rows}
    finally:
        ledger.close()


def _dump_sqlite(lab: Lab) -> str:
    copy = lab.folder / "copy.db"  # without a write-ahead log, so that any SQLite may read it
    with closing(sqlite_module().connect(str(lab.folder / ".batchrun" / "ledger.db"))) as connection:
        connection.execute("VACUUM INTO ?", [str(copy)])
    with closing(sqlite3.connect(copy)) as connection:
        return "\n".join(connection.iterdump()) + "\n"


def _dump_postgres(lab: Lab) -> str:
    assert lab.db is not None
    dump = _psql("pg_dump", lab.db, "--inserts", "--no-owner", "--no-privileges")
    # Newer releases of pg_dump guard their output with words of psql that older ones do not know.
    return "".join(line for line in dump.splitlines(keepends=True) if not line.startswith(("\\", "SET transaction_")))


def make(back_end: str, dump: Callable[[Lab], str]) -> None:
    """Make the newest schema's ledger for a back end."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="past-"))) / "job"
        folder.mkdir()
        log = folder / "requests.jsonl"
        faults: dict[str, Any] = {"reset_rate": 0.2, "bad_json_rate": 0.2, "faults_per_item": 1}
        config = MockConfig(log_path=str(log), seed=4, latency_ms=150, latency_sigma=0.3, **faults)
        mock = stack.enter_context(MockProcess(config))
        lab = Lab(folder, base_url=mock.base_url, log=log)
        if back_end == "postgres":
            lab.db = stack.enter_context(services.run_postgres()).url()
        stack.callback(lab.stop)
        items = _play(lab)
        past = Past(SCHEMA_REVISION, back_end)
        FOLDER.mkdir(exist_ok=True)
        past.path.write_text(dump(lab).replace(str(folder), PLACE).replace(socket.gethostname(), HOST))
        past.path.with_suffix(".json").write_text(json.dumps(items, indent=1) + "\n")
        print(f"written: {past.path} {asdict(past)}")


def main() -> None:
    """Make the newest schema's ledgers."""
    make("sqlite", _dump_sqlite)
    make("postgres", _dump_postgres)


if __name__ == "__main__":
    sys.exit(main())
