"""Under which conditions figures were found, and the table that tells both."""

import os
import platform
import re
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarks.figures import HEAD, Board

BEGIN, END = "<!-- bench -->", "<!-- /bench -->"
PACKAGES = ("openai", "httptools", "sqlalchemy", "celery", "psycopg")


@dataclass(frozen=True)
class Conditions:
    """What must be known to compare figures."""

    at: str
    command: str
    processor: str
    cores: int
    memory_gb: float
    kernel: str
    python: str
    packages: dict[str, str]
    sqlite: str
    load: float  # processes that wanted a core in the minute before

    @classmethod
    def now(cls, command: str, *, sqlite: str) -> "Conditions":
        return cls(
            at=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
            command=command,
            processor=_processor(),
            cores=os.cpu_count() or 1,
            memory_gb=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9,
            kernel=platform.release(),
            python=platform.python_version(),
            packages={name: version(name) for name in PACKAGES},
            sqlite=sqlite,
            load=os.getloadavg()[0],
        )

    @property
    def told(self) -> str:
        """Say it in one paragraph."""
        packages = ", ".join(f"{name} {number}" for name, number in self.packages.items())
        return (
            f"`{self.command}`, {self.at}: {self.cores} cores ({self.processor}), {self.memory_gb:.0f} GB, Linux "
            f"{self.kernel}, Python {self.python}, {packages}, {self.sqlite}; load before it {self.load:.1f}."
        )

    def as_json(self, board: Board) -> dict[str, Any]:
        figures = [figure.as_json() for figure in board.figures]
        return {**asdict(self), "figures": figures, "skipped": board.skipped}


def write_table(document: Path, conditions: Conditions, board: Board) -> None:
    """Put the figures into the document, between its two marks."""
    rows = "\n".join(figure.row() for figure in board.figures)
    skipped = "".join(f"\n\nNot measured: {what}." for what in board.skipped)
    table = f"{BEGIN}\n{conditions.told}\n\n{HEAD}\n{rows}{skipped}\n{END}"
    text = document.read_text()
    document.write_text(re.sub(f"{BEGIN}.*?{END}", lambda _: table, text, flags=re.DOTALL))


def _processor() -> str:
    found = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
    return found[1] if found else platform.machine()
