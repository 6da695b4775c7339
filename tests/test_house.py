"""The house keeps its floors: every import goes downhill, and every third-party package has its owner rooms."""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

HOUSE = Path(__file__).parents[1] / "batchrun"

FLOORS = {
    1: {"errors"},
    2: {"core", "settings"},
    3: {"ledger", "endpoint", "files", "mock"},
    4: {"runner"},
    5: {"queue", "bench"},
    6: {"wiring"},
    7: {"cli", "web"},
    8: {"__main__"},
}
FLOOR_OF = {room: floor for floor, rooms in FLOORS.items() for room in rooms}

DOORS = [
    (["celery", "kombu", "redis"], ["queue"]),
    (["sqlalchemy", "alembic", "psycopg", "pysqlite3"], ["ledger"]),
    (["openai", "httptools", "aiohappyeyeballs", "ahocorasick_rs"], ["endpoint"]),
    (["tenacity"], ["runner", "ledger"]),
    (["click", "rich"], ["cli", "__main__"]),
    (["pydantic", "pydantic_core"], ["core", "settings", "files", "endpoint", "mock"]),
    (["pydantic_settings"], ["settings"]),
    (["jinja2"], ["files", "bench"]),
    (["pyarrow"], ["files"]),
    (["pynvml"], ["bench"]),
    (["genai_prices"], ["endpoint"]),
    (["jsonschema_rs"], ["core"]),
    (["structlog"], ["cli", "wiring"]),
]
OWNERS = {package: set(rooms) for packages, rooms in DOORS for package in packages}

# What core may take from the standard library: no I/O, clock, sleep, dice or logging comes with these.
PURE = """
__future__ abc base64 binascii bisect collections copy dataclasses datetime decimal difflib email.utils enum fractions
functools hashlib heapq ipaddress itertools json math numbers operator re statistics string struct types typing
unicodedata urllib.parse zlib
"""
IMPURE_CALLS = {"open", "print", "input", "now", "utcnow", "today"}


def faults_of(source: str, path: Path) -> Iterator[str]:
    """Name every import (and, in core, every impure call) that the house forbids; `path` is relative to batchrun/."""
    room = path.parts[0].removesuffix(".py")
    floor = FLOOR_OF.get(room, 0)
    if not floor and room != "__init__":
        yield f"batchrun/{path}:1: '{room}' stands on no floor: give it one in FLOORS"
    for node in ast.walk(ast.parse(source)):
        here = f"batchrun/{path}:{getattr(node, 'lineno', 1)}: '{room}'"
        if room == "core" and isinstance(node, ast.Call) and _last_name(node.func) in IMPURE_CALLS:
            yield f"{here} calls '{ast.unparse(node.func)}': core has no I/O and no clock; make it an argument"
        for module in _imported(node, package=("batchrun", *path.parts[:-1])):
            top, below = module.split(".")[0], module.split(".")[1]
            if top == "batchrun":
                if below != room and FLOOR_OF.get(below, 0) >= max(floor, 1):
                    where = f"floor {floor} -> floor {FLOOR_OF[below]}"
                    yield f"{here} imports '{below}' ({where}): a room imports only rooms on the floors below it"
            elif top in sys.stdlib_module_names:
                if room == "core" and not {top, f"{top}.{below}"} & set(PURE.split()):
                    yield f"{here} imports '{top}': core has no I/O, clock, sleep, dice or logging (what it may: PURE)"
            elif room not in OWNERS.get(top, set()):
                owners = ", ".join(sorted(OWNERS.get(top, {"nobody yet; give it one in DOORS"})))
                yield f"{here} imports '{top}': each third-party package has its owner rooms, here: {owners}"


def _imported(node: ast.AST, *, package: tuple[str, ...]) -> Iterator[str]:
    """Yield what a node imports, as absolute dotted names of at least two parts ('os.*' for `import os`)."""
    if isinstance(node, ast.Import):
        yield from (f"{alias.name}.*" for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        above = package[: len(package) - node.level + 1] if node.level else ()
        yield from (".".join([*above, *filter(None, [node.module]), alias.name]) for alias in node.names)
    elif isinstance(node, ast.Call) and _last_name(node.func) in ("import_module", "__import__"):
        yield from (f"{word.value}.*" for word in node.args[:1] if isinstance(word, ast.Constant))


def _last_name(function: ast.expr) -> str | None:
    return getattr(function, "attr", getattr(function, "id", None))


def test_every_import_goes_downhill_through_its_own_door() -> None:
    paths = sorted(HOUSE.rglob("*.py"))
    assert paths
    faults = [fault for path in paths for fault in faults_of(path.read_text(), path.relative_to(HOUSE))]
    assert not faults, "\n" + "\n".join(faults)


@pytest.mark.parametrize(
    ("place", "source", "rule"),
    [
        (
            "runner/perform.py",
            "def f():\n    import batchrun.queue.app",
            ":2: 'runner' imports 'queue' (floor 4 -> floor 5)",
        ),
        ("runner/perform.py", "from ..wiring import wire", "'wiring'"),
        ("runner/perform.py", "from .. import cli", "'cli'"),
        ("runner/perform.py", "import_module('batchrun.cli.main')", "'cli'"),
        ("ledger/engines.py", "from batchrun.endpoint import client", "floor 3 -> floor 3"),
        ("errors.py", "from batchrun import core", "floor 1 -> floor 2"),
        ("__init__.py", "from batchrun.errors import E", "floor 0 -> floor 1"),
        ("utils.py", "", "stands on no floor"),
        ("runner/perform.py", "import sqlalchemy as sa", "owner rooms, here: ledger"),
        ("cli/main.py", "import httpx", "nobody yet"),
        ("core/retry.py", "import random", "'core' imports 'random'"),
        ("core/retry.py", "from email import message_from_file", "'email'"),
        ("core/retry.py", "from datetime import datetime\nnow = datetime.now()", ":2: 'core' calls 'datetime.now'"),
    ],
)
def test_a_wrong_door_is_named(place: str, source: str, rule: str) -> None:
    assert rule in "".join(faults_of(source, Path(place)))


@pytest.mark.parametrize(
    ("place", "source"),
    [
        ("core/retry.py", "from email.utils import parsedate_to_datetime\nfrom .states import State\nimport math"),
        (
            "runner/perform.py",
            "import time\nfrom batchrun import __version__\nfrom ..core.retry import wait\nimport tenacity",
        ),
        ("__main__.py", "from batchrun.cli import app\nimport click"),
        ("ledger/engines.py", "from . import moves\nfrom pysqlite3 import dbapi2"),
    ],
)
def test_the_right_doors_are_open(place: str, source: str) -> None:
    assert list(faults_of(source, Path(place))) == []
