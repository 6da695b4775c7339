"""How the database is opened: a sound SQLite, safe pragmas on every connection, one writer at a time, a local disk."""

import sqlite3
import sys
import threading
from contextlib import ExitStack
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from sqlalchemy import text
from sqlalchemy.exc import IntegrityError

from batchrun.errors import LedgerFault, LedgerFull, UsageFault
from batchrun.ledger.engines import (
    has_wal_reset_bug,
    journal_mode,
    network_file_system,
    open_engine,
    parse_url,
    set_journal,
    shown,
    sqlite_module,
    version_of,
)
from batchrun.ledger.guards import lock_jobs
from batchrun.ledger.inspection import inspect_ledger, upgrade_ledger
from batchrun.ledger.ledger import Ledger, storable
from tests.ledger.desk import Desk, forks, on_postgres, on_sqlite

# -- which SQLite ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("version", "is_faulty"),
    [
        ((3, 6, 23), False),  # before the write-ahead log
        ((3, 7, 0), True),
        ((3, 40, 1), True),
        ((3, 44, 5), True),
        ((3, 44, 6), False),
        ((3, 44, 99), False),
        ((3, 45, 0), True),
        ((3, 50, 6), True),
        ((3, 50, 7), False),
        ((3, 51, 0), True),
        ((3, 51, 2), True),
        ((3, 51, 3), False),
        ((3, 53, 0), False),
        ((4, 44, 0), False),
        ((4, 0, 0), False),
    ],
)
def test_the_versions_that_can_corrupt_a_write_ahead_log_are_known(
    version: tuple[int, int, int], is_faulty: bool
) -> None:
    assert has_wal_reset_bug(version) is is_faulty
    module = ModuleType("any")
    module.sqlite_version = ".".join(map(str, version))  # type: ignore[attr-defined]
    assert version_of(module) == version
    assert journal_mode(module) == ("TRUNCATE" if is_faulty else "WAL")


@pytest.fixture
def modules(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """DBAPI modules by name with the version of the SQLite they bring."""
    versions = {"faulty": "3.40.1", "sound": "3.53.0", "also_faulty": "3.51.2"}
    for name, version in versions.items():
        module = ModuleType(name)
        module.sqlite_version = version  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, name, module)
    return versions


@pytest.mark.parametrize(
    ("candidates", "chosen"),
    [
        (("sound", "faulty"), "sound"),
        (("faulty", "sound"), "sound"),
        (("faulty", "also_faulty"), "sqlite3"),
        (("faulty", "not_installed"), "sqlite3"),
        (("not_installed", "sound"), "sound"),
        ((), "sqlite3"),
    ],
)
def test_the_first_sound_sqlite_is_chosen(modules: dict[str, str], candidates: tuple[str, ...], chosen: str) -> None:
    assert sqlite_module(candidates).__name__ == chosen


def test_this_machines_choice_is_sound_or_does_without_a_write_ahead_log() -> None:
    module = sqlite_module()
    assert (journal_mode(module) == "WAL") is not has_wal_reset_bug(version_of(module))


# -- every connection --------------------------------------------------------------------------------------------------


