"""The ledger: is it there, is it sound, will it keep what it is told?"""

import os
from pathlib import Path

from batchrun.core.wording import several
from batchrun.errors import BatchrunError, LedgerFault
from batchrun.ledger.engines import (
    file_of,
    has_wal_reset_bug,
    network_file_system,
    parse_url,
    shown,
    sqlite_module,
    version_of,
)
from batchrun.ledger.migrate import known_revisions
from batchrun.ledger.schema import SCHEMA_REVISION
from batchrun.ledger.sight import PostgresFacts, Sight, look_at
from batchrun.runner.doctor.finding import Check, Notes
from batchrun.runner.doctor.places import is_writable, note_room
from batchrun.runner.effective import without_secret

SLOW_S = 0.05  # of an answer that every claim and every result waits for
CLOCK_S = 2.0  # that two clocks may differ unremarked
FEW_CONNECTIONS = 10
START = "start its server, or correct BATCHRUN_DB"
# What is found in the words of a database -> the mend.
MENDS = {
    "password authentication failed": "correct user and password in BATCHRUN_DB",
    "no password supplied": "put the password into BATCHRUN_DB",
    "too many clients": "end other connections, or raise max_connections",
    "unsupported startup parameter": "connect to Postgres itself, or let the pooler pass `options`",
    'database "': "createdb it, or correct the database's name in BATCHRUN_DB",
    "not a database": "name another file with --db: this one was not written by SQLite, or is damaged",
    "malformed": "keep a copy of it, then recover what can be read with sqlite3's .recover",
    "has been in use": "put the ledger back from a copy",
    "is cut off": "put the ledger back from a copy",
    "readonly": "batchrun status, which may write and finishes what a crash left half done",
    "locked": "wait for the process that writes to it, then ask again",
}


def ledger_check(address: str, *, home: Path, has_broker: bool) -> Check:
    """Return the look at the ledger.

    Args:
        home: where locks and spools lie, for a ledger that is no file.
    """

    def look(notes: Notes) -> None:
        url = parse_url(address)
        try:
            if file := file_of(url):
                _look_at_file(notes, address, file, has_broker=has_broker)
            else:
                _look_at_server(notes, address, home.absolute())
        except LedgerFault as fault:
            said = fault.message.rpartition(" cannot be used: ")[2]
            notes.fail("usable", said, next((mend for words, mend in MENDS.items() if words in said), START))

    return Check("ledger", _subject(address), look, silence=START)


def _subject(address: str) -> str:
    """Return a ledger's address without secrets, a file's as a path."""
    try:
        url = parse_url(address)
    except BatchrunError:
        return without_secret(address)
    return shown(url)


# -- SQLite ---------------------------------------------------------------------------------------------------------


def _look_at_file(notes: Notes, address: str, path: Path, *, has_broker: bool) -> None:
    folder = path.absolute().parent
    if path.is_dir():
        notes.fail("file", f"{str(path)!r} is a folder", "name a file in it with --db")
        return
    if has_broker:
        notes.ok("hosts", "a file, so every worker must run on this host; Postgres serves many")
    if kind := network_file_system(folder):
        said = f"{str(folder)!r} is on a network file system ({kind}): SQLite cannot keep its locks there"
        notes.fail("place", said, "put the ledger on a local disk with --db, or use Postgres")
    if not path.exists():
        if is_writable(folder):
            notes.ok("file", "not there yet; the first `batchrun submit` makes it")
        else:
            notes.fail("file", f"{str(folder)!r} cannot be written to", f"chmod u+wx {folder}, or name another --db")
        _note_sqlite(notes, is_wal=False)
    else:
        _note_access(notes, path)
        sight = look_at(address)
        _note_schema(notes, sight, missing="an empty file; the first `batchrun submit` makes the tables")
        _note_sqlite(notes, is_wal=sight.is_wal)
    note_room(notes, folder, holds="the ledger")


def _note_access(notes: Notes, path: Path) -> None:
    for place, needed in ((path, os.R_OK | os.W_OK), (path.absolute().parent, os.W_OK | os.X_OK)):
        if not os.access(place, needed):
            notes.fail("access", f"{str(place)!r} cannot be written to", f"chmod u+rwX {place}, or chown it")


def _note_sqlite(notes: Notes, *, is_wal: bool) -> None:
    module = sqlite_module()
    name = f"{module.sqlite_version} ({module.__name__.split('.')[0]})"
    if not has_wal_reset_bug(version_of(module)):
        notes.ok("sqlite", f"{name}, write-ahead log, every commit synced")
        return
    mend = "pip install pysqlite3, or a Python whose SQLite is 3.51.3 or later"
    if is_wal:
        said = f"{name} can corrupt a write-ahead log (the WAL-reset fault), and this ledger has one"
        notes.fail("sqlite", said, f"{mend}; until then end every other process that uses this ledger")
    else:
        notes.warn("sqlite", f"{name} has the WAL-reset fault: a rollback journal is used, which is slower", mend)


