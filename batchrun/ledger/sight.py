"""A look at a ledger that makes, sets and upgrades nothing, and does not wait: for whoever asks what is wrong."""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, NullPool, create_engine, event, func, inspect, select, text
from sqlalchemy.engine import URL, make_url

from batchrun.core.states import FINAL_JOB_STATES
from batchrun.ledger.engines import file_of, open_engine, parse_url, shown, sqlite_module
from batchrun.ledger.intact import refuse_emptied
from batchrun.ledger.ledger import foreign_errors
from batchrun.ledger.liveness import holds_lock
from batchrun.ledger.migrate import current_revision
from batchrun.ledger.schema import SCHEMA_REVISION, heartbeats, jobs, workers
from batchrun.ledger.seal import closed_why

PATIENCE_S = 2  # for a connection and for a statement
READING_EVERY_S = 0.2


@dataclass(frozen=True, slots=True)
class PostgresFacts:
    """What a Postgres server says of itself, in a session as the ledger opens it."""

    version: str
    is_standby: bool
    synchronous_commit: str
    fsync: bool
    full_page_writes: bool
    encoding: str
    may_create: bool  # tables, where the first ones would be made
    connections: int | None  # in use; None where the role may not see it
    max_connections: int
    clock_ahead_s: float  # of this machine's
    answer_s: float


@dataclass(frozen=True, slots=True)
class Sight:
    """What a ledger shows."""

    revision: str | None  # of the schema; None where it holds no ledger
    has_tables: bool
    job_count: int | None  # None where the schema is another release's
    open_job_count: int | None
    is_wal: bool  # a SQLite file in write-ahead mode
    server: PostgresFacts | None
    closed: str | None = None  # why nothing runs there, in words: it was moved, or a move is not finished


@dataclass(frozen=True, slots=True)
class Process:
    """A process that has said hello in the ledger and not goodbye."""

    id: int
    name: str
    host: str
    pid: int
    version: str
    folder: str
    incarnation: str
    beat: int
    in_flight: int
    is_alive: bool | None  # None: of another host, and its counter did not move while it was watched


def look_at(address: str) -> Sight:
    """Look at the ledger at `address`, which must be there.

    Raises:
        LedgerFault: it cannot be reached or read.
        UsageFault: the address cannot be understood.
    """
    with _reading(address) as connection:
        revision = current_revision(connection)
        total, open_ones = _job_counts(connection) if revision == SCHEMA_REVISION else (None, None)
        file = file_of(parse_url(address))
        return Sight(
            revision,
            bool(inspect(connection).get_table_names()),
            total,
            open_ones,
            is_wal=file is not None and _is_wal(file),
            server=_ask_server(connection) if file is None else None,
            closed=closed_why(connection, "it") if revision == SCHEMA_REVISION else None,
        )


def watch_processes(address: str, *, watch_s: float) -> list[Process]:
    """Return the processes that have not said goodbye. Those of other hosts are watched until each has beaten.

    Raises:
        LedgerFault: the ledger cannot be read.
    """
    with _reading(address) as connection:
        if current_revision(connection) != SCHEMA_REVISION:
            return []
        seen = [replace(one, is_alive=holds_lock(Path(one.folder), one.incarnation)) for one in _processes(connection)]
    deadline = time.monotonic() + watch_s
    while any(one.is_alive is None for one in seen) and time.monotonic() < deadline:
        time.sleep(READING_EVERY_S)
        with _reading(address) as connection:
            now = {one.id: one for one in _processes(connection)}
        seen = [_compared(one, now.get(one.id)) for one in seen if one.id in now]
    return seen


def _compared(before: Process, now: Process | None) -> Process:
    has_beaten = before.is_alive is None and now is not None and now.beat != before.beat
    return replace(before, is_alive=True) if has_beaten else before


def _processes(connection: Connection) -> Sequence[Process]:
    found = connection.execute(
        select(workers, heartbeats.c.beat, heartbeats.c.in_flight)
        .join(heartbeats, heartbeats.c.worker_id == workers.c.id)
        .where(workers.c.ended_at.is_(None))
        .order_by(workers.c.id)
    )
    return [
        Process(
            row.id,
            row.name,
            row.host,
            row.pid,
            row.version,
            row.folder,
            row.incarnation,
            row.beat,
            row.in_flight,
            None,
        )
        for row in found
    ]


def _job_counts(connection: Connection) -> tuple[int, int]:
    is_open = jobs.c.state.not_in([state.value for state in FINAL_JOB_STATES])
    row = connection.execute(select(func.count(), func.count().filter(is_open)).select_from(jobs)).one()
    return row[0], row[1]


_FACTS = """
SELECT current_setting('server_version') AS version, pg_is_in_recovery() AS is_standby,
    current_setting('synchronous_commit') AS synchronous_commit, current_setting('fsync')::bool AS fsync,
    current_setting('full_page_writes')::bool AS full_page_writes, current_setting('server_encoding') AS encoding,
    coalesce(has_schema_privilege(current_schema(), 'CREATE'), false) AS may_create,
    (SELECT sum(numbackends) FROM pg_stat_database)::int AS connections,
    current_setting('max_connections')::int AS max_connections,
    extract(epoch FROM clock_timestamp())::float AS clock
"""


def _ask_server(connection: Connection) -> PostgresFacts:
    began_at, began = time.time(), time.monotonic()
    row = connection.execute(text(_FACTS)).one()._mapping
    took_s = time.monotonic() - began
    facts: dict[str, Any] = {name: row[name] for name in row if name != "clock"}
    return PostgresFacts(**facts, clock_ahead_s=row["clock"] - (began_at + took_s / 2), answer_s=took_s)


@contextmanager
def _reading(address: str) -> Iterator[Connection]:
    """Open a ledger for one short look."""
    url = parse_url(address)
    where = f"ledger {shown(url)}"
    file = file_of(url)
    engine = _postgres(url) if file is None else _sqlite(file)
    try:
        with foreign_errors(where), engine.connect() as connection:
            yield connection
    finally:
        engine.dispose()


def _postgres(url: URL) -> Engine:
    """Open it as the ledger does, but for a look: what the ledger sets in its sessions is what is to be seen."""
    engine = open_engine(url)

    @event.listens_for(engine, "do_connect")
    def _hurry(_dialect: object, _record: object, _arguments: object, parameters: dict[str, Any]) -> None:
        limits = f"-c statement_timeout={PATIENCE_S}s -c default_transaction_read_only=on"
        parameters |= {"connect_timeout": PATIENCE_S, "options": f"{parameters.get('options', '')} {limits}"}

    return engine


def _sqlite(path: Path) -> Engine:
    refuse_emptied(path)
    module = sqlite_module()
    # A file in write-ahead mode without its log has no writer, and would be given a log by a plain reader.
    way = "immutable=1" if _is_wal(path) and not path.with_name(f"{path.name}-wal").exists() else "mode=ro"
    uri = f"{path.absolute().as_uri()}?{way}"
    return create_engine(
        make_url("sqlite://"),
        module=module,
        poolclass=NullPool,
        creator=lambda: module.connect(uri, uri=True, timeout=PATIENCE_S, check_same_thread=False),
    )


def _is_wal(path: Path) -> bool:
    """Say whether a SQLite file is in write-ahead mode: by the two format numbers in its header."""
    with path.open("rb") as file:
        return file.read(20)[18:20] == b"\x02\x02"