def test_a_ledger_knows_the_file_that_it_is_where_it_is_one(
    ledger: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if ledger.url.get_backend_name() != "sqlite":
        assert ledger.file is None
        return
    monkeypatch.chdir(tmp_path)
    opened = Ledger("here/ledger.db", folder=tmp_path / "elsewhere")
    assert opened.file == tmp_path / "here" / "ledger.db"
    assert opened.file.is_file()
    assert opened.folder == tmp_path / "here"
    opened.close()


@on_sqlite
def test_every_connection_of_the_pool_is_durable_and_checks_its_keys(own_ledger: Ledger) -> None:
    with ExitStack() as stack:
        connections = [stack.enter_context(own_ledger.engine.connect()) for _ in range(8)]

        def pragma(name: str) -> set[object]:
            return {one.exec_driver_sql(f"PRAGMA {name}").scalar() for one in connections}

        assert pragma("journal_mode") == {journal_mode(sqlite_module()).lower()}
        assert pragma("synchronous") == {2}, "FULL: an intent survives a power failure"
        assert pragma("foreign_keys") == {1}
        assert pragma("busy_timeout") == {30_000}
        assert pragma("secure_delete") == {1}, "what is deleted is overwritten"


class _Refusing:
    """A cursor whose database two connections change at once: refused so many times, whatever the busy timeout."""

    def __init__(self, times: int) -> None:
        self.left = times

    def execute(self, _statement: str) -> "_Refusing":
        if self.left:
            self.left -= 1
            raise sqlite3.OperationalError("database is locked")
        return self

    def fetchone(self) -> tuple[str]:
        return ("wal",)


def test_a_journal_that_another_is_just_changing_is_waited_for() -> None:
    assert set_journal(_Refusing(3), "WAL", patience_s=20) == "wal"
    with pytest.raises(sqlite3.OperationalError, match="locked"):
        set_journal(_Refusing(3), "WAL", patience_s=0)


@on_sqlite
def test_a_faulty_sqlite_keeps_a_rollback_journal_that_is_synced_at_its_end(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not has_wal_reset_bug(version_of(sqlite3)):
        pytest.skip("the standard library's SQLite is sound here")
    monkeypatch.setitem(sys.modules, "pysqlite3", None)
    ledger = Ledger(address, folder=Path("unused"))
    with ledger.read() as connection:
        assert connection.exec_driver_sql("PRAGMA journal_mode").scalar() == "truncate"
        assert connection.exec_driver_sql("PRAGMA synchronous").scalar() == 2
    assert Desk.open(ledger, 3).claim()
    ledger.close()


def _keep_open(address: str, said: Any, until: Any) -> None:
    ledger = Ledger(address, folder=Path(address).parent)
    with ledger.read() as connection:
        said.put(connection.exec_driver_sql("PRAGMA journal_mode").scalar())
        until.wait(60)


@on_sqlite
@pytest.mark.process
def test_a_faulty_sqlite_does_not_join_a_write_ahead_log(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if not has_wal_reset_bug(version_of(sqlite3)):
        pytest.skip("the standard library's SQLite is sound here")
    said, until = forks.Queue(), forks.Event()
    child = forks.Process(target=_keep_open, args=(address, said, until))
    child.start()
    assert said.get(timeout=60) == "wal"
    monkeypatch.setitem(sys.modules, "pysqlite3", None)
    with pytest.raises(LedgerFault, match=r"database is locked|has a write-ahead log"):
        Ledger(address, folder=Path("unused"), busy_timeout_s=0.01)
    until.set()
    child.join(60)
    assert child.exitcode == 0
    Ledger(address, folder=Path("unused")).close()


@on_postgres
def test_every_connection_of_the_pool_is_durable_whatever_the_server_says(address: str, tmp_path: Path) -> None:
    weak = "?options=-c%20synchronous_commit%3Doff%20-c%20default_transaction_isolation%3Dserializable"
    ledger = Ledger(f"{address}{weak}%20-c%20application_name%3Dmine", folder=tmp_path)
    try:
        for opened, isolation in ((ledger.write, "read committed"), (ledger.read, "repeatable read")):
            with opened() as connection:
                assert connection.execute(text("SHOW synchronous_commit")).scalar() == "on"
                assert connection.execute(text("SHOW transaction_isolation")).scalar() == isolation
                assert connection.execute(text("SHOW timezone")).scalar() == "UTC"
                assert connection.execute(text("SHOW application_name")).scalar() == "mine"
    finally:
        ledger.close()


# -- transactions ------------------------------------------------------------------------------------------------------


@on_sqlite
def test_a_writer_begins_as_a_writer_and_a_reader_keeps_nobody_from_writing(own_ledger: Ledger) -> None:
    hasty = Ledger(str(own_ledger.url.database), folder=own_ledger.folder, busy_timeout_s=0.01)
    try:
        with own_ledger.write():  # not one statement yet
            with hasty.read() as connection:
                assert connection.execute(text("SELECT count(*) FROM jobs")).scalar() == 0
            with pytest.raises(LedgerFault, match="database is locked"), hasty.write():
                pass
        with own_ledger.read() as connection:
            connection.execute(text("SELECT count(*) FROM jobs")).scalar()
            with hasty.write():
                pass
    finally:
        hasty.close()


def test_a_reader_sees_one_instant(ledger: Ledger) -> None:
    desk = Desk.open(ledger, 2)
    with ledger.read() as connection:
        before = connection.execute(text("SELECT count(*) FROM attempts")).scalar()
        desk.claim()
        assert connection.execute(text("SELECT count(*) FROM attempts")).scalar() == before == 0
        assert connection.execute(text("SELECT count(*) FROM items WHERE state = 'pending'")).scalar() == 2


def test_a_writer_that_raises_has_written_nothing(ledger: Ledger) -> None:
    desk = Desk.open(ledger)

    def write_and_raise() -> None:
        with ledger.write() as connection:
            connection.execute(text("DELETE FROM requests"))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        write_and_raise()
    assert desk.claim_one().body


def test_a_ledger_can_be_read_and_written_by_many_threads(ledger: Ledger) -> None:
    desk, faults = Desk.open(ledger, 8), []

    def work(number: int) -> None:
        try:
            assert len(desk.claim(number)) == 1
        except Exception as error:
            faults.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not faults
    assert desk.counts() == {"running": 8}


# -- where -------------------------------------------------------------------------------------------------------------


MOUNTS = r"""
proc /proc proc rw 0 0
/dev/sda1 / ext4 rw 0 0
server:/home /home nfs4 rw,vers=4.2 0 0
/dev/sdb1 /home/local ext4 rw 0 0
//nas/share /mnt/my\040share cifs rw 0 0
host:/x /mnt/back\134slash nfs rw 0 0
user@host: /mnt/ssh fuse.sshfs rw 0 0
overlay /mnt/overlay fuse.fuse-overlayfs rw 0 0
tmpfs /mnt/twice nfs rw 0 0
tmpfs /mnt/twice tmpfs rw 0 0
bucket /mnt/s3 fuse.s3fs rw 0 0
server:/u /mnt/übung nfs rw 0 0
"""


@pytest.mark.parametrize(
    ("folder", "kind"),
    [
        ("/var/lib", None),
        ("/home", "nfs4"),
        ("/home/ann/.batchrun", "nfs4"),
        ("/homestead", None),
        ("/home/local/x", None),
        ("/mnt/my share/deep/er", "cifs"),
        ("/mnt/back\\slash", "nfs"),
        ("/mnt/ssh", "fuse.sshfs"),
        ("/mnt/overlay", None),
        ("/mnt/twice", None),
        ("/mnt/s3/x", "fuse.s3fs"),
        ("/mnt/übung/x", "nfs"),
    ],
)
def test_a_network_file_system_is_known_by_its_mount(tmp_path: Path, folder: str, kind: str | None) -> None:
    mounts = tmp_path / "mounts"
    mounts.write_text(MOUNTS.lstrip(), encoding="utf-8")
    assert network_file_system(Path(folder), mounts=mounts) == kind


def test_a_link_does_not_hide_a_network_file_system(tmp_path: Path) -> None:
    real, mounts = tmp_path / "real", tmp_path / "mounts"
    real.mkdir()
    (tmp_path / "link").symlink_to(real)
    mounts.write_text(f"x / ext4 rw 0 0\ns:/x {real} nfs rw 0 0\n")
    assert network_file_system(tmp_path / "link" / "sub", mounts=mounts) == "nfs"


def test_where_the_mounts_cannot_be_read_nothing_is_refused(tmp_path: Path) -> None:
    assert network_file_system(tmp_path, mounts=tmp_path / "none") is None


def test_a_sqlite_ledger_on_a_network_file_system_is_refused(tmp_path: Path) -> None:
    mounts = tmp_path / "mounts"
    mounts.write_text(f"x / ext4 rw 0 0\ns:/x {tmp_path} nfs4 rw 0 0\n")
    url = parse_url(str(tmp_path / "ledger.db"))
    with pytest.raises(LedgerFault, match=r"lies on a network file system \(nfs4\)") as refused:
        open_engine(url, mounts=mounts)
    assert refused.value.hint is not None
    assert "Postgres" in refused.value.hint


# -- addresses ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "drivername", "database"),
    [
        ("ledger.db", "sqlite", "ledger.db"),
        (".batchrun/ledger.db", "sqlite", ".batchrun/ledger.db"),
        ("/abs/ledger.db", "sqlite", "/abs/ledger.db"),
        ("odd?name#1%20.db", "sqlite", "odd?name#1%20.db"),
        ("sqlite:///ledger.db", "sqlite", "ledger.db"),
        ("sqlite:////abs/ledger.db", "sqlite", "/abs/ledger.db"),
        ("sqlite+pysqlite:///ledger.db", "sqlite", "ledger.db"),
        ("sqlite+aiosqlite:///ledger.db", "sqlite", "ledger.db"),
        ("postgres://u:p@h:5/db", "postgresql+psycopg", "db"),
        ("postgresql://u:p@h/db", "postgresql+psycopg", "db"),
        ("postgresql+psycopg://u:p@h/db", "postgresql+psycopg", "db"),
        ("postgresql+psycopg2://u:p@h/db", "postgresql+psycopg", "db"),
        ("postgresql+asyncpg://u:p@h/db", "postgresql+psycopg", "db"),
    ],
)
def test_an_address_is_a_path_or_a_url_of_sqlite_or_postgres(given: str, drivername: str, database: str) -> None:
    url = parse_url(given)
    assert (url.drivername, url.database) == (drivername, database)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("mysql://u:p@h/db", "cannot be kept in 'mysql'"),
        ("redis://h", "cannot be kept in 'redis'"),
        ("://", "cannot be read"),
        ("what is this://", "cannot be read"),
        ("sqlite://", "must be a file"),
        ("sqlite:///", "must be a file"),
        ("sqlite:///:memory:", "must be a file"),
        (":memory:", "must be a file"),
        ("", "must be a file"),
    ],
)
def test_any_other_address_is_refused_in_words(given: str, words: str) -> None:
    with pytest.raises(UsageFault, match=words):
        parse_url(given)