# -- Postgres -------------------------------------------------------------------------------------------------------


def _look_at_server(notes: Notes, address: str, home: Path) -> None:
    sight = look_at(address)
    assert sight.server is not None  # a ledger that is no file
    server = sight.server
    notes.ok("reachable", f"Postgres {server.version}, answers in {1000 * server.answer_s:.1f} ms")
    if server.answer_s > SLOW_S:
        said = f"an answer takes {1000 * server.answer_s:.0f} ms; every group of claims and results waits for one"
        notes.warn("distance", said, "keep the ledger near the workers")
    _note_durability(notes, server)
    _note_schema(notes, sight, missing="an empty database; `batchrun db upgrade` or the first submit makes the tables")
    if sight.revision is None and not server.may_create:
        said = "this role may not make tables in the database's schema"
        notes.fail("rights", said, "as its owner: GRANT CREATE ON SCHEMA public TO the role")
    _note_connections(notes, server)
    if abs(server.clock_ahead_s) > CLOCK_S:
        said = f"its clock and this machine's differ by {abs(server.clock_ahead_s):.1f} s: recorded times will not fit"
        notes.warn("clock", said, "keep time with NTP on both (timedatectl set-ntp true)")
    _note_home(notes, home)


def _note_durability(notes: Notes, server: PostgresFacts) -> None:
    if server.is_standby:
        said = "a standby, which takes no writes, and may not know the last requests"
        notes.fail("primary", said, "name the primary in BATCHRUN_DB")
    if not server.fsync:
        said = "fsync is off: after a power failure it forgets what was paid"
        notes.fail("durability", said, "ALTER SYSTEM SET fsync = on, then reload")
    if server.synchronous_commit == "off":
        said = "synchronous_commit is off in our sessions: something between here and the server drops our setting"
        notes.fail("durability", said, "connect to Postgres itself, or let the pooler pass `options`")
    elif server.fsync:
        notes.ok("durability", f"fsync on, synchronous_commit {server.synchronous_commit}")
    if not server.full_page_writes:
        said = "full_page_writes is off: a power failure can leave torn pages"
        notes.warn("durability", said, "ALTER SYSTEM SET full_page_writes = on, then reload")
    if server.encoding != "UTF8":
        said = f"the database's encoding is {server.encoding}, which cannot hold every answer"
        notes.fail("encoding", said, "CREATE DATABASE batchrun ENCODING 'UTF8' TEMPLATE template0, and name that one")


def _note_connections(notes: Notes, server: PostgresFacts) -> None:
    if server.connections is None:
        return
    free = server.max_connections - server.connections
    if free < FEW_CONNECTIONS:
        said = f"{free} of {server.max_connections} connections are free; each process takes a few"
        notes.warn("connections", said, "ALTER SYSTEM SET max_connections to more, then restart it")


def _note_home(notes: Notes, home: Path) -> None:
    if not is_writable(home):
        said = f"{str(home)!r}, for locks and spools, cannot be written to"
        notes.fail("home", said, "name a local folder in BATCHRUN_HOME")
        return
    if kind := network_file_system(home):
        said = f"{str(home)!r}, for locks and spools, is on a network file system ({kind}): the dead are found slower"
        notes.warn("home", said, "name a local folder in BATCHRUN_HOME")
    note_room(notes, home, holds="answers on their way to the ledger")


# -- both -----------------------------------------------------------------------------------------------------------


def _note_schema(notes: Notes, sight: Sight, *, missing: str) -> None:
    if sight.revision is None:
        if sight.has_tables:
            notes.fail("schema", "holds tables of something else, and no ledger", "name another database with --db")
        else:
            notes.ok("schema", missing)
    elif sight.closed is not None:
        notes.fail("moved", sight.closed, "name its new address in BATCHRUN_DB; an unfinished move: batchrun db move")
    elif sight.revision == SCHEMA_REVISION:
        told = (
            f"{several(sight.job_count, 'job')}, {sight.open_job_count:,} not finished"
            if sight.job_count
            else "no jobs yet"
        )
        notes.ok("schema", f"{sight.revision}, this release's; {told}")
    elif sight.revision in known_revisions():
        said = f"{sight.revision} of an older batchrun; this release has {SCHEMA_REVISION}"
        notes.fail("schema", said, "batchrun db upgrade")
    else:
        said = f"{sight.revision} of a later batchrun; this release knows up to {SCHEMA_REVISION}"
        notes.fail("schema", said, "upgrade batchrun here; this release will not touch it")
