"""Every crash point has a name, a row in the guarantees and a scene that reaches it; the product knows none of them."""

import json
import re
from importlib.machinery import ModuleSpec
from importlib.util import module_from_spec
from pathlib import Path

import pytest

from tests.proof import points
from tests.proof.conftest import ROOT
from tests.proof.points import Board, find_points, use

TABLE = (ROOT / "docs" / "guarantees.md").read_text().partition("## The crash points")[2].partition("\n## ")[0]


def test_every_point_has_a_row_in_the_guarantees() -> None:
    first_cells = [line.split("|")[1] for line in TABLE.splitlines() if line.startswith("| `")]
    named = [name for cell in first_cells for name in re.findall(r"`([a-z-]+)`", cell)]
    assert sorted(named) == sorted(find_points())


def test_every_room_in_which_something_becomes_durable_has_points() -> None:
    rooms = {place.split("/")[0] for place in find_points().values()}
    assert rooms == {"endpoint", "files", "ledger", "queue", "runner"}
    assert len(find_points()) >= 30


def test_a_mark_is_nothing_to_the_product_and_a_call_to_the_proof(tmp_path: Path) -> None:
    path = tmp_path / "marked.py"
    path.write_text("def walk():\n    # crash point: half-way\n    return 1\n")
    loader = points._Loader("marked", str(path))
    module = module_from_spec(ModuleSpec("marked", loader, origin=str(path)))
    loader.exec_module(module)
    board = Board(["half-way"])
    use(board)
    try:
        assert module.walk() == 1
        assert module.walk() == 1
    finally:
        use(None)
    assert board.hits() == {"half-way": 2}
    assert "crash_point" not in "".join(path.read_text() for path in points.PRODUCT.rglob("*.py"))


@pytest.mark.process
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_every_point_is_reached(counts: Path) -> None:
    reached = {name for hits in json.loads(counts.read_text()).values() for name in hits}
    assert set(find_points()) - reached == set()
