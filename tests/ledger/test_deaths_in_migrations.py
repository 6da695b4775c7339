"""A migration that dies at any of its statements has done nothing: the first one, and one that upgrades a ledger."""

import hashlib
import os
import shutil
import signal
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event, text

from batchrun.errors import LedgerFault
from batchrun.ledger import migrate
from batchrun.ledger.engines import open_engine, parse_url
from batchrun.ledger.ledger import Ledger
from batchrun.ledger.schema import SCHEMA_REVISION
from tests.lab import Lab
from tests.ledger.desk import forks
from tests.ledger.past import Past
from tests.ledger.test_migrate import shape_of

NEXT = "9000"
# What an upgrade may have to do: a table changed with its rows, one made and filled, one gone, an index.
NEXT_REVISION = f'''
import sqlalchemy as sa
from alembic import op

revision, down_revision, branch_labels, depends_on = "{NEXT}", "{SCHEMA_REVISION}", None, None


def upgrade() -> None:
    with op.batch_alter_table("items") as items:
        items.add_column(sa.Column("mood", sa.Text(), nullable=True))
        items.alter_column("custom_id", new_column_name="name")
    op.create_table("moods", sa.Column("id", sa.BigInteger(), primary_key=True), sa.Column("mood", sa.Text()))
    op.execute("INSERT INTO moods SELECT id, state FROM items")
    op.execute("UPDATE items SET mood = state")
    op.create_index("ix_moods_mood", "moods", ["mood"])
    op.drop_table("asked")
'''


@pytest.fixture
def next_release(tmp_path: Path) -> Path:
    """The migrations of a release to come: one more than there are."""
    folder = tmp_path / "migrations"
    shutil.copytree(migrate.migrations_folder(), folder, ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "versions" / f"{NEXT}_next.py").write_text(NEXT_REVISION)
    return folder


def be_next(folder: Path) -> None:
    """Let this process be the next release."""
    migrate.migrations_folder = lambda: folder
    migrate.SCHEMA_REVISION = NEXT


def print_of(address: str) -> str:
    """Return a digest of the whole database: its schema, and every row of every table."""
    engine = open_engine(parse_url(address))
    with engine.connect() as connection:
        shape = shape_of(connection)
        names = sorted(_tables(connection))
        rows = {name: sorted(map(repr, connection.execute(text(f"SELECT * FROM {name}")).all())) for name in names}
    engine.dispose()
    return hashlib.sha256(repr((shape, rows)).encode()).hexdigest()


def _tables(connection: Any) -> list[str]:
    is_sqlite = connection.dialect.name == "sqlite"
    query = "SELECT name FROM sqlite_master WHERE type = 'table'" if is_sqlite else (
        "SELECT tablename FROM pg_tables WHERE schemaname = current_schema()"
    )  # fmt: skip
    return [str(row[0]) for row in connection.execute(text(query))]


def _upgrade_and_die(address: str, at: int | None) -> int:
    """Upgrade, and die by kill -9 before the `at`-th statement; None: before the commit. Return how many there were."""
    engine, seen = open_engine(parse_url(address)), [0]

    def count(*_: object) -> None:
        seen[0] += 1
        if seen[0] == at:
            os.kill(os.getpid(), signal.SIGKILL)

    event.listen(engine, "before_cursor_execute", count)
    if at is None:
        event.listen(engine, "commit", lambda _: os.kill(os.getpid(), signal.SIGKILL))
    migrate.upgrade(engine, where="here")
    engine.dispose()
    return seen[0]