def test_an_odd_file_name_is_taken_as_it_is(tmp_path: Path) -> None:
    ledger = Ledger(str(tmp_path / "odd ?a=b#c%20.db"), folder=tmp_path)
    ledger.close()
    assert (tmp_path / "odd ?a=b#c%20.db").exists()


@on_postgres
def test_a_process_that_stands_still_in_a_transaction_locks_nobody_out_for_good(address: str, tmp_path: Path) -> None:
    impatient = f"{address}?options=-c%20idle_in_transaction_session_timeout%3D300"
    still, other = Ledger(impatient, folder=tmp_path), Ledger(address, folder=tmp_path)
    desk = Desk.open(other, 1)
    with still.engine.connect().execution_options(is_write=True) as stopped:
        stopped.begin()
        lock_jobs(stopped, [desk.job_id])
        assert len(desk.claim()) == 1, "its lock was taken back"
        stopped.invalidate()
    with other.read() as connection:
        assert connection.exec_driver_sql("SHOW idle_in_transaction_session_timeout").scalar() == "20s"
    still.close()
    other.close()


def test_where_a_ledger_is_is_said_without_its_password(ledger: Ledger) -> None:
    assert ledger.where.startswith("ledger ")
    if not ledger.is_sqlite:
        assert "***" in ledger.where
        assert str(ledger.url.password) not in ledger.where


