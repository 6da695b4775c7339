"""Ledgers of the past: kept for every schema, opened by this release; cut off, of the future, or doubted: refused."""

import hashlib
import os
import threading
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import text

from batchrun.errors import LedgerFault
from batchrun.ledger.engines import open_engine, parse_url, sqlite_module
from batchrun.ledger.intact import WORKERS, refuse_emptied
from batchrun.ledger.ledger import Ledger
from batchrun.ledger.migrate import current_revision, known_revisions
from batchrun.ledger.reports import count_items
from batchrun.ledger.schema import SCHEMA_REVISION, metadata
from tests.lab import Lab
from tests.ledger.past import BACK_ENDS, Past, all_pasts
from tests.ledger.test_migrate import shape_of

LAGS = "the schema has changed, and its fixture has not: python -m tests.ledger.past"


def restored(past: Past, folder: Path, address: str) -> str:
    """Put a ledger of the past into a folder, or into an empty database; return its address."""
    lab = Lab(folder, db=address if past.back_end == "postgres" else None)
    past.restore(lab)
    return lab.db or f"sqlite:///{folder}/.batchrun/ledger.db"


@pytest.fixture
def newest(back_end: str) -> Past:
    return Past(SCHEMA_REVISION, back_end)


def test_every_schema_has_its_ledgers() -> None:
    assert {(past.revision, past.back_end) for past in all_pasts()} == {
        (revision, back_end) for revision in known_revisions() for back_end in BACK_ENDS
    }, LAGS


def test_the_newest_ledger_of_the_past_has_the_schema_of_today(newest: Past, tmp_path: Path, address: str) -> None:
    url = parse_url(restored(newest, tmp_path, address))
    (tmp_path / "new").mkdir()
    engine = open_engine(url)
    with engine.connect() as connection:
        assert current_revision(connection) == SCHEMA_REVISION
        options = {"compare_type": True, "compare_server_default": True}
        assert compare_metadata(MigrationContext.configure(connection, opts=options), metadata) == [], LAGS
    engine.dispose()


def test_it_is_opened_with_all_that_it_holds(newest: Past, tmp_path: Path, address: str) -> None:
    ledger = Ledger(restored(newest, tmp_path, address), folder=tmp_path)
    with ledger.read() as connection:
        counts = {state.value: count for state, count in count_items(connection, 1).items() if count}
    assert counts == {state: list(newest.items.values()).count(state) for state in set(newest.items.values())}


def test_one_of_a_later_release_is_refused_and_left_alone(newest: Past, tmp_path: Path, address: str) -> None:
    address = restored(newest, tmp_path, address)
    engine = open_engine(parse_url(address))
    with engine.connect().execution_options(is_write=True) as connection, connection.begin():
        connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
        connection.execute(text("ALTER TABLE jobs ADD COLUMN mood TEXT"))
        before = shape_of(connection)
    with pytest.raises(LedgerFault, match="written by a later batchrun") as fault:
        Ledger(address, folder=tmp_path)
    assert fault.value.hint
    with engine.connect() as connection:
        assert shape_of(connection) == before
    engine.dispose()


# -- cut off ----------------------------------------------------------------------------------------------------------


def whole_file(folder: Path) -> Path:
    """Return a SQLite ledger of the past as one file, without a log beside it."""
    address = restored(Past(SCHEMA_REVISION, "sqlite"), folder, "")
    path = Path(address.removeprefix("sqlite:///"))
    Ledger(address, folder=folder).close()
    connection = sqlite_module().connect(str(path))
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
    return path


def prints(folder: Path) -> dict[str, str]:
    """Return what every file of a folder holds."""
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.iterdir() if path.is_file()}


@pytest.mark.parametrize("share", [0.0, 0.0005, 0.01, 0.1, 0.3, 0.5, 0.7, 0.9, 0.97])
def test_one_that_is_cut_off_is_refused_in_words_and_left_as_it_is(tmp_path: Path, share: float) -> None:
    path = whole_file(tmp_path)
    (path.parent / "workers").mkdir()
    os.truncate(path, int(share * path.stat().st_size))
    before = prints(path.parent)
    with pytest.raises(LedgerFault) as fault:
        Ledger(str(path), folder=path.parent)
    assert fault.value.hint
    assert str(path) in fault.value.message
    assert prints(path.parent) == before


def test_an_emptied_file_does_not_cost_the_log_beside_it(tmp_path: Path) -> None:
    """SQLite would take the empty file for a new database, and delete the log in which all of it still stands."""
    address = restored(Past(SCHEMA_REVISION, "sqlite"), tmp_path, "")
    path = Path(address.removeprefix("sqlite:///"))
    log = path.with_name("ledger.db-wal")
    os.truncate(path, 0)
    log.write_bytes(b"what was written and not yet in the file")
    before = prints(path.parent)
    with pytest.raises(LedgerFault, match="is empty, and has been in use"):
        Ledger(address, folder=tmp_path)
    assert prints(path.parent) == before


def test_a_file_that_gets_its_first_page_in_a_moment_is_a_new_ledger(tmp_path: Path) -> None:
    """Another process makes it just now, where workers of an earlier ledger have left their folder."""
    path = tmp_path / "ledger.db"
    (tmp_path / WORKERS).mkdir()
    path.touch()
    first_page = threading.Timer(0.15, path.write_bytes, [b"a page"])
    first_page.start()
    refuse_emptied(path)
    first_page.join()


def test_a_rollback_journal_beside_an_empty_file_is_a_ledger_in_the_making(tmp_path: Path) -> None:
    (tmp_path / "ledger.db").touch()
    (tmp_path / "ledger.db-journal").write_bytes(b"nothing was here before")
    refuse_emptied(tmp_path / "ledger.db")


def test_an_empty_file_where_no_ledger_was_becomes_one(tmp_path: Path) -> None:
    (tmp_path / "ledger.db").touch()
    Ledger(str(tmp_path / "ledger.db"), folder=tmp_path).close()
    assert (tmp_path / "ledger.db").stat().st_size > 0
