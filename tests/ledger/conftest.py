"""The ledger on both back ends. SQLite in a temporary folder is the fake: the same tests hold on Postgres."""

from collections.abc import Callable, Iterator

import pytest

from batchrun.ledger.ledger import Ledger
from batchrun.ledger.schema import metadata
from tests.ledger.desk import Desk, check_books

BACK_ENDS = ("sqlite", "postgres")


@pytest.fixture(scope="session", params=BACK_ENDS)
def back_end(request: pytest.FixtureRequest) -> str:
    """The name of the back end; a test that asks for it runs on each."""
    return str(request.param)


@pytest.fixture(scope="session")
def make_address(
    back_end: str, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Callable[[], str]:
    """Return a function that returns the address of one more database that holds nothing yet."""
    if back_end == "postgres":
        make: Callable[[], str] = request.getfixturevalue("make_postgres_database")
        return make
    return lambda: str(tmp_path_factory.mktemp("sqlite") / "ledger" / "ledger.db")


@pytest.fixture
def address(make_address: Callable[[], str]) -> str:
    """The address of a database of this test's own that holds nothing yet."""
    return make_address()


@pytest.fixture(scope="session")
def shared_ledger(make_address: Callable[[], str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ledger]:
    """One open ledger for all tests: an engine learns its statements once."""
    opened = Ledger(make_address(), folder=tmp_path_factory.mktemp("shared"))
    try:
        yield opened
    finally:
        opened.close()


@pytest.fixture
def ledger(shared_ledger: Ledger) -> Iterator[Ledger]:
    """An empty ledger. After the test its books must add up."""
    sweep_out(shared_ledger)
    yield shared_ledger
    check_books(shared_ledger)


@pytest.fixture
def own_ledger(address: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ledger]:
    """An empty ledger that nobody else has open: for tests that hurt its database."""
    opened = Ledger(address, folder=tmp_path_factory.mktemp("own"))
    try:
        yield opened
        check_books(opened)
    finally:
        opened.close()


def sweep_out(ledger: Ledger) -> None:
    """Delete everything but the ledger's identity."""
    with ledger.write() as connection:
        for table in reversed(metadata.sorted_tables):
            if table.name != "ledgers":
                connection.execute(table.delete())


@pytest.fixture
def desk(ledger: Ledger) -> Desk:
    """A job with one item."""
    return Desk.open(ledger)
