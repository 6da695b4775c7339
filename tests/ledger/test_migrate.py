"""The schema: made once, whole or not at all, the same from the migrations as from the tables, and never guessed."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import Connection, event, inspect, text
from sqlalchemy.exc import OperationalError

from batchrun.errors import LedgerFault
from batchrun.ledger.engines import open_engine, parse_url
from batchrun.ledger.ledger import Ledger
from batchrun.ledger.migrate import current_revision, known_revisions, upgrade
from batchrun.ledger.schema import SCHEMA_REVISION, metadata
from tests.ledger.desk import Desk, forks, on_postgres, on_sqlite


def _execute(address: str, *statements: str) -> None:
    url = parse_url(address)
    if url.get_backend_name() == "sqlite":
        Path(str(url.database)).parent.mkdir(parents=True, exist_ok=True)
    engine = open_engine(url)
    with engine.connect().execution_options(is_write=True) as connection, connection.begin():
        for statement in statements:
            connection.execute(text(statement))
    engine.dispose()


def _tables(address: str) -> set[str]:
    engine = open_engine(parse_url(address))
    with engine.connect() as connection:
        names = set(inspect(connection).get_table_names())
    engine.dispose()
    return names


PRAGMAS = ("table_info", "foreign_key_list", "index_list")


def _sqlite_shape(connection: Connection) -> dict[str, Any]:
    """Return everything SQLite knows of the schema, told by structure and not by the order of the words."""
    shape: dict[str, Any] = {}
    names = connection.execute(text("SELECT name, type, sql FROM sqlite_master WHERE name NOT LIKE 'sqlite_%'")).all()
    for name, kind, sql in names:
        if name == "alembic_version":
            continue
        if kind == "index":
            shape[name] = " ".join(sql.replace('"', "").split())
            continue
        asked = {pragma: connection.execute(text(f"PRAGMA {pragma}({name})")).all() for pragma in PRAGMAS}
        # The first column counts: of the columns it is their order, of indexes and keys it is when they were made.
        shape[name] = {
            pragma: sorted(repr(tuple(row)[pragma != "table_info" :]) for row in rows) for pragma, rows in asked.items()
        }
        clauses = [" ".join(part.split()).strip(" ,") for part in sql.replace("\t", "\n").splitlines()]
        shape[name]["constraints"] = sorted(part for part in clauses if part.startswith("CONSTRAINT"))
    return shape


def _postgres_shape(connection: Connection) -> dict[str, Any]:
    """Return columns, constraints and indexes in Postgres' own words."""
    columns = """SELECT table_name, column_name, data_type, is_nullable, column_default, is_identity
                 FROM information_schema.columns WHERE table_schema = current_schema()"""
    constraints = """SELECT conrelid::regclass::text, conname, pg_get_constraintdef(oid)
                     FROM pg_constraint WHERE connamespace = current_schema()::regnamespace"""
    indexes = "SELECT tablename, indexname, indexdef FROM pg_indexes WHERE schemaname = current_schema()"
    return {
        query: sorted(repr(tuple(row)) for row in connection.execute(text(query)) if row[0] != "alembic_version")
        for query in (columns, constraints, indexes)
    }


def shape_of(connection: Connection) -> dict[str, Any]:
    """Return everything that the database knows of its schema."""
    return _sqlite_shape(connection) if connection.dialect.name == "sqlite" else _postgres_shape(connection)


def test_the_migrations_make_the_very_tables_of_the_schema(make_address: Callable[[], str]) -> None:
    shapes = []
    for is_migrated in (True, False):
        url = parse_url(make_address())
        if url.get_backend_name() == "sqlite":
            Path(str(url.database)).parent.mkdir(parents=True, exist_ok=True)
        engine = open_engine(url)
        if is_migrated:
            upgrade(engine, where="here")
        with engine.connect().execution_options(is_write=True) as connection, connection.begin():
            if is_migrated:
                options = {"compare_type": True, "compare_server_default": True}
                assert compare_metadata(MigrationContext.configure(connection, opts=options), metadata) == []
            else:
                metadata.create_all(connection)
            shapes.append(shape_of(connection))
        engine.dispose()
    assert shapes[0] == shapes[1]
    assert len(shapes[0]) > 2


def test_a_ledger_is_made_once_and_known_again(address: str, tmp_path: Path) -> None:
    first = Ledger(address, folder=tmp_path)
    desk = Desk.open(first)
    second = Ledger(address, folder=tmp_path)
    assert second.ledger_id == first.ledger_id
    with second.read() as connection:
        assert current_revision(connection) == SCHEMA_REVISION
    assert desk.counts() == {"pending": 1}
    first.close()
    second.close()


def test_the_newest_revision_is_the_schemas() -> None:
    assert max(known_revisions()) == SCHEMA_REVISION


def test_a_ledger_of_a_later_release_is_refused_and_left_alone(address: str, tmp_path: Path) -> None:
    Ledger(address, folder=tmp_path).close()
    _execute(address, "UPDATE alembic_version SET version_num = '9999'")
    engine = open_engine(parse_url(address))
    with pytest.raises(LedgerFault, match=r"written by a later batchrun \(schema 9999"):
        Ledger(address, folder=tmp_path)
    with pytest.raises(LedgerFault, match=r"written by a later batchrun \(schema 9999"):
        upgrade(engine, where="here")
    engine.dispose()
    assert _tables(address) == {*metadata.tables, "alembic_version"}


