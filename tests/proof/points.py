"""Crash points: comments in the product that, here and nowhere else, are places where a process can be made to die.

A line `# crash point: NAME` costs the product nothing: it is a comment. A process that calls `install` before it
imports the product compiles each such line as a call, so that a chosen hit of a chosen point ends the process.
"""

import os
import re
import signal
import sys
import threading
from collections.abc import Sequence
from functools import cache
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from mmap import mmap
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

PRODUCT = Path(__file__).parents[2] / "batchrun"
_MARK = re.compile(rb"^( *)# crash point: ([a-z-]+)$", re.MULTILINE)
_CALL = rb'\1crash_point("\2")'
_COUNT_BYTES = 4


@cache
def find_points() -> dict[str, str]:
    """Return every point's name and its room and file, in the order of files and lines.

    Raises:
        AssertionError: two points have one name.
    """
    found: dict[str, str] = {}
    for path in sorted(PRODUCT.rglob("*.py")):
        for match in _MARK.finditer(path.read_bytes()):
            name = match[2].decode()
            assert name not in found, f"crash point {name!r} is in {found[name]} and in {path}"
            found[name] = str(path.relative_to(PRODUCT))
    return found


class Board:
    """How often each point was reached, in memory that a process shares with those it forks; and which hit is the last.

    It outlives a killed process, since whoever forked it has it too.
    """

    def __init__(self, names: Sequence[str], deadly: tuple[str, int] | None = None) -> None:
        """Make a board.

        Args:
            deadly: a point, and at which of its hits the process dies.
        """
        self._place = {name: _COUNT_BYTES * number for number, name in enumerate(names)}
        self._memory = mmap(-1, _COUNT_BYTES * len(names))
        self._lock = threading.Lock()
        self._deadly = deadly

    def hits(self) -> dict[str, int]:
        """Return how often each point was reached; points that were not are left out."""
        counts = {name: self._read(place) for name, place in self._place.items()}
        return {name: count for name, count in counts.items() if count}

    def reach(self, name: str) -> None:
        """Count a hit, and die if it is the one."""
        with self._lock:
            place = self._place[name]
            count = self._read(place) + 1
            self._memory[place : place + _COUNT_BYTES] = count.to_bytes(_COUNT_BYTES, "little")
            if (name, count) == self._deadly:
                os.kill(os.getpid(), signal.SIGKILL)

    def _read(self, place: int) -> int:
        return int.from_bytes(self._memory[place : place + _COUNT_BYTES], "little")


_board: Board | None = None


def use(board: Board | None) -> None:
    """Let the points of this process, and of those that it forks, count on a board."""
    global _board
    _board = board


def crash_point(name: str) -> None:
    """Be what a comment becomes."""
    if _board is not None:
        _board.reach(name)


class _Loader(SourceFileLoader):
    def get_code(self, fullname: str) -> CodeType:
        """Compile the source with its points; what is cached has none, and is left alone."""
        path = self.get_filename(fullname)
        return compile(_MARK.sub(_CALL, self.get_data(path)), path, "exec", dont_inherit=True)

    def exec_module(self, module: ModuleType) -> None:
        module.__dict__["crash_point"] = crash_point
        super().exec_module(module)


class _Finder(MetaPathFinder):
    def find_spec(self, fullname: str, path: Any, target: ModuleType | None = None) -> ModuleSpec | None:
        if not fullname.startswith("batchrun."):
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and type(spec.loader) is SourceFileLoader:
            spec.loader = _Loader(spec.loader.name, spec.loader.path)
        return spec


def install() -> None:
    """Compile what is imported of the product from here on with its points.

    Raises:
        AssertionError: something of it was imported before.
    """
    assert not any(name.startswith("batchrun.") for name in sys.modules), "too late: the product is imported already"
    sys.meta_path.insert(0, _Finder())