def test_a_password_in_the_query_of_an_address_is_not_shown_either() -> None:
    url = parse_url("postgresql://me@127.0.0.1/jobs?password=Secret&sslmode=disable")
    assert "Secret" not in shown(url)
    assert shown(url).endswith("127.0.0.1/jobs")


# -- errors ------------------------------------------------------------------------------------------------------------


def test_a_server_that_is_not_there_is_a_fault_of_the_ledger(tmp_path: Path) -> None:
    with pytest.raises(LedgerFault, match="cannot be used") as refused:
        Ledger("postgresql://u:secret@127.0.0.1:1/db", folder=tmp_path)
    assert "secret" not in str(refused.value)


def test_a_file_that_is_no_database_is_a_fault_of_the_ledger(tmp_path: Path) -> None:
    (tmp_path / "ledger.db").write_bytes(b"this is not a database, and it is long enough to be seen as none" * 9)
    with pytest.raises(LedgerFault, match="not a database"):
        Ledger(str(tmp_path / "ledger.db"), folder=tmp_path)
    assert (tmp_path / "ledger.db").read_bytes().startswith(b"this is not"), "and it is left as it was"


def test_a_folder_that_cannot_be_made_is_a_fault_of_the_ledger(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(LedgerFault, match="cannot be made"):
        Ledger(str(tmp_path / "file" / "ledger.db"), folder=tmp_path)


@on_sqlite
def test_a_ledger_that_may_only_be_read_takes_nothing(own_ledger: Ledger) -> None:
    def write() -> None:
        with own_ledger.write() as connection:
            connection.exec_driver_sql("PRAGMA query_only=ON")
            connection.execute(text("DELETE FROM jobs"))

    with pytest.raises(LedgerFull, match="readonly database"):
        write()


def test_a_fault_of_our_own_statement_is_no_fault_of_the_ledger(ledger: Ledger) -> None:
    def write() -> None:
        with ledger.write() as connection:
            connection.execute(
                text("INSERT INTO ledgers (id, ledger_id, next_item_id, created_at) VALUES (1, '', 1, 0)")
            )

    with pytest.raises(IntegrityError):
        write()


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        (None, None),
        ("", ""),
        ("plain", "plain"),
        ("nul \0 inside", "nul \ufffd inside"),
        ("half \ud83d", "half \ufffd"),
        ("other half \udc80", "other half \ufffd"),
        ("a pair \ud83d\ude00", "a pair 😀"),
        ("😀 and ü", "😀 and ü"),
    ],
)
def test_text_is_kept_as_every_back_end_can(given: str | None, kept: str | None) -> None:
    assert storable(given) == kept


# -- a look from outside -----------------------------------------------------------------------------------------------


def test_a_look_from_outside_says_what_is_there(own_ledger: Ledger) -> None:
    found = inspect_ledger(own_ledger.url.render_as_string(hide_password=False))
    assert found.is_current
    assert found.revision == found.known_revision
    assert found.engine.startswith("SQLite" if own_ledger.is_sqlite else "Postgres")


def test_a_look_at_a_file_that_is_not_there_makes_none(tmp_path: Path) -> None:
    found = inspect_ledger(str(tmp_path / "no" / "ledger.db"))
    assert not found.is_current
    assert "there is no ledger yet" in " ".join(found.warnings)
    assert not list(tmp_path.iterdir())


def test_an_upgrade_makes_a_ledger_where_there_is_none(address: str) -> None:
    where, before, after = upgrade_ledger(address)
    assert (before, after) == (None, inspect_ledger(address).revision)
    assert upgrade_ledger(address) == (where, after, after)