@pytest.mark.parametrize(
    "foreign",
    [
        ("CREATE TABLE recipes (id INTEGER)",),
        # Another program that uses Alembic too: its revisions mean nothing here.
        (
            "CREATE TABLE recipes (id INTEGER)",
            "CREATE TABLE alembic_version (version_num VARCHAR(32))",
            "INSERT INTO alembic_version VALUES ('5f3a')",
        ),
        ("CREATE TABLE alembic_version (version_num VARCHAR(32))",),
        # By chance its revision is called as one of ours.
        (
            "CREATE TABLE alembic_version (version_num VARCHAR(32))",
            "INSERT INTO alembic_version VALUES ('0000')",
            "CREATE TABLE jobs (id INTEGER)",
        ),
    ],
    ids=["tables", "tables and revisions", "an empty list of revisions", "our words"],
)
def test_a_database_with_other_tables_is_refused_and_left_alone(
    address: str, tmp_path: Path, foreign: tuple[str, ...]
) -> None:
    _execute(address, *foreign)
    before = _tables(address)
    with pytest.raises(LedgerFault, match="holds tables, but no batchrun ledger"):
        Ledger(address, folder=tmp_path)
    engine = open_engine(parse_url(address))
    with pytest.raises(LedgerFault, match="holds tables, but no batchrun ledger"):
        upgrade(engine, where="here")
    engine.dispose()
    assert _tables(address) == before


# -- several processes -------------------------------------------------------------------------------------------------


def _make(address: str, folder: str, start: Any, said: Any) -> None:
    start.wait(20)
    try:
        ledger = Ledger(address, folder=Path(folder))
        said.put(ledger.ledger_id)
        ledger.close()
    except BaseException as error:
        said.put(f"{type(error).__name__}: {error}")


@pytest.mark.process
@pytest.mark.parametrize("at_once", [2, 3, 8])
def test_processes_that_make_the_same_ledger_at_once_make_one(address: str, tmp_path: Path, at_once: int) -> None:
    start, said = forks.Barrier(at_once), forks.Queue()
    children = [forks.Process(target=_make, args=(address, str(tmp_path), start, said)) for _ in range(at_once)]
    for child in children:
        child.start()
    words = {said.get(timeout=60) for _ in children}
    for child in children:
        child.join(60)
    assert len(words) == 1, words
    assert len(words.pop()) == 12


# -- a death in the middle ---------------------------------------------------------------------------------------------


def _die_while_making(address: str, statements: int) -> None:
    """Make the schema and die by kill -9 before the given statement."""
    url = parse_url(address)
    if url.get_backend_name() == "sqlite":
        Path(str(url.database)).parent.mkdir(parents=True, exist_ok=True)
    engine, left = open_engine(url), [statements]

    @event.listens_for(engine, "before_cursor_execute")
    def _count(_connection: object, _cursor: object, statement: str, *_rest: object) -> None:
        if statement.lstrip().upper().startswith(("CREATE", "INSERT", "COMMIT")):
            left[0] -= 1
            if not left[0]:
                os.kill(os.getpid(), 9)

    upgrade(engine, where="here")
    engine.dispose()


@pytest.mark.process
@pytest.mark.parametrize("statements", [8, 10_000], ids=lambda number: f"before statement {number}")
def test_an_upgrade_that_is_killed_has_done_all_or_nothing(address: str, tmp_path: Path, statements: int) -> None:
    child = forks.Process(target=_die_while_making, args=(address, statements))
    child.start()
    child.join(60)
    assert child.exitcode == (0 if statements == 10_000 else -9)
    assert _tables(address) == ({*metadata.tables, "alembic_version"} if statements == 10_000 else set())
    ledger = Ledger(address, folder=tmp_path)
    assert Desk.open(ledger).claim()
    ledger.close()


@on_sqlite
def test_an_upgrade_waits_for_whoever_is_at_it(address: str) -> None:
    _execute(address, "CREATE TABLE x (id INTEGER)", "DROP TABLE x")
    engine, hasty = open_engine(parse_url(address)), open_engine(parse_url(address), busy_timeout_s=0.01)
    with (
        engine.connect().execution_options(is_write=True) as connection,
        connection.begin(),
        pytest.raises(OperationalError, match="database is locked"),
    ):
        upgrade(hasty, where="here")
    assert upgrade(hasty, where="here") == (None, SCHEMA_REVISION)
    engine.dispose()
    hasty.dispose()


@on_postgres
def test_a_ledger_that_another_process_is_making_is_not_taken_for_a_strangers(address: str, tmp_path: Path) -> None:
    """Its tables are there as soon as its transaction ends, between one look and the next."""
    engine = open_engine(parse_url(address))
    with engine.connect() as connection:
        assert current_revision(connection) is None
        connection.commit()
        Ledger(address, folder=tmp_path).close()
        assert inspect(connection).get_table_names()
    ledger = Ledger(address, folder=tmp_path)
    ledger.close()
    engine.dispose()