def _in_a_fork(work: Callable[[], object]) -> int:
    """Do something in a fork that shares no connection with anybody; return its exit code."""
    if (pid := os.fork()) == 0:
        code = 70
        try:
            work()
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def _die_everywhere(address: str, next_folder: Path | None, said: Any) -> None:
    """Die before the commit, then at every statement in turn, in forks; upgrade; tell how many deaths there were."""
    import alembic.command
    import psycopg  # noqa: F401

    assert alembic.command
    if next_folder is not None:
        be_next(next_folder)
    before, deaths = print_of(address), 0
    assert _in_a_fork(lambda: _upgrade_and_die(address, None)) == -signal.SIGKILL
    assert print_of(address) == before, "the death before the commit left something behind"
    while _in_a_fork(partial(_upgrade_and_die, address, deaths + 1)) == -signal.SIGKILL:
        deaths += 1
        if deaths % 8 == 0:
            assert print_of(address) == before, f"death {deaths} left something behind"
    assert print_of(address) != before
    said.put(deaths)


def die_everywhere(address: str, next_folder: Path | None = None) -> int:
    """Run that in a process of its own, and return how many deaths there were."""
    said = forks.SimpleQueue()
    child = forks.Process(target=_die_everywhere, args=(address, next_folder, said))
    child.start()
    child.join(200)
    assert child.exitcode == 0
    deaths: int = said.get()
    return deaths


@pytest.mark.process
@pytest.mark.timeout(240)
def test_the_first_migration_dies_at_every_statement_and_leaves_nothing(address: str, tmp_path: Path) -> None:
    url = parse_url(address)
    if url.get_backend_name() == "sqlite":
        Path(str(url.database)).parent.mkdir(parents=True)
        open_engine(url).connect().close()
    deaths = die_everywhere(address)
    print(f"{deaths} deaths")
    assert deaths > 25
    ledger = Ledger(address, folder=tmp_path)
    assert len(ledger.ledger_id) == 12


@pytest.mark.process
@pytest.mark.timeout(240)
def test_an_upgrade_dies_at_every_statement_and_leaves_the_old_ledger_as_it_was(
    back_end: str, address: str, tmp_path: Path, next_release: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    past, lab = Past(SCHEMA_REVISION, back_end), Lab(tmp_path, db=address if back_end == "postgres" else None)
    past.restore(lab)
    address = lab.db or f"sqlite:///{tmp_path}/.batchrun/ledger.db"
    deaths = die_everywhere(address, next_release)
    print(f"{deaths} deaths")
    assert deaths > 8
    monkeypatch.setattr(migrate, "SCHEMA_REVISION", NEXT)
    monkeypatch.setattr(migrate, "migrations_folder", lambda: next_release)
    ledger = Ledger(address, folder=tmp_path)
    with ledger.read() as connection:
        moods = connection.execute(text("SELECT name, mood FROM items")).all()
        assert {str(name): str(mood) for name, mood in moods} == past.items
        assert "asked" not in _tables(connection)
        assert connection.execute(text("SELECT count(*) FROM moods")).scalar() == len(past.items)


def test_a_ledger_of_an_older_release_is_refused_until_it_is_upgraded(
    back_end: str, address: str, tmp_path: Path, next_release: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    past, lab = Past(SCHEMA_REVISION, back_end), Lab(tmp_path, db=address if back_end == "postgres" else None)
    past.restore(lab)
    address = lab.db or f"sqlite:///{tmp_path}/.batchrun/ledger.db"
    with monkeypatch.context() as later:
        later.setattr(migrate, "SCHEMA_REVISION", NEXT)
        later.setattr(migrate, "migrations_folder", lambda: next_release)
        before = print_of(address)
        with pytest.raises(LedgerFault, match="written by an older batchrun") as fault:
            Ledger(address, folder=tmp_path)
        assert fault.value.hint == "batchrun db upgrade"
        assert print_of(address) == before
        engine = open_engine(parse_url(address))
        assert migrate.upgrade(engine, where="here") == (SCHEMA_REVISION, NEXT)
        engine.dispose()
        Ledger(address, folder=tmp_path).close()
    with pytest.raises(LedgerFault, match="written by a later batchrun"):
        Ledger(address, folder=tmp_path)
